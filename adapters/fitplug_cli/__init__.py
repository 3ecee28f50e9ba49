"""The command `fitplug`: a spec file in, released tables out."""

"""The command `fitplug`: it reads a spec file, and writes released tables.

The packages, each of which imports only those above it:

    inputs       reads the public files that a spec or a command names
    spec         reads and checks spec files
    output       prints results and writes files
    reporting    collects the facts of a plan, and shows them in a terminal or on a page
    commands     does the work of each command

`main` declares the commands and their options, and turns errors into exit codes.
"""

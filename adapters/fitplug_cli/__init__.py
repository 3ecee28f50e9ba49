"""The command `fitplug`, which reads a spec file and writes released tables and reports.

Each package imports only packages below it in this list:

    commands     one module for each command
    render       console output, JSON records, reports and files
    spec         spec files
    inputs       public files that a spec or a command names
"""

"""The command `fitplug`: it reads a spec file, and writes released tables.

`main` declares the commands and `ledger_commands` those of `fitplug ledger`. Each package imports
only packages that come later in this list:

    commands     does the work of each command
    reporting    collects the facts of a plan, and shows them in a terminal or on a page
    output       prints results and writes files
    spec         reads and checks spec files
    inputs       reads the public files that a spec or a command names
"""

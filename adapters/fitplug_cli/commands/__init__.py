"""The commands of `fitplug`: a module each, with the options and the work.

    init, design, report, explore, count, run (and release), estimate, export, truncation, ledger,
    series

What several of them use is in

    releases, parted_releases    the releases of run and release
    budgets                      what the costs of plans are compared with
    clusters                     the workers that a spec names

A module is imported when its command is asked for, since what it needs takes long to import.
"""

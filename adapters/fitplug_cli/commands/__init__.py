"""The commands of `fitplug`, one module for each, with its options and its work.

    init, design, report, explore, count, run (and release), estimate, export, truncation, ledger,
    series

Several commands use:

    releases, parted_releases    the releases of run and release
    budgets                      what the costs of plans are compared with
    clusters                     the workers that a spec names

A module is imported only when its command runs, because its libraries are slow to import.
"""

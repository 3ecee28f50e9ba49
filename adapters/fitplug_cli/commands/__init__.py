"""The work of each command of `fitplug`; the modules beside this package declare their options.

    new_spec        init
    plans           design, and the plan of run, count and release
    counts          count, and the counts of run
    releases        release, and the release of run
    reports         report
    estimates       estimate
    records_lost    lost
    ledgers         ledger init, show and export
    budgets         what the costs of plans are compared with

Each command imports only the modules that it needs, since they take long to import.
"""

"""Measures this machine: a batch of records decoded in process and by a real child, beside other ways to do it.

    fastkcl bench            your own records, beside installed peers            `run`
    bench/ (the repository)  suites, targets and plots, over the same parts        `turns`, `pipes`, `peers`

Rules: results are compared with Python's own json and base64 before anything is timed; ways take turns; a process that
is measured is pinned to a core; a figure is a median with its spread. Speeds are bytes of the daemon's line (base64,
keys, JSON), 10**6 a second for MB/s. All of it is for Linux only: no other system pins processes and has /proc.
"""

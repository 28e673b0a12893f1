"""What happened: journals in SQLite, logs as segment files, series for charts. A copy; the truth is on the hosts."""

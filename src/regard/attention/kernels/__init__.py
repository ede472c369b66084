"""The paths that `attend` can take; each gives (output, statistic of every row)."""

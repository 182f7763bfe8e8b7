"""The command ``implicit-delta``: a front end for tables and regressions."""

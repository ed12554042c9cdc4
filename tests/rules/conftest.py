"""The package in acme/ is not ours: it is imported by the processes that the tests start, and by nobody else."""

collect_ignore = ["acme"]

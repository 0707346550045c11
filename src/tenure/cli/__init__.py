"""The command line: one file per group of verbs, put together in `app`."""

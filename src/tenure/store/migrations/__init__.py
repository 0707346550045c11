"""What Alembic reads: one file per revision, oldest first, in `versions`."""

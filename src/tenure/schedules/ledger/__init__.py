"""The SQL of schedules, as plain functions over a `Tx`."""

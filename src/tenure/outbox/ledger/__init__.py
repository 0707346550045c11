"""The outbox's SQL: plain functions over a `Tx`, no decision that `rules` could make."""

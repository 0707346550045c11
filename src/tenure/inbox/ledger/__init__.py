"""The inbox's SQL: sources, receipts, what was refused."""

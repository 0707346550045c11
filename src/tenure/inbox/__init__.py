"""Webhooks in: sources, verification, receipts."""

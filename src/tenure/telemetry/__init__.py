"""Logs, the catalogue of events, and counters."""

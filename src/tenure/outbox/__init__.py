"""Webhooks and events out: accept a message, deliver it signed, show what became of it."""

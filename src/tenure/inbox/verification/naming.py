"""Providers' names of events as event types of the outbox."""

import re
from typing import Final

from tenure.limits import NAME_MAX

__all__ = ["DEFAULT_TYPE", "event_type_of"]

DEFAULT_TYPE: Final = "webhook.received"
_FOREIGN: Final = re.compile(r"[^a-zA-Z0-9\-_.]+")


def event_type_of(text: str | None) -> str:
    """Return a provider's own name as an event type that the outbox knows.

    A slash becomes a dot, whatever else does not fit an underscore.
    """
    if text is None:
        return DEFAULT_TYPE
    named = _FOREIGN.sub("_", text.strip().replace("/", "."))[:NAME_MAX]
    return named or DEFAULT_TYPE

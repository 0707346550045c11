"""Whether a webhook comes from where it says: presets, checks, what they answer."""

from tenure.inbox.verification.checks import Check
from tenure.inbox.verification.compiling import compile_check
from tenure.inbox.verification.model import (
    HINTS,
    Event,
    Handshake,
    Outcome,
    Refusal,
    RefusalReason,
    Verification,
    Verified,
)
from tenure.inbox.verification.naming import DEFAULT_TYPE, event_type_of
from tenure.inbox.verification.presets import PRESETS, Preset

__all__ = [
    "DEFAULT_TYPE",
    "HINTS",
    "PRESETS",
    "Check",
    "Event",
    "Handshake",
    "Outcome",
    "Preset",
    "Refusal",
    "RefusalReason",
    "Verification",
    "Verified",
    "compile_check",
    "event_type_of",
]

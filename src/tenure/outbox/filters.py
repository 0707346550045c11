"""Which endpoints a message reaches, and why not the others: pure, told by a code."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class MatchReason(StrEnum):
    """Why an endpoint gets a message or not; stored with messages nobody got."""

    MATCHED = "matched"
    DISABLED = "disabled"
    EVENT_TYPE = "event_type"
    CHANNEL = "channel"
    FILTER = "filter"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointFilter:
    """What one endpoint wants; None = everything."""

    event_types: frozenset[str] | None = None
    channels: frozenset[str] | None = None
    disabled: bool = False
    expression: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The answer for one endpoint; `matched` is true exactly for MATCHED."""

    matched: bool
    reason: MatchReason


_ANSWERS: Final = {
    reason: Match(matched=reason is MatchReason.MATCHED, reason=reason)
    for reason in MatchReason
}


def matches(
    wanted: EndpointFilter, event_type: str, channels: Collection[str]
) -> Match:
    """Tell whether the endpoint gets a message of this type on these channels.

    A message without channels never reaches an endpoint with channels; an endpoint
    without channels gets every message. Names are compared exactly.
    """
    if wanted.disabled:
        return _ANSWERS[MatchReason.DISABLED]
    if wanted.event_types is not None and event_type not in wanted.event_types:
        return _ANSWERS[MatchReason.EVENT_TYPE]
    if wanted.channels is not None and wanted.channels.isdisjoint(channels):
        return _ANSWERS[MatchReason.CHANNEL]
    return _ANSWERS[MatchReason.MATCHED]

"""A source with its secrets opened, as the receiver and the pullers need it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenure.ids import AppId, SourceId, TenantId
from tenure.inbox.model import Pull, SourceSettings, Verification

__all__ = ["LiveSecret", "Opened"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSecret:
    """One secret, and the instant (µs) at which it ends; None = it does not."""

    secret: str = field(repr=False)
    expires_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """One version of a source; `broken` says why its secrets could not be opened."""

    id: SourceId
    tenant: TenantId
    app: AppId
    uid: str | None
    path: str
    version: int
    disabled: bool
    verification: Verification
    settings: SourceSettings
    secrets: tuple[LiveSecret, ...]
    pull: Pull | None
    broken: str | None = None

    @property
    def shown(self) -> str:
        """What targets are told as `tenure-source`."""
        return self.uid or self.id

"""What one process says of itself on `/health`: facts, no secrets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenure.limits import LAG_MAX_SECONDS

if TYPE_CHECKING:
    from tenure.work.node import NodeHealth

__all__ = ["Health"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What `/health` says: facts, no secrets."""

    node: NodeHealth | None
    off: str | None
    """Why nothing is sent here although work is accepted; None when it is."""
    draining: bool
    died: tuple[str, ...] = ()
    """What runs for as long as the engine does, and has ended by an error."""
    settling: int = 0
    """Results in memory that are not committed yet."""
    lag_seconds: float = 0.0
    """By how much the event loop is late, at least, over the last seconds."""

    @property
    def because(self) -> tuple[str, ...]:
        """Why this process should not be given traffic; empty when it should."""
        node = self.node
        reasons = {
            "it is stopping": self.draining,
            "the worker loop is stalled": node is not None and node.stalled,
            "no beat succeeded for too long (fenced)": node is not None
            and node.fenced
            and not self.draining,
            "the last beat was not written": node is not None
            and node.failing is not None
            and not self.draining,
            f"the event loop is late by {self.lag_seconds:.1f} s": self.lag_seconds
            > LAG_MAX_SECONDS,
        }
        return (
            *(f"{name} has ended by an error" for name in self.died),
            *(reason for reason, holds in reasons.items() if holds),
        )

    @property
    def alive(self) -> bool:
        """Whether a restart of this process would change nothing."""
        return not self.died and (self.node is None or not self.node.stalled)

    @property
    def ready(self) -> bool:
        """Whether this process should be given traffic."""
        return not self.because

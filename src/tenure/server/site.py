"""What the server needs of an engine, and nothing more."""

from dataclasses import dataclass, field

from tenure.clock import Clock, SystemClock
from tenure.limits import PAYLOAD_BYTES
from tenure.outbox.outbox import Outbox
from tenure.server.bounds import body_bound
from tenure.store.backend import Backend


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The parts of one engine that HTTP reaches."""

    outbox: Outbox
    backend: Backend
    clock: Clock = field(default_factory=SystemClock)
    payload_bytes_max: int = PAYLOAD_BYTES
    sending: bool = True

    @property
    def body_bytes_max(self) -> int:
        """Most bytes of a request body."""
        return body_bound(self.payload_bytes_max)

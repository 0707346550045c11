"""The carriers of one node, by the kind of endpoint that they carry for."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tenure.outbox.carriers.archive import ArchiveCarrier
from tenure.outbox.carriers.chat import ChatCarrier
from tenure.outbox.carriers.functions import FunctionCarrier, Functions, registry
from tenure.outbox.carriers.log import LogCarrier
from tenure.outbox.carriers.naming import ARCHIVE, CHAT, HANDLER, LOG

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenure.clock import Clock
    from tenure.outbox.carriers.model import Carrier
    from tenure.telemetry.events import Events


class Carriers:
    """What a node can do beside HTTP; `close` it when the node has stopped.

    `functions` None takes what `tenure.on` registered. They are sealed here.
    """

    __slots__ = ("_calls", "_chat", "by_kind")

    def __init__(
        self, functions: Functions | None, clock: Clock, events: Events
    ) -> None:
        given = registry() if functions is None else functions
        self._calls: Final = FunctionCarrier(given.seal(), clock)
        self._chat: Final = ChatCarrier(clock)
        self.by_kind: Final[Mapping[str, Carrier]] = MappingProxyType(
            {
                ARCHIVE: ArchiveCarrier(clock),
                CHAT: self._chat,
                HANDLER: self._calls,
                LOG: LogCarrier(events, clock),
            }
        )

    @property
    def needs(self) -> frozenset[str]:
        """What lanes may ask of this node beside the delivery itself."""
        return self._calls.needs

    def close(self) -> None:
        """Take nothing more."""
        self._calls.close()
        self._chat.close()

"""What a slice gives to the kernel: its kind of work, and the registry that holds them.

A kind says how its rows are read, done and recorded. Everything else (who holds a row,
when it is due again, what a late answer may still change) is the kernel's.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec

from tenure.errors import InvariantViolated

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tenure.kernel.commands import Parked, Result
    from tenure.store.claims import Claimed, Effect, Settled
    from tenure.store.tx import Tx


__all__ = ["Guard", "Kind", "Kinds", "Loaded", "Prepared", "Ran", "seal"]


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What `Kind.load` made of one claim: ``job`` is the kind's own."""

    claimed: Claimed
    job: Any


Loaded: TypeAlias = "Prepared | Parked"


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one attempt.

    ``evidence`` is handed to the kind's ``evidence`` and ``effects`` as it is.
    ``released`` says that nothing was begun: the claim is given back, uncharged, and
    ``result`` is not looked at.
    """

    result: Result
    evidence: Any = None
    released: bool = False


class Guard(Protocol):
    """What a running attempt may ask of the node that runs it."""

    def may_begin(self) -> bool:
        """Tell whether the outside world may be touched now, and mark it as begun.

        It is the last act before the first byte goes out: False when the node cannot
        prove that it still holds its claims, when the claim was cancelled or lost, or
        when its deadline has passed. After True the claim cannot be released any more.
        """
        ...

    @property
    def deadline(self) -> float:
        """The claim's total deadline in seconds of `tenure.clock`'s monotonic clock.

        It is the same instant as the prepared claim's ``work.deadline_at``.
        """
        ...

    def instant(self) -> int:
        """Return now in microseconds of the database's clock."""
        ...


class Kind(Protocol):
    """One kind of work: what its rows mean and how they are done."""

    @property
    def name(self) -> str:
        """The value of the column ``kind`` of its rows."""
        ...

    @property
    def needs(self) -> str:
        """The value of ``lane.needs`` that this kind can serve."""
        ...

    @property
    def late_success(self) -> bool:
        """Whether a success that arrives after the claim was lost still counts."""
        ...

    def load(self, tx: Tx, claims: Sequence[Claimed]) -> Sequence[Loaded]:
        """Read what a whole batch of claims needs, set-based: one answer for each.

        Answers stand in the order of the claims. A row that can never run, by its own
        fault (it cannot be decoded), is answered with Parked and its reason.
        """
        ...

    async def run(self, prepared: Prepared, guard: Guard) -> Ran:
        """Do it once. Never raises: a failure is a result."""
        ...

    def evidence(self, items: Sequence[Settled]) -> Sequence[Effect]:
        """Return the inserts that keep what came back, late or not.

        Keyed by (work, claim), so that the same settlement twice changes nothing. A
        settlement's evidence is None when the attempt was ended from outside (cut,
        overran, failed by an exception) or could not be stored: nothing is kept then.
        """
        ...

    def effects(self, items: Sequence[Settled]) -> Sequence[Effect]:
        """Return what else changes in the same transaction, for rows that changed."""
        ...


Kinds: TypeAlias = "Mapping[str, Kind]"


def seal(kinds: Iterable[Kind]) -> Kinds:
    """Return the registry of all kinds, which cannot change any more.

    Raises InvariantViolated when two kinds share a name.
    """
    registry: Final[dict[str, Kind]] = {}
    for kind in kinds:
        if kind.name in registry:
            msg = f"two kinds of work are both named {kind.name!r}: rename one"
            raise InvariantViolated(msg)
        registry[kind.name] = kind
    return MappingProxyType(registry)

"""How the outbox's ledger is run: one transaction a call, once a key."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from tenure.outbox.ledger import remembering

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.ids import TenantId
    from tenure.outbox.model import Idempotency, Written
    from tenure.store.backend import Backend
    from tenure.store.tx import Tx

P = ParamSpec("P")
T = TypeVar("T")


class Door:
    """Runs ledger functions; `keep_seconds` is how long a key is remembered."""

    __slots__ = ("_backend", "_keep_seconds")

    def __init__(self, backend: Backend, *, keep_seconds: float) -> None:
        self._backend: Final = backend
        self._keep_seconds: Final = keep_seconds

    async def read(
        self, fn: Callable[Concatenate[Tx, P], T], *args: P.args, **named: P.kwargs
    ) -> T:
        """Run a function over a snapshot."""
        return await self._backend.read(lambda tx: fn(tx, *args, **named))

    async def write(
        self, fn: Callable[Concatenate[Tx, P], T], *args: P.args, **named: P.kwargs
    ) -> T:
        """Run a function in a transaction of its own."""
        return await self._backend.write(lambda tx: fn(tx, *args, **named))

    async def once(
        self,
        tenant: TenantId,
        given: Idempotency | None,
        operation: str,
        do: Callable[[Tx], Written[T]],
        kind: Any,
    ) -> Written[T]:
        """Run a function in a transaction, or return what the key's first use did."""

        def run(tx: Tx) -> Written[T]:
            return remembering.once(
                tx,
                tenant,
                given,
                operation,
                partial(do, tx),
                kind,
                keep_seconds=self._keep_seconds,
            )

        return await self._backend.write(run)

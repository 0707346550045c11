"""Adopt: an operator says that a copy is meant, and what of it may go out.

Held, everything that was open at that instant is parked first, while the copy still
sends nothing; only then is the identity written. A step that fails leaves a copy that
sends nothing, and adopting again goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from tenure.errors import Conflict
from tenure.limits import HOLD_BATCH_ROWS
from tenure.store import claims, nodes
from tenure.store.identity import (
    Matches,
    adopt_identity,
    check_identity,
    read_setting,
    write_setting,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.store.backend import Backend
    from tenure.store.identity import Verdict
    from tenure.store.tx import Tx

__all__ = ["ADOPTED", "Adopted", "Adoption", "adopt", "untold"]

ADOPTED: Final = "adopted"
"""The setting that says when the database was last adopted, and what was held."""


class Adoption(msgspec.Struct, frozen=True, kw_only=True):
    """What the database keeps of its last adoption; `at` is µs of its clock."""

    at: int
    deployment: str
    held: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """What became of an adoption: the verdict before it, and the rows that are held."""

    before: Verdict
    held: int


async def adopt(
    backend: Backend,
    deployment: str,
    *,
    held: bool,
    told: Callable[[int], None] | None = None,
) -> Adopted:
    """Make the database this deployment's; with `held`, park what is open first.

    `told` gets the count of held rows after each batch. Raises Conflict when rows
    should be held while a node that may send works on the database.
    """
    before = await backend.write(partial(check_identity, deployment=deployment))
    count = 0
    if held:
        if isinstance(before, Matches):
            await backend.read(_refuse_working)
        count = await _hold(backend, told)
    await backend.write(partial(_write, deployment=deployment, held=count))
    return Adopted(before=before, held=count)


async def _hold(backend: Backend, told: Callable[[int], None] | None) -> int:
    before_at = await backend.read(lambda tx: tx.now)
    count, place = 0, ""
    while True:
        batch = await backend.write(
            partial(
                claims.hold_open,
                place=place,
                before_at=before_at,
                limit=HOLD_BATCH_ROWS,
            )
        )
        count += batch.count
        if told is not None:
            told(count)
        if batch.place is None:
            return count
        place = batch.place


def _refuse_working(tx: Tx) -> None:
    for node in nodes.list_nodes(tx):
        if nodes.is_heard(node.beat_at, tx.now):
            raise Conflict(
                f"node {node.id} ({node.name}) works on this database and may send what"
                " should be held: stop it first",
                node=node.id,
            )


def _write(tx: Tx, deployment: str, held: int) -> None:
    adopt_identity(tx, deployment)
    record = Adoption(at=tx.now, deployment=deployment, held=held)
    write_setting(tx, ADOPTED, msgspec.json.encode(record))


def untold(tx: Tx) -> Adoption | None:
    """Return the last adoption if no node has started since: the next one tells of it."""
    raw = read_setting(tx, ADOPTED)
    if raw is None:
        return None
    adoption = msgspec.json.decode(raw, type=Adoption)
    since = "SELECT 1 FROM node WHERE started_at >= :at LIMIT 1"
    return None if tx.first(since, {"at": adoption.at}) else adoption

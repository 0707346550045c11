"""Receipts of many senders in one commit, each with its own answer.

Theory. One transaction (1) reads the sources' versions: what was verified under an older
one is judged again, so a rotated secret or a disabled source holds from its commit on;
(2) charges the rate limits, under the rows of the sources that have one; (3) takes the
keys (provider's event id, nonce of the signed request) by inserting them in their order,
and reads by a *later* statement whose they are; (4) makes the messages of those that are
new; (5) inserts the receipts. A refused, repeated or limited request leaves nothing
behind, least of all a key: the sender's next try is judged like a first one.

The same batch run again (its COMMIT went unanswered) finds its keys and messages by
their ids. What it stored is not judged again: neither a source that changed since nor a
rate that it used up itself takes back what is committed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from tenure.errors import InvariantViolated, TenureError
from tenure.ids import AppId, MessageId, ReceiptId, SourceId, TenantId
from tenure.inbox import tables
from tenure.inbox.ledger.places import next_place
from tenure.outbox.cel import Verdict
from tenure.outbox.ledger.accepting import AcceptItem
from tenure.outbox.model import NewMessage

if TYPE_CHECKING:
    from tenure.outbox.acceptor import Accept
    from tenure.store.tx import Tx

__all__ = [
    "Answer",
    "Item",
    "Limited",
    "Orphaned",
    "Part",
    "Repeated",
    "Replayed",
    "Stale",
    "Stored",
    "receive_batch",
]

KEY: Final = "k:"
NONCE: Final = "n:"
_RECEIPT: Final = (
    "id",
    "tenant",
    "source",
    "app",
    "message",
    "messages",
    "event_type",
    "event_id",
    "method",
    "address",
    "size",
    "place",
    "received_at",
)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a request: the message it becomes, and what makes it the only one."""

    id: MessageId
    message: NewMessage
    key: str | None
    verdicts: Mapping[str, Verdict] = msgspec.field(default_factory=dict[str, Verdict])


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One verified request. Its ids exist before the first try, so tries are the same.

    `version` is the source's under which it was verified. `rate` is (receipts, µs).
    `whole` is the request (header lines as stored, bytes) when it is not one message.
    """

    receipt: ReceiptId
    source: SourceId
    version: int
    tenant: TenantId
    app: AppId
    parts: tuple[Part, ...]
    nonce: str | None
    keep_us: int
    rate: tuple[int, int] | None
    event_type: str
    event_id: str | None
    method: str
    address: str | None
    size: int
    whole: tuple[str, bytes] | None = None


class Stored(msgspec.Struct, frozen=True):
    """It is committed, under this id."""

    receipt: ReceiptId


class Repeated(msgspec.Struct, frozen=True):
    """It was committed before, under this id; nothing new happens."""

    receipt: ReceiptId


class Stale(msgspec.Struct, frozen=True):
    """The source changed since it was verified: judge it again."""


class Limited(msgspec.Struct, frozen=True):
    """The source's rate is used up for so many microseconds."""

    wait_us: int


class Replayed(msgspec.Struct, frozen=True):
    """Its signature was accepted before, under another event id."""


class Orphaned(msgspec.Struct, frozen=True):
    """The source's application was deleted."""


Answer: TypeAlias = "Stored | Repeated | Stale | Limited | Replayed | Orphaned"


@dataclass(slots=True, kw_only=True, eq=False)
class _Case:
    item: Item
    stored: bool = False
    answer: Answer | None = None
    fresh: list[Part] = field(default_factory=list[Part])


def receive_batch(
    tx: Tx,
    items: Sequence[Item],
    accept: Accept,
    *,
    unknown: Collection[ReceiptId] = (),
) -> list[Answer]:
    """Store requests in this transaction; one answer for each, refusals as values.

    `accept` accepts their messages in the same transaction. `unknown`: those of an
    earlier try whose COMMIT went unanswered. Raises what the database raises, and what
    a message is refused for: then nothing of the batch may be committed.
    """
    stored = _stored(tx, unknown)
    cases = [_Case(item=item, stored=item.receipt in stored) for item in items]
    _check_sources(tx, cases)
    _charge_rates(tx, cases)
    _take_keys(tx, cases)
    _make_messages(cases, accept)
    _insert(tx, [case for case in cases if case.answer is None])
    return [case.answer or Stored(case.item.receipt) for case in cases]


def _stored(tx: Tx, ids: Collection[ReceiptId]) -> set[str]:
    if not ids:
        return set()
    asked, params = tx.rows("b", {"id": "text"}, [(id_,) for id_ in sorted(ids)])
    found = tx.all(f"SELECT r.id FROM {asked} JOIN receipt r ON r.id = b.id", params)
    return {row.id for row in found}


def _open(cases: Sequence[_Case]) -> list[_Case]:
    return [case for case in cases if case.answer is None]


def _check_sources(tx: Tx, cases: Sequence[_Case]) -> None:
    ids = sorted({case.item.source for case in cases})
    asked, params = tx.rows("b", {"id": "text"}, [(id_,) for id_ in ids])
    found = tx.all(
        f"SELECT s.id, s.version FROM {asked} JOIN source s ON s.id = b.id"
        " WHERE s.deleted_at IS NULL AND NOT s.disabled",
        params,
    )
    versions = {row.id: row.version for row in found}
    for case in cases:
        if case.stored:
            continue
        if versions.get(case.item.source) != case.item.version:
            case.answer = Stale()


def _charge_rates(tx: Tx, cases: Sequence[_Case]) -> None:
    """Hold sources to their rates by one instant each (GCRA), under the rows' locks."""
    limited = [
        case for case in _open(cases) if case.item.rate is not None and not case.stored
    ]
    if not limited:
        return
    ids = sorted({case.item.source for case in limited})
    nexts: dict[str, int] = {}
    for id_ in ids:
        # It waits for the row's lock and reads what its holder left.
        nexts[id_] = tx.scalar(
            "UPDATE source SET next_at = next_at WHERE id = :id RETURNING next_at",
            {"id": id_},
        )
    before = dict(nexts)
    for case in limited:
        if case.item.rate is None:
            raise InvariantViolated("a source without a rate is not limited")
        count, window = case.item.rate
        each = max(1, window // count)
        at = max(nexts[case.item.source], tx.now)
        early = at - tx.now - (window - each)
        if early > 0:
            case.answer = Limited(early)
        else:
            nexts[case.item.source] = at + each
    tx.update(
        tables.source,
        ("id",),
        {"id": "text", "next_at": "bigint"},
        [(id_, at) for id_, at in nexts.items() if at != before[id_]],
    )


# --- Keys --------------------------------------------------------------------------------


def _take_keys(tx: Tx, cases: Sequence[_Case]) -> None:
    """Take what must not arrive twice, and answer those that came second."""
    now = _open(cases)
    for case in now:
        case.fresh = list(case.item.parts)
    wanted = {
        (case.item.source, key): case.item
        for case in reversed(now)
        for key in _keys(case.item)
    }
    if not wanted:
        return
    records = [
        (*place, item.receipt, tx.now + item.keep_us)
        for place, item in sorted(wanted.items(), key=lambda pair: pair[0])
    ]
    names = ("source", "key", "receipt", "expires_at")
    inserted = tx.insert_records(
        tables.receipt_key, names, records, on_conflict="nothing"
    )
    taken: dict[tuple[str, str], str]
    if inserted == len(records):
        taken = {place: item.receipt for place, item in wanted.items()}
    else:
        taken = _holders(tx, wanted)
    for case in now:
        _judge(case, taken)
    here = {case.item.receipt: case for case in now}
    for case in now:
        match case.answer:
            case Repeated(receipt=first) if (
                first in here and here[first].answer is not None
            ):
                case.answer = Stale()  # what it repeats is not stored: judge it again
                _forget(tx, case.item)
            case Repeated(receipt=first):
                _point(tx, case.item, first)
            case Replayed():
                _forget(tx, case.item)
            case _:
                pass


def _keys(item: Item) -> list[str]:
    keys = [KEY + part.key for part in item.parts if part.key is not None]
    return keys if item.nonce is None else [*keys, NONCE + item.nonce]


def _holders(
    tx: Tx, wanted: dict[tuple[SourceId, str], Item]
) -> dict[tuple[str, str], str]:
    """Return whose each key is now; an expired one is taken over."""
    asked, params = tx.rows("b", {"source": "text", "key": "text"}, sorted(wanted))
    read = (
        f"SELECT k.source, k.key, k.receipt, k.expires_at FROM {asked}"
        " JOIN receipt_key k ON k.source = b.source AND k.key = b.key"
    )
    rows = tx.all(read, params)
    expired = [
        row
        for row in rows
        if row.expires_at <= tx.now
        and wanted[row.source, row.key].receipt != row.receipt
    ]
    for row in sorted(expired, key=lambda row: (row.source, row.key)):
        item = wanted[row.source, row.key]
        tx.run(
            "UPDATE receipt_key SET receipt = :receipt, expires_at = :until"
            " WHERE source = :source AND key = :key AND expires_at <= :now",
            {
                "receipt": item.receipt,
                "until": tx.now + item.keep_us,
                "source": row.source,
                "key": row.key,
                "now": tx.now,
            },
        )
    if expired or len(rows) < len(wanted):  # removed meanwhile: try those once more
        missing = wanted.keys() - {(row.source, row.key) for row in rows}
        tx.insert_records(
            tables.receipt_key,
            ("source", "key", "receipt", "expires_at"),
            [
                (*place, wanted[place].receipt, tx.now + wanted[place].keep_us)
                for place in sorted(missing)
            ],
            on_conflict="nothing",
        )
        rows = tx.all(read, params)
    return {(row.source, row.key): row.receipt for row in rows}


def _judge(case: _Case, taken: dict[tuple[str, str], str]) -> None:
    """Say of one request whether it is new, repeated or replayed."""
    item = case.item
    firsts = {
        part.key: taken[item.source, KEY + part.key]
        for part in item.parts
        if part.key is not None
    }
    case.fresh = _distinct(
        [
            part
            for part in item.parts
            if part.key is None or firsts[part.key] == item.receipt
        ]
    )
    earlier = [first for first in firsts.values() if first != item.receipt]
    signed = None if item.nonce is None else taken[item.source, NONCE + item.nonce]
    if signed is not None and signed != item.receipt:
        known = not firsts or signed in earlier
        case.answer = Repeated(ReceiptId(signed)) if known else Replayed()
    elif earlier and not case.fresh:
        case.answer = Repeated(ReceiptId(earlier[0]))


def _distinct(parts: Sequence[Part]) -> list[Part]:
    """Leave out what one request says twice."""
    seen: set[str] = set()
    kept: list[Part] = []
    for part in parts:
        if part.key is None or part.key not in seen:
            kept.append(part)
        if part.key is not None:
            seen.add(part.key)
    return kept


def _point(tx: Tx, item: Item, first: ReceiptId) -> None:
    """Let what a repeated request took name the first one.

    A provider signs each try anew: so a replay of this try is known as well.
    """
    for key in _keys(item):
        tx.run(
            "UPDATE receipt_key SET receipt = :first"
            " WHERE source = :source AND key = :key AND receipt = :mine",
            {
                "first": first,
                "source": item.source,
                "key": key,
                "mine": item.receipt,
            },
        )


def _forget(tx: Tx, item: Item) -> None:
    """Give back the keys of a request that is not stored."""
    for key in _keys(item):
        tx.run(
            "DELETE FROM receipt_key"
            " WHERE source = :source AND key = :key AND receipt = :mine",
            {"source": item.source, "key": key, "mine": item.receipt},
        )


# --- Rows --------------------------------------------------------------------------------


def _make_messages(cases: Sequence[_Case], accept: Accept) -> None:
    """Make the messages of what is new.

    Raises what one of them is refused for: its batch is run again in halves, and
    nothing of its own receipt may stay.
    """
    made = [
        AcceptItem(
            tenant=case.item.tenant,
            app_ref=case.item.app,
            message=part.message,
            id=part.id,
            verdicts=part.verdicts,
        )
        for case in _open(cases)
        for part in case.fresh
    ]
    if not made:
        return
    for answer in accept(made).answers:
        if isinstance(answer, TenureError):
            raise answer


def _insert(tx: Tx, cases: Sequence[_Case]) -> None:
    if not cases:
        return
    place = next_place(tx)
    records: list[tuple[Any, ...]] = []
    parts: list[tuple[Any, ...]] = []
    whole: list[tuple[Any, ...]] = []
    for case in cases:
        item = case.item
        one = case.fresh[0].id if item.whole is None else None
        records.append(
            (
                item.receipt,
                item.tenant,
                item.source,
                item.app,
                one,
                len(case.fresh),
                item.event_type,
                item.event_id,
                item.method,
                item.address,
                item.size,
                place,
                tx.now,
            )
        )
        if item.whole is not None:
            whole.append((item.receipt, *item.whole))
            parts += [(item.receipt, at, part.id) for at, part in enumerate(case.fresh)]
    tx.insert_records(tables.receipt, _RECEIPT, records, on_conflict="nothing")
    tx.insert_records(
        tables.receipt_part,
        ("receipt", "position", "message"),
        parts,
        on_conflict="nothing",
    )
    tx.insert_records(
        tables.receipt_body,
        ("receipt", "relay", "body"),
        whole,
        on_conflict="nothing",
    )

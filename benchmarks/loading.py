"""Large tables by set-based SQL: what a deployment has after months, in seconds."""

from __future__ import annotations

from typing import Final

from tenure.store.tx import Tx

SECOND_US: Final = 1_000_000
DAY_US: Final = 86_400 * SECOND_US
OVER: Final = frozenset({"succeeded", "dead", "cancelled"})


def series(tx: Tx) -> str:
    """Return a FROM item `g(i)` of the numbers 1 to :n."""
    if tx.dialect == "postgresql":
        return "generate_series(1, :n) AS g(i)"
    return (
        "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
        " WHERE i < :n) SELECT i FROM n) AS g"
    )


def load_work(
    tx: Tx,
    name: str,
    count: int,
    *,
    lane: str,
    kind: str = "test",
    state: str = "ready",
    phase: str | None = "due",
    priority: int = 2,
    due_in: int | None = 0,
) -> None:
    """Insert rows of work; `lane` is SQL over a row's number i, `due_in` µs from now."""
    tx.run(
        "INSERT INTO work (id, lane, kind, tenant, subject, state, phase, priority,"
        " due_at, created_at, settled_at)"
        f" SELECT {work_id(name)}, {lane}, '{kind}', 'default', {message_id(name)},"
        f" '{state}', {'NULL' if phase is None else repr(phase)}, {priority},"
        f" {'NULL' if due_in is None else tx.now + due_in}, {tx.now},"
        f" {tx.now if state in OVER else 'NULL'} FROM {series(tx)}",
        {"n": count},
    )


def work_id(name: str) -> str:
    """Return SQL for the id of row i of a load."""
    return f"'wrk_{name}' || (1000000000 + i)"


def message_id(name: str) -> str:
    """Return SQL for the id of the message of row i of a load."""
    return f"'msg_{name}' || (1000000000 + i)"


def load_lanes(tx: Tx, group: int, first: int, count: int, *, state: str) -> None:
    """Insert lanes `first` and on of a group, in this state."""
    tx.run(
        "INSERT INTO lane (id, kind, tenant, subject, needs, state, deadline_us,"
        f" created_at) SELECT {group << 24} + {first - 1} + i, 'test', 'default',"
        f" 'ep_' || i, 'test', '{state}', 15000000, {tx.now} FROM {series(tx)}",
        {"n": count},
    )


def load_messages(
    tx: Tx, name: str, count: int, *, app: str, endpoint: str, lane: str, kind: str
) -> None:
    """Insert messages with payload, delivery and due work.

    `endpoint` and `lane` are SQL over a row's number i.
    """
    blob = f"CAST('[]' AS {'bytea' if tx.dialect == 'postgresql' else 'BLOB'})"
    into = {
        "message (id, app, tenant, event_type, created_at)": (
            f"{message_id(name)}, '{app}', 'default', 'order.paid', {tx.now}"
        ),
        "payload (message, body, expires_at)": (
            f"{message_id(name)}, {blob}, {tx.now + 90 * DAY_US}"
        ),
        "delivery (message, endpoint, work, app, lane, created_at)": (
            f"{message_id(name)}, {endpoint}, {work_id(name)}, '{app}', {lane},"
            f" {tx.now}"
        ),
    }
    for table, values in into.items():
        text = f"INSERT INTO {table} SELECT {values} FROM {series(tx)}"
        tx.run(text, {"n": count})
    load_work(tx, name, count, lane=lane, kind=kind)

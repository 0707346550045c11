"""A database with some of everything, and ways to break each invariant of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tenure.clock import SystemClock
from tenure.ids import LaneId, NodeId, TenantId, WorkId, new_work_id
from tenure.outbox.keyring import KeyRing, new_key
from tenure.outbox.model import OutboxSettings
from tenure.outbox.outbox import Outbox
from tenure.schedules.ledger import controls, outcomes
from tenure.store import claims, nodes
from tenure.store.backend import Backend
from tenure.store.lanes import add_group, add_lane
from tenure.store.tx import Tx
from tests.inbox.conftest import make_inbox
from tests.inbox.world import hook, make_source, send
from tests.outbox.world import accept, make_app, make_endpoint
from tests.schedules.fleet import DAY_US, Fleet, definition, release
from tests.store.yard import SECOND, answer, retry

TENANT: Final = TenantId("default")
KIND: Final = "delivery"


@dataclass(frozen=True, slots=True, kw_only=True)
class Full:
    """What `fill` made: one row of each sort, by name, as parameters of statements."""

    lane: LaneId
    node: NodeId
    line: tuple[WorkId, ...]
    tried: WorkId
    held: WorkId
    message: str
    ring: KeyRing

    @property
    def params(self) -> dict[str, Any]:
        """Return the names that `BREAKS` uses."""
        return {
            "lane": self.lane,
            "node": self.node,
            "first": self.line[0],
            "second": self.line[1],
            "third": self.line[2],
            "tried": self.tried,
            "held": self.held,
            "message": self.message,
        }


async def receive(backend: Backend, outbox: Outbox, ring: KeyRing) -> None:
    """Make a source, which receives a request."""
    inbox = make_inbox(backend, outbox, ring)
    inbox.start()
    source = await make_source(inbox)
    assert (await send(inbox, source.path, hook("d-1"))).receipt is not None
    await inbox.aclose()


async def plan(backend: Backend) -> None:
    """Make a job with a window that a run stands for; the run has succeeded."""
    fleet = Fleet(backend)
    (job,) = (await fleet.start("jobs", release(definition("app:report")))).ids.values()

    def filled(tx: Tx) -> None:
        now = tx.now
        (run,) = controls.backfill(
            tx, job, since=now - DAY_US, until=now, actor="t", note=None
        )
        tx.run(
            "UPDATE work SET state = 'succeeded', phase = NULL, due_at = NULL,"
            " settled_at = :now WHERE subject = :run",
            {"now": now, "run": run},
        )
        outcomes.end(tx, [(run, "succeeded", None, now)])

    await backend.write(filled)
    await fleet.stop("jobs")


async def fill(backend: Backend) -> Full:
    """Make a message with its delivery, a line of three, a row tried and one held."""
    ring = KeyRing([new_key()])
    outbox = Outbox(backend, OutboxSettings(), ring, SystemClock())
    outbox.start()
    app = await make_app(outbox)
    await make_endpoint(outbox, app)
    accepted = await accept(outbox, app, key="once")
    await receive(backend, outbox, ring)
    await outbox.aclose()

    def work(tx: Tx) -> dict[str, Any]:
        lane = add_lane(
            tx,
            group=add_group(tx, TENANT),
            kind="test",
            tenant=TENANT,
            subject="ep_test",
            needs="test",
            deadline_us=15 * SECOND,
        )
        plain, ordered = [_new(lane), _new(lane)], [_new(lane, "k") for _ in range(3)]
        claims.submit(tx, plain)
        node = nodes.open_node(
            tx,
            name="n",
            host="h",
            pid=1,
            version="0",
            serves="test",
            lock_path=None,
        )
        walker = claims.Walker(node=node, serves=frozenset({"test"}))
        taken = walker.claim(tx, 2, busy={}, lane_max=9).claimed
        claims.settle(tx, [answer(taken[0], retry(tx.now + 900 * SECOND))], _KINDS)
        claims.submit(tx, ordered)
        return {
            "lane": lane,
            "node": node,
            "line": tuple(row.id for row in ordered),
            "tried": taken[0].work.id,
            "held": taken[1].work.id,
        }

    made = await backend.write(work)
    await plan(backend)
    return Full(**made, message=accepted.message.id, ring=ring)


class _Quiet:
    late_success = True

    def evidence(self, items: Any) -> tuple[()]:
        del items
        return ()

    def effects(self, items: Any) -> tuple[()]:
        del items
        return ()


_KINDS: Final = {"test": _Quiet()}


def _new(lane: LaneId, order_key: str | None = None) -> claims.NewWork:
    return claims.NewWork(
        id=new_work_id(),
        lane=lane,
        kind="test",
        tenant=TENANT,
        subject="x",
        order_key=order_key,
    )


BREAKS: Final[dict[str, tuple[str, ...]]] = {
    "job.lane": ("UPDATE job SET lane = -1",),
    "job.fired_to": (
        "UPDATE job_window SET mark = ''",
        "UPDATE job SET fired_to = 0",
    ),
    "job.spelling": ("UPDATE job_spelling SET job = 'job_none'",),
    "job_window.run": ("UPDATE job_window SET state = 'open', run = 'run_none'",),
    "job_run.work": ("UPDATE job_run SET state = 'open', work = 'wrk_none'",),
    "job_run.outcome": ("UPDATE work SET state = 'dead' WHERE kind = 'job'",),
    "work.row": ("UPDATE work SET settled_at = 1 WHERE id = :tried",),
    "work.evidence": ("DELETE FROM attempt WHERE work = :tried",),
    "work.holder": ("DELETE FROM node WHERE id = :node",),
    "work.lane": ("UPDATE work SET lane = 7 WHERE id = :tried",),
    "work.asleep": ("DELETE FROM order_line WHERE work = :third",),
    "work.delivery": ("DELETE FROM delivery WHERE message = :message",),
    "attempt.claim": (
        "UPDATE work SET claim = 0, tries = 0, failures = 0 WHERE id = :tried",
    ),
    "attempt.work": ("DELETE FROM work WHERE id = :tried",),
    "attempt.late": (
        "UPDATE attempt SET kind = 'delivery', late_outcome = 'succeeded'",
    ),
    "order.work": ("DELETE FROM work WHERE id = :third",),
    "order.counter": ("UPDATE order_head SET next_sequence = 1",),
    "order.front": (
        "UPDATE work SET phase = 'asleep', due_at = NULL WHERE id = :first",
    ),
    "order.passed": (
        (
            "UPDATE work SET state = 'cancelled', phase = NULL, due_at = NULL,"
            " settled_at = 1 WHERE id = :first"
        ),
    ),
    "order.turn": ("UPDATE work SET phase = 'due', due_at = 1 WHERE id = :second",),
    "order.blocked": (
        (
            "UPDATE work SET state = 'dead', phase = NULL, due_at = NULL,"
            " settled_at = 1, reason = 'status_404' WHERE id = :first"
        ),
    ),
    "delivery.work": ("UPDATE delivery SET lane = 7",),
    "delivery.message": ("DELETE FROM message",),
    "message.reason": ("DELETE FROM delivery",),
    "message.bytes": ("DELETE FROM payload",),
    "payload.message": ("DELETE FROM message",),
    "unmatched.message": (
        "INSERT INTO unmatched (message, reasons) VALUES ('msg_gone', '{}')",
    ),
    "exchange.attempt": (
        (
            "INSERT INTO exchange (work, claim, url, method, duration_us)"
            " VALUES ('wrk_gone', 1, 'https://x', 'POST', 1)"
        ),
    ),
    "idempotency.message": ("UPDATE idempotency SET subject = 'msg_gone'",),
    "endpoint.lane": ("UPDATE endpoint SET disabled = true",),
    "node.claims": (
        (
            "UPDATE node SET state = 'closed', closed_at = 1,"
            " closed_why = 'its lock was free'"
        ),
    ),
    "node.silent": ("UPDATE node SET beat_at = 1",),
    "node.stalled": ("UPDATE node SET tick_at = 1",),
    "work.overdue": (
        "UPDATE work SET due_at = 1 WHERE id = :tried",
        "UPDATE node SET started_at = 1",
    ),
    "lane.unmoved": (
        "UPDATE work SET due_at = 1 WHERE id = :first",
        "UPDATE node SET started_at = 1",
        "DELETE FROM work WHERE id = :held",
        "UPDATE attempt SET ended_at = 1",
    ),
    "schema.revision": ("UPDATE tenure_revision SET version_num = '0000'",),
    "schema.indexes": ("CREATE INDEX ix_theirs ON work (subject)",),
    "source.application": ("UPDATE source SET app = 'gone'",),
    "receipt.messages": ("UPDATE receipt SET message = NULL, messages = 3",),
    "receipt.bytes": ("UPDATE receipt SET message = NULL, messages = 0",),
    "receipt.part": (
        (
            "INSERT INTO receipt_part (receipt, position, message)"
            " VALUES ('rcpt_gone', 0, 'msg_gone')"
        ),
    ),
    "receipt.body": (
        (
            "INSERT INTO receipt_body (receipt, relay, body)"
            " SELECT 'rcpt_gone', '{}', body FROM payload LIMIT 1"
        ),
    ),
    "receipt.key": ("DELETE FROM receipt",),
    "refused.source": (
        (
            "INSERT INTO refused (id, tenant, source, reason, detail, status, method,"
            " query, headers, body, size, received_at) SELECT 'rfsd_1', 'default',"
            " 'src_gone', 'rate', '', 429, 'POST', '', body, body, 0, 1"
            " FROM payload LIMIT 1"
        ),
    ),
    "retention.backlog": ("UPDATE payload SET expires_at = 1",),
}
"""For each check, statements that break what it looks at in a full database."""

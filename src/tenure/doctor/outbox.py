"""Checks of the outbox: messages, deliveries, bytes, endpoints, what came back."""

from __future__ import annotations

from typing import Final

from tenure.doctor.model import Table
from tenure.doctor.pages import sql_check
from tenure.doctor.work import DEFECT, WORK

__all__ = ["CHECKS", "ENDPOINT"]

MESSAGE: Final = Table(name="message", alias="m", keys=(("id", "text"),))
PAYLOAD: Final = Table(name="payload", alias="p", keys=(("message", "text"),))
UNMATCHED: Final = Table(name="unmatched", alias="u", keys=(("message", "text"),))
DELIVERY: Final = Table(
    name="delivery", alias="d", keys=(("message", "text"), ("endpoint", "text"))
)
EXCHANGE: Final = Table(
    name="exchange", alias="e", keys=(("work", "text"), ("claim", "bigint"))
)
IDEMPOTENCY: Final = Table(
    name="idempotency", alias="i", keys=(("tenant", "text"), ("key", "text"))
)
ENDPOINT: Final = Table(name="endpoint", alias="t", keys=(("id", "text"),))

CHECKS: Final = (
    sql_check(
        "delivery.work",
        DELIVERY,
        "a delivery has its work row, in the same lane",
        """
        SELECT d.message, d.endpoint, d.work FROM delivery d
        LEFT JOIN work w ON w.id = d.work
        WHERE {scope} AND (w.id IS NULL OR w.lane <> d.lane)
        """,
        what="{0} is missing or of another lane",
        todo=DEFECT,
    ),
    sql_check(
        "delivery.message",
        DELIVERY,
        "a delivery has its message and its endpoint",
        """
        SELECT d.message, d.endpoint, d.work FROM delivery d WHERE {scope}
        AND (NOT EXISTS (SELECT 1 FROM message m WHERE m.id = d.message)
          OR NOT EXISTS (SELECT 1 FROM endpoint t WHERE t.id = d.endpoint))
        """,
        what="{0} delivers what is gone, or to what is gone",
        todo=DEFECT,
    ),
    sql_check(
        "work.delivery",
        WORK,
        "a delivery's work row is carried by a delivery, and never sleeps unordered",
        """
        SELECT w.id, w.state, w.phase FROM work w WHERE {scope}
        AND w.kind = 'delivery'
        AND ((w.phase = 'asleep' AND w.order_key IS NULL)
          OR NOT EXISTS (SELECT 1 FROM delivery d WHERE d.work = w.id))
        """,
        what="{0} ({1}), and nobody refers to it or will wake it",
        todo=DEFECT,
    ),
    sql_check(
        "message.reason",
        MESSAGE,
        "an accepted message has a delivery or the reason why none",
        """
        SELECT m.id, m.app FROM message m WHERE {scope}
        AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.message = m.id)
        AND NOT EXISTS (SELECT 1 FROM unmatched u WHERE u.message = m.id)
        """,
        what="of application {0}",
        todo=DEFECT,
    ),
    sql_check(
        "message.bytes",
        MESSAGE,
        "an accepted message has its bytes, or says when they were removed",
        """
        SELECT m.id, m.app FROM message m WHERE {scope}
        AND NOT EXISTS (SELECT 1 FROM payload p WHERE p.message = m.id)
        """,
        what="of application {0}",
        todo=DEFECT,
    ),
    sql_check(
        "payload.message",
        PAYLOAD,
        "bytes belong to a message",
        """
        SELECT p.message FROM payload p WHERE {scope}
        AND NOT EXISTS (SELECT 1 FROM message m WHERE m.id = p.message)
        """,
        what="bytes of a message that is gone",
        todo=DEFECT,
    ),
    sql_check(
        "unmatched.message",
        UNMATCHED,
        "reasons belong to a message",
        """
        SELECT u.message FROM unmatched u WHERE {scope}
        AND NOT EXISTS (SELECT 1 FROM message m WHERE m.id = u.message)
        """,
        what="reasons of a message that is gone",
        todo=DEFECT,
    ),
    sql_check(
        "exchange.attempt",
        EXCHANGE,
        "what came back belongs to an attempt",
        """
        SELECT e.work, e.claim, e.status_code FROM exchange e WHERE {scope}
        AND NOT EXISTS (SELECT 1 FROM attempt a
          WHERE a.work = e.work AND a.claim = e.claim)
        """,
        what="status {0} of an attempt that is gone",
        todo=DEFECT,
    ),
    sql_check(
        "idempotency.message",
        IDEMPOTENCY,
        "a key that was used for a message names one that exists",
        """
        SELECT i.tenant, i.key, i.subject FROM idempotency i WHERE {scope}
        AND i.subject LIKE 'msg\\_%' ESCAPE '\\'
        AND NOT EXISTS (SELECT 1 FROM message m WHERE m.id = i.subject)
        """,
        what="{0} is gone",
        todo=DEFECT,
    ),
    sql_check(
        "endpoint.lane",
        ENDPOINT,
        "an endpoint's lane exists and is as closed as the endpoint is",
        """
        SELECT t.id, t.lane, l.state, t.disabled FROM endpoint t
        LEFT JOIN lane l ON l.id = t.lane WHERE {scope}
        AND (l.id IS NULL
          OR (t.deleted_at IS NULL AND l.state = 'deleted')
          OR (t.deleted_at IS NULL AND t.disabled AND l.state = 'open'))
        """,
        what="lane {0} is {1}, the endpoint's `disabled` {2}",
        todo="save the endpoint again (disable and enable it), which writes both",
    ),
)

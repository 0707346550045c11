"""Checks of the inbox: sources, receipts, what makes them the only ones, refusals."""

from __future__ import annotations

from typing import Final

from tenure.doctor.model import Table
from tenure.doctor.pages import sql_check
from tenure.doctor.work import DEFECT

__all__ = ["CHECKS"]

SOURCE: Final = Table(name="source", alias="s", keys=(("id", "text"),))
RECEIPT: Final = Table(name="receipt", alias="r", keys=(("id", "text"),))
PART: Final = Table(
    name="receipt_part", alias="p", keys=(("receipt", "text"), ("position", "bigint"))
)
BODY: Final = Table(name="receipt_body", alias="b", keys=(("receipt", "text"),))
KEY: Final = Table(
    name="receipt_key", alias="k", keys=(("source", "text"), ("key", "text"))
)
REFUSED: Final = Table(name="refused", alias="f", keys=(("id", "text"),))

CHECKS: Final = (
    sql_check(
        "source.application",
        SOURCE,
        "a source that receives has its application",
        """
        SELECT s.id, s.app FROM source s WHERE {scope} AND s.deleted_at IS NULL
        AND NOT EXISTS (SELECT 1 FROM application a
          WHERE a.id = s.app AND a.tenant = s.tenant AND a.deleted_at IS NULL)
        """,
        what="makes messages for {0}, which is gone",
        todo="delete the source: its senders are told 410 already",
    ),
    sql_check(
        "receipt.messages",
        RECEIPT,
        "a receipt that became several messages names each of them",
        """
        SELECT r.id, r.messages FROM receipt r WHERE {scope}
        AND r.message IS NULL AND r.messages <> (SELECT count(*)
          FROM receipt_part p WHERE p.receipt = r.id)
        """,
        what="became {0} messages, and names others",
        todo=DEFECT,
    ),
    sql_check(
        "receipt.bytes",
        RECEIPT,
        "a receipt that did not become one message has its own bytes",
        """
        SELECT r.id, r.source FROM receipt r WHERE {scope} AND r.message IS NULL
        AND NOT EXISTS (SELECT 1 FROM receipt_body b WHERE b.receipt = r.id)
        """,
        what="of source {0}",
        todo=DEFECT,
    ),
    sql_check(
        "receipt.part",
        PART,
        "a part belongs to a receipt",
        """
        SELECT p.receipt, p.position FROM receipt_part p WHERE {scope}
        AND NOT EXISTS (SELECT 1 FROM receipt r WHERE r.id = p.receipt)
        """,
        what="a part of a receipt that is gone",
        todo=DEFECT,
    ),
    sql_check(
        "receipt.body",
        BODY,
        "bytes of a request belong to a receipt",
        """
        SELECT b.receipt FROM receipt_body b WHERE {scope}
        AND NOT EXISTS (SELECT 1 FROM receipt r WHERE r.id = b.receipt)
        """,
        what="bytes of a receipt that is gone",
        todo=DEFECT,
    ),
    sql_check(
        "receipt.key",
        KEY,
        "an event id or nonce that counts was used by a receipt that is stored",
        """
        SELECT k.source, k.key, k.receipt FROM receipt_key k WHERE {scope}
        AND NOT EXISTS (SELECT 1 FROM receipt r WHERE r.id = k.receipt)
        """,
        what="was used by {0}, which is not there",
        todo=DEFECT,
    ),
    sql_check(
        "refused.source",
        REFUSED,
        "a refused request was refused by a source",
        """
        SELECT f.id, f.source FROM refused f WHERE {scope}
        AND NOT EXISTS (SELECT 1 FROM source s WHERE s.id = f.source)
        """,
        what="of source {0}, which never was",
        todo=DEFECT,
    ),
)

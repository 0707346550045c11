"""The periodic pass: what was left behind or has passed its time, in bounded batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.limits import CANCEL_BATCH_ROWS
from tenure.outbox.ledger import deleting, keys, remembering

if TYPE_CHECKING:
    from collections.abc import Collection

    from tenure.ids import KeyId
    from tenure.store.tx import Tx


def sweep(tx: Tx, used_keys: Collection[KeyId], limit: int = CANCEL_BATCH_ROWS) -> int:
    """End up to `limit` rows of each sort; return how many rows were touched.

    Due work of deleted endpoints, and idempotency keys past their time. Also
    writes down which API keys were used since the last pass.
    """
    keys.note_used(tx, used_keys)
    return (
        deleting.sweep_deleted_lanes(tx, limit)
        + deleting.clear_deleted(tx, limit)
        + remembering.expire(tx, limit)
    )

"""What must be true of a database after any scenario: what `tenure doctor` looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.doctor import examine_snapshot

if TYPE_CHECKING:
    from tenure.store.tx import Tx


def faults(tx: Tx) -> list[str]:
    """Return each invariant that does not hold, with a row that shows it."""
    return [
        f"{fault.invariant}: {' '.join(fault.where)}"
        for fault in examine_snapshot(tx).faults
    ]

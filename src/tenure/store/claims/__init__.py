"""The verbs that change work rows: the sole writer of claim columns.

submit · claim (`Walker`) · settle · release · lose (`sweep`) · wake · cancel · replay,
each a plain function over a `Tx`, for both databases.
"""

from tenure.store.claims.bearing import Birth
from tenure.store.claims.effects import (
    Effect,
    Insert,
    KindSql,
    Over,
    Settled,
    Write,
    perform,
)
from tenure.store.claims.holding import (
    Claim,
    Reconciled,
    isolate,
    mingle,
    reconcile,
    release,
)
from tenure.store.claims.operators import cancel, cancel_lane, replay, wake
from tenure.store.claims.parking import (
    HELD,
    HeldBatch,
    cancel_held,
    hold_open,
    let_go,
)
from tenure.store.claims.removing import lock_ended, remove
from tenure.store.claims.settling import settle
from tenure.store.claims.submitting import NewWork, submit
from tenure.store.claims.sweeping import (
    CERTAIN,
    DRAINED,
    OPERATOR,
    SILENCE,
    LostRow,
    SweepRule,
    sweep,
)
from tenure.store.claims.taking import Claimed, ClaimResult, Walker, promote

__all__ = [
    "CERTAIN",
    "DRAINED",
    "HELD",
    "OPERATOR",
    "SILENCE",
    "Birth",
    "Claim",
    "ClaimResult",
    "Claimed",
    "Effect",
    "HeldBatch",
    "Insert",
    "KindSql",
    "LostRow",
    "NewWork",
    "Over",
    "Reconciled",
    "Settled",
    "SweepRule",
    "Walker",
    "Write",
    "cancel",
    "cancel_held",
    "cancel_lane",
    "hold_open",
    "isolate",
    "let_go",
    "lock_ended",
    "mingle",
    "perform",
    "promote",
    "reconcile",
    "release",
    "remove",
    "replay",
    "settle",
    "submit",
    "sweep",
    "wake",
]

"""Filters and transforms: CEL expressions over a message, bounded in every way.

Theory. CEL has no loops and no I/O, but macros over lists multiply, and one call of the
library holds the interpreter until it returns. So an expression that cannot be long (it
calls only what is known to be quick, over a small body) runs where it is needed, in microseconds; every
other runs in a process of its own, which is killed past its bound. Nobody waits for it
inside of a transaction: what an accept cannot decide it answers with `Undecided`, the
verdict is found outside, and the accept is run again with it.
"""

from tenure.outbox.cel.evaluating import Evaluator
from tenure.outbox.cel.expressions import (
    Outcome,
    Verdict,
    check_filter,
    check_transform,
    evaluate,
    facts_of,
    is_short,
    verdict_of,
)

__all__ = [
    "Evaluator",
    "Outcome",
    "Verdict",
    "check_filter",
    "check_transform",
    "evaluate",
    "facts_of",
    "is_short",
    "verdict_of",
]

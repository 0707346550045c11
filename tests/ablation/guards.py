"""The guards, what is put in their place, and the tests that must notice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

Edit = tuple[str, str, str]
"""File below `src/tenure`, the guard's text (once in the file), its replacement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """One promise in the source. Each named test must go red without it."""

    name: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


MACHINE = "tests/simulation/test_kernel.py"

GUARDS: Final = (
    Guard(
        name="settle by id only",
        edits=(
            (
                "kernel/transitions.py",
                "return work.claim == claim and work.claimed_by == node",
                "return work.claimed_by is not None",
            ),
        ),
        tests=(MACHINE,),
    ),
    Guard(
        name="settle twice allowed",
        edits=(
            (
                "kernel/transitions.py",
                "        work,\n        claimed_by=None,\n        first_attempt_at=",
                "        work,\n        first_attempt_at=",
            ),
            (
                "kernel/transitions.py",
                "        due_at=None,\n        claimed_by=None,\n",
                "        due_at=None,\n",
            ),
        ),
        tests=(MACHINE,),
    ),
    Guard(
        name="holder cleared by lose",
        edits=(
            (
                "kernel/transitions.py",
                "    return replace(lost, losses=losses)",
                "    return replace(lost, losses=losses, claimed_by=None)",
            ),
        ),
        tests=(MACHINE,),
    ),
)

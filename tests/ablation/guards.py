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
SETTLING = "tests/store/claims/test_settling.py"
CLIENT = "tests/outbox/http/test_client.py"
DIAL = "tests/outbox/http/test_dial.py"
OTHER_BODY = "test_the_same_key_with_another_body_is_refused_and_stores_nothing"
ACCEPTING = "tests/outbox/ledger/test_accepting.py"
FOLLOW = """\
        for name, value in getattr(response, "headers", ()):
            if name.lower() == b"location":
                import msgspec
                from tenure.outbox.http.url import parse_url
                there = parse_url(value.strip().decode())
                follow = msgspec.structs.replace(request, url=there)
                return await self.send(follow, policy, before_write)
"""

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
    Guard(
        name="side effects for lost rows",
        edits=(
            (
                "store/claims/settling.py",
                "[item for item in mine if item.answer is Answer.APPLIED]",
                "mine",
            ),
        ),
        tests=(
            f"{SETTLING}::test_evidence_is_kept_for_late_answers_and_effects_are_not",
        ),
    ),
    Guard(
        name="body hash",
        edits=(
            (
                "outbox/ledger/remembering.py",
                "    if held.mark != use.mark:",
                "    if held.mark != use.mark and not use.mark:",
            ),
        ),
        tests=(f"{ACCEPTING}::{OTHER_BODY}",),
    ),
    Guard(
        name="address check at dial",
        edits=(
            (
                "outbox/http/dial.py",
                "reason = check_address(address, self._policy.allow_networks)",
                "reason = None",
            ),
            (
                "outbox/http/dial.py",
                "reason = check_address(peer, self._policy.allow_networks)",
                "reason = None",
            ),
        ),
        tests=(
            f"{DIAL}::test_a_name_that_turns_private_after_save_is_refused_at_dial",
        ),
    ),
    Guard(
        name="redirects on",
        edits=(
            (
                "outbox/http/client.py",
                "            connection.abort()\n        return response\n",
                "            connection.abort()\n"
                + FOLLOW
                + "        return response\n",
            ),
        ),
        tests=(f"{CLIENT}::test_a_redirect_is_not_followed_and_its_location_is_kept",),
    ),
)

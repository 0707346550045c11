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
SWEEPING = "tests/store/claims/test_sweeping.py"
LOCKS = "tests/interleaving/test_locks.py"
BATCHING = "tests/store/test_batching.py"
NODE = "tests/work/test_node.py"
NODES = "tests/cases/test_nodes.py"
SILENCE = "tests/interleaving/test_silence.py"
OTHER_BODY = "test_the_same_key_with_another_body_is_refused_and_stores_nothing"
RACES = "tests/interleaving/test_receiving.py"
RECEIVER = "tests/inbox/test_receiver.py"
TICKING = "tests/schedules/ledger/test_ticking.py"
FIRES = "tests/interleaving/test_ticking.py"
BETWEEN = "tests/interleaving/test_committing.py"
CHANGED = "test_a_source_that_changes_between_verification_and_commit_is_judged_again"
CHANGES = ("disabled-410-0", "rotated away-401-0", "deleted-404-0")
PULLING = "tests/inbox/pulling/test_puller.py"
UNUSED = "test_case_47_what_was_not_stored_uses_nothing_up"
ACCEPTING = "tests/outbox/ledger/test_accepting.py"
COMMITS = """\
    tx.conn.exec_driver_sql("COMMIT")
    tx.conn.exec_driver_sql("BEGIN")
"""
FOLLOW = """\
        for name, value in getattr(response, "headers", ()):
            if name.lower() == b"location":
                import msgspec
                from tenure.outbox.http.url import parse_url
                there = parse_url(value.strip().decode())
                follow = msgspec.structs.replace(request, url=there)
                return await self.send(follow, policy, before_write)
"""
BY_CLOCK = """\
        from tenure.clock import US
        from tenure.work.peers import Silent
        dead = int(answer.server) - round(self._durations.dead_after_seconds * US)
        silent = [
            Silent(node=other.id, beat=other.beat)
            for other in answer.beat.others
            if other.beat_at < dead
        ]
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
                "            connection.close()\n        return response\n",
                "            connection.close()\n"
                + FOLLOW
                + "        return response\n",
            ),
        ),
        tests=(f"{CLIENT}::test_a_redirect_is_not_followed_and_its_location_is_kept",),
    ),
    Guard(
        name="sweep without its condition",
        edits=(
            (
                "store/claims/sweeping.py",
                "        if work.state is not State.CLAIMED or not held:\n",
                "        if work is None or held is None:\n",
            ),
        ),
        tests=(f"{SWEEPING}::test_a_stale_decision_takes_nothing[sqlite]",),
    ),
    Guard(
        name="candidate and count in one statement",
        edits=(
            (
                "store/claims/taking.py",
                (
                    "    locked = lock_lanes(tx, tried) if tried else {}\n"
                    "    live = _live(tx, list(locked)) if locked else {}\n"
                ),
                (
                    "    live = _live(tx, tried) if tried else {}\n"
                    "    locked = lock_lanes(tx, tried) if tried else {}\n"
                ),
            ),
        ),
        tests=(
            (
                f"{LOCKS}::test_a_claim_that_commits_just_before_a_lanes_lock_is_counted"
                "_under_it[between-postgresql]"
            ),
        ),
    ),
    Guard(
        name="beat without reconciliation",
        edits=(
            (
                "work/beats.py",
                "        self._reconcile(current)\n",
                "",
            ),
        ),
        tests=(
            f"{NODE}::test_a_claim_that_only_the_database_knows_is_released[sqlite]",
        ),
    ),
    Guard(
        name="closing by clock",
        edits=(
            (
                "work/beats.py",
                (
                    "        silent = self._peers.beaten(\n"
                    "            answer.beat.others, server=answer.server,"
                    " now=self._clock.boottime()\n"
                    "        )\n"
                ),
                BY_CLOCK,
            ),
            ("work/beats.py", "server=server)", "server=str(tx.now))"),
        ),
        tests=(
            f"{SILENCE}::test_a_peer_whose_beats_look_an_hour_old_by_the_clock_is_not_closed[sqlite-forward]",
        ),
    ),
    Guard(
        name="suspect rule",
        edits=(
            (
                "work/loop.py",
                "[h for h in helds if h.claimed.work.losses >= SUSPECT_LOSSES]",
                "[h for h in helds if h.claimed.work.losses >= 10 * SUSPECT_LOSSES]",
            ),
        ),
        tests=(
            (
                f"{NODE}::test_a_suspect_waits_for_what_is_in_flight_and_others_wait_for_it"
                "[sqlite]"
            ),
            (
                f"{NODES}::test_case_05_a_row_that_kills_its_node_is_quarantined_and_spares"
                "_others[sqlite]"
            ),
        ),
    ),
    Guard(
        name="batch without halving",
        edits=(
            (
                "store/batching.py",
                "                if len(part) == 1 or _concerns_all(error):\n",
                "                if part:\n",
            ),
        ),
        tests=(
            f"{BATCHING}::test_only_the_bad_items_caller_sees_its_error",
            (
                f"{BATCHING}::test_a_batch_on_a_real_database_loses_only_its_bad_item"
                "[sqlite]"
            ),
        ),
    ),
    Guard(
        name="lock order",
        edits=(
            (
                "store/claims/rows.py",
                (
                    "    wanted = sorted(set(ids))\n    if not wanted:\n"
                    "        return {}\n    asked, params = tx.rows("
                    '"b", {"id": "text"}, [(id_,) for id_ in wanted])\n    found = tx.all(\n'
                    "        f\"SELECT {work_columns('w')}"
                ),
                (
                    "    wanted = list(dict.fromkeys(ids))\n    if not wanted:\n"
                    "        return {}\n    asked, params = tx.rows("
                    '"b", {"id": "text"}, [(id_,) for id_ in wanted])\n    found = tx.all(\n'
                    "        f\"SELECT {work_columns('w')}"
                ),
            ),
            ("store/claims/rows.py", 'f" ORDER BY w.id{lock}"', 'f"{lock}"'),
        ),
        tests=(
            (
                f"{LOCKS}::test_rows_that_two_transactions_ask_for_in_opposite_order"
                "_deadlock_nobody[by id-postgresql]"
            ),
        ),
    ),
    Guard(
        name="monotonic instead of boottime fence",
        edits=(
            (
                "work/fence.py",
                "Sent(boottime=self._clock.boottime(), ",
                "Sent(boottime=self._clock.monotonic(), ",
            ),
            (
                "work/fence.py",
                "booted = self._clock.boottime() - ",
                "booted = self._clock.monotonic() - ",
            ),
        ),
        tests=(
            (
                f"{NODES}::test_case_18_a_node_that_was_paused_starts_nothing_under_an_old"
                "_claim[sqlite-paused]"
            ),
        ),
    ),
    Guard(
        name="hand-over without the deadline check",
        edits=(
            (
                "work/attempts.py",
                " or held.too_late():\n",
                ":\n",
            ),
        ),
        tests=(
            (
                f"{NODE}::test_a_hand_over_that_comes_too_late_is_released_and_not_sent"
                "[sqlite]"
            ),
        ),
    ),
    Guard(
        name="silent node's rows lost before their deadline",
        edits=(
            (
                "store/claims/sweeping.py",
                " OR w.deadline_at <= :now OR ",
                " OR w.deadline_at > 0 OR w.deadline_at <= :now OR ",
            ),
        ),
        tests=(
            (
                f"{SWEEPING}::test_a_request_that_may_be_on_the_wire_is_not_taken_before"
                "_its_deadline[sqlite-silent]"
            ),
        ),
    ),
    Guard(
        name="hand-over by list instead of claim",
        edits=(
            (
                "store/claims/submitting.py",
                """\
        tx.insert_records(schema.work, names, [_born(each.work) for each in born])
        taken = {each.work.id for each in born}
        rows = [row for row in rows if row.id not in taken]
""",
                "        del names\n",
            ),
        ),
        tests=(
            (
                f"{RACES}::test_a_receipt_met_between_its_commit_and_its_hand_over_is"
                "_sent_once[born-sqlite-nobody]"
            ),
        ),
    ),
    Guard(
        name="nonce outside of the commit",
        edits=(
            (
                "inbox/receiver.py",
                "        most = sum(len(item.parts) for item in items)\n",
                """\
        most = sum(len(item.parts) for item in items)
        cases = [receiving._Case(item=item) for item in items]
        await self._known._backend.write(lambda tx: receiving._take_keys(tx, cases))
""",
            ),
        ),
        tests=(f"{RECEIVER}::{UNUSED}[sqlite]",),
    ),
    Guard(
        name="answer before the commit",
        edits=(
            (
                "inbox/receiver.py",
                "self._told(ready, await self._store(item))",
                "self._told(ready, _early(self._store(item), item.receipt))",
            ),
            (
                "inbox/receiver.py",
                "def _accepted(ready: Ready, receipt: ReceiptId) -> Reply:\n",
                """\
def _early(storing, receipt):
    import asyncio
    task = asyncio.ensure_future(storing)
    task.add_done_callback(lambda done: done.exception())
    return receiving.Stored(receipt)


def _accepted(ready: Ready, receipt: ReceiptId) -> Reply:
""",
            ),
        ),
        tests=(f"{RECEIVER}::{UNUSED}[sqlite]",),
    ),
    Guard(
        name="source's version only as it was remembered",
        edits=(
            (
                "inbox/ledger/receiving.py",
                "        if versions.get(case.item.source) != case.item.version:\n",
                "        if versions is None:\n",
            ),
        ),
        tests=tuple(f"{BETWEEN}::{CHANGED}[sqlite-{how}]" for how in CHANGES),
    ),
    Guard(
        name="committed receipts judged again",
        edits=(
            (
                "inbox/ledger/receiving.py",
                "    stored = _stored(tx, unknown)\n",
                "    stored: set[str] = set()\n    del unknown\n",
            ),
        ),
        tests=(
            (
                f"{BETWEEN}::test_what_is_committed_is_not_taken_back_by_a_change_before"
                "_its_answer[sqlite-after-200]"
            ),
        ),
    ),
    Guard(
        name="refused by what was remembered",
        edits=(
            (
                "inbox/receiver.py",
                "            if refused is not None and newer is ready:\n",
                "            if refused is not None:\n",
            ),
        ),
        tests=(
            f"{RECEIVER}::test_a_change_on_another_node_holds_for_the_next_request[sqlite]",
        ),
    ),
    Guard(
        name="acknowledged before the commit",
        edits=(
            (
                "inbox/pulling/puller.py",
                "                done = await self._receiver.take(",
                """\
                await pulled.acknowledge()
                done = await self._receiver.take(""",
            ),
        ),
        tests=(
            f"{PULLING}::test_what_is_acknowledged_is_in_the_database_by_then[sqlite]",
        ),
    ),
    Guard(
        name="one's slow expression rests for everybody",
        edits=(
            (
                "outbox/cel/evaluating.py",
                "        key = whose, text\n",
                '        key = "", text\n',
            ),
        ),
        tests=(
            (
                "tests/outbox/test_cel.py::test_one_application_s_slow_filter_does_not"
                "_rest_another_s[sqlite]"
            ),
        ),
    ),
    Guard(
        name="keys by loading order",
        edits=(
            (
                "naming/keys.py",
                'ordered = sorted(sharing, key=lambda item: (item.package or "", item.id))',
                "ordered = sharing",
            ),
        ),
        tests=("tests/naming/test_keys.py::test_no_order_of_loading_changes_a_key",),
    ),
    Guard(
        name="window without its unique key",
        edits=(
            (
                "schedules/ledger/ticking.py",
                "    return {(row[0], row[1], row[2]) for row in found}",
                "    del found\n    return {(w[0], w[1], w[2]) for w in windows}",
            ),
        ),
        tests=(
            f"{TICKING}::test_a_window_that_exists_already_is_passed_and_not_fired",
        ),
    ),
    Guard(
        name="advance and submit in two transactions",
        edits=(
            (
                "schedules/ledger/ticking.py",
                "    runs.add(tx, fresh)\n",
                COMMITS + "    runs.add(tx, fresh)\n",
            ),
        ),
        tests=(
            (
                f"{FIRES}::test_a_crash_at_every_statement_neither_loses_nor_doubles_the_"
                "window[sqlite-old ticks]"
            ),
        ),
    ),
    Guard(
        name="fired_to ignored",
        edits=(
            (
                "schedules/ledger/ticking.py",
                "    floor = max(row.fired_to or row.edited_at, row.edited_at)\n",
                "    floor = 0\n",
            ),
        ),
        tests=(
            (
                f"{TICKING}::test_what_has_fired_is_not_fired_again_although_its_window_is_"
                "gone"
            ),
        ),
    ),
    Guard(
        name="spelling looked up by text",
        edits=(
            (
                "naming/spellings.py",
                "for text in declared[coordinate]\n            if",
                "for text in ()\n            if",
            ),
        ),
        tests=(
            (
                "tests/schedules/ledger/test_catalogue.py::test_a_renamed_and_moved_job_keeps"
                "_its_windows_its_counters_and_its_runs"
            ),
        ),
    ),
    Guard(
        name="overlap by what runs say instead of live work",
        edits=(
            (
                "schedules/ledger/runs.py",
                " WHERE w.state IN ('ready', 'claimed') ORDER BY r.id",
                " ORDER BY r.id",
            ),
        ),
        tests=(
            (
                "tests/schedules/ledger/test_catalogue.py::test_case_64_a_run_that_was_lost_"
                "holds_no_window_up"
            ),
        ),
    ),
)

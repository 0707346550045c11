"""Adopting a copy: what differs is said, what waits can be held, let go or cancelled."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tenure.config import Settings
from tenure.engine import Engine
from tenure.telemetry.events import Event, Events
from tenure.testing.receivers import Receiving
from tests.cli.rig import Served, serving, tenure, tenure_json

APP = "shop"


def post(served: Served, path: str, body: object) -> Any:
    """Call the API as a sender would."""
    request = Request(  # noqa: S310 - http to loopback
        f"{served.url}/api/v1/{path}",
        data=json.dumps(body).encode(),
        headers={
            "authorization": f"Bearer {served.key}",
            "content-type": "application/json",
        },
    )
    with urlopen(request, timeout=30) as answer:  # noqa: S310
        return json.load(answer)


def send(served: Served) -> str:
    message = {"eventType": "invoice.paid", "payload": {"total": 12}}
    return post(served, f"app/{APP}/msg", message)["id"]


def copied(folder: Path, name: str = "copy") -> tuple[Path, tuple[str, ...]]:
    """Copy the folder's database beside itself, as an operator would."""
    source, target = folder / "tenure.db", folder / f"{name}.db"
    for suffix in ("", ".keys", "-wal"):
        if (folder / f"tenure.db{suffix}").exists():
            shutil.copyfile(f"{source}{suffix}", f"{target}{suffix}")
    return target, ("--database-url", f"sqlite:///{target}")


def test_a_database_that_is_no_copy_has_nothing_to_adopt(tmp_path: Path):
    database = ("--database-url", f"sqlite:///{tmp_path}/tenure.db")
    assert tenure("migrate", "apply", *database).code == 0
    done = tenure("adopt", *database)
    assert done.code == 0
    assert "nothing to adopt" in done.out
    assert tenure_json("held", "list", *database) == {"count": 0, "data": []}


def test_nothing_is_adopted_unasked(tmp_path: Path):
    database = ("--database-url", f"sqlite:///{tmp_path}/tenure.db")
    assert tenure("migrate", "apply", *database).code == 0
    assert tenure("adopt", *database).code == 0
    _, copy = copied(tmp_path)
    done = tenure("adopt", *copy)
    assert done.code == 1
    assert "--yes" in done.err
    assert "copied from" in done.err
    assert tenure_json("adopt", "--yes", *copy)["held"] == 0
    assert "nothing to adopt" in tenure("adopt", *copy).out


@pytest.mark.parametrize("verb", ["release", "cancel"])
def test_what_waited_in_a_copy_is_held_while_new_messages_go_out(
    tmp_path: Path, receiver: Receiving, verb: str
):
    with serving(tmp_path, TENURE_SENDING="off") as original:
        post(original, "app", {"name": "Shop", "uid": APP})
        post(original, f"app/{APP}/endpoint", {"url": receiver.url})
        old = [send(original) for _ in range(3)]
    target, copy = copied(tmp_path)
    done = tenure_json("adopt", "--held", "--yes", *copy)
    assert done["held"] == 3
    assert "copied from" in done["differed"]
    listed = tenure_json("held", "list", *copy)
    assert {row["message"] for row in listed["data"]} == set(old)
    with serving(tmp_path, TENURE_DATABASE_URL=f"sqlite:///{target}") as own:
        new = send(own)
        receiver.wait(1)
        none = tenure_json("held", verb, "--dry-run", "--app", "app_x", *copy)
        assert none["count"] == 0
        assert tenure_json("held", verb, "--dry-run", *copy)["count"] == 3
        assert tenure_json("held", verb, "--yes", *copy)["count"] == 3
        expected = 4 if verb == "release" else 1
        ids = {request.message_id for request in receiver.wait(expected)}
        assert ids == ({*old, new} if verb == "release" else {new})
        assert tenure_json("held", "list", *copy)["count"] == 0


def test_a_copy_that_runs_sends_once_it_is_adopted_without_a_restart(
    tmp_path: Path, receiver: Receiving
):
    with serving(tmp_path, TENURE_SENDING="off") as original:
        post(original, "app", {"name": "Shop", "uid": APP})
        post(original, f"app/{APP}/endpoint", {"url": receiver.url})
        waiting = send(original)
    target, copy = copied(tmp_path)
    url = f"sqlite:///{target}"
    with serving(
        tmp_path, TENURE_DATABASE_URL=url, TENURE_TEST_TIME_FACTOR="20"
    ) as own:
        fresh = send(own)
        shown = tenure("nodes", "list", *own.access)
        assert shown.code == 0
        assert receiver.requests == [], "a copy sends nothing"
        assert tenure_json("adopt", "--yes", *copy)["held"] == 0
        ids = {request.message_id for request in receiver.wait(2)}
        assert ids == {waiting, fresh}


def test_the_first_node_after_an_adoption_says_so_once(tmp_path: Path):
    database = ("--database-url", f"sqlite:///{tmp_path}/tenure.db")
    assert tenure("migrate", "apply", *database).code == 0
    assert tenure("adopt", *database).code == 0
    target, copy = copied(tmp_path)
    assert tenure_json("adopt", "--yes", *copy)["held"] == 0

    async def told() -> list[int]:
        settings = Settings(database_url=f"sqlite:///{target}")
        events, counts = Events(), []
        async with Engine(settings, works=False, events=events):
            counts.append(events.count(Event.ADOPTED))  # a command is no node
        for _ in range(2):
            async with Engine(settings, events=events):
                counts.append(events.count(Event.ADOPTED))
        return counts

    assert asyncio.run(told()) == [0, 1, 1]


def test_a_database_without_tables_is_no_fault_of_tenures(tmp_path: Path):
    (tmp_path / "empty.db").touch()
    done = tenure("adopt", "--yes", "--database-url", f"sqlite:///{tmp_path}/empty.db")
    assert "no Tenure tables" in done.err
    assert done.code == 1

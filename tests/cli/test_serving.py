import http.client
import os
import signal
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tenure.outbox.keyring import new_key
from tenure.testing import Reply
from tenure.testing.receivers import Receiving
from tests.cli.rig import (
    LOOPBACK,
    Served,
    run,
    running,
    serving,
    tenure,
    tenure_json,
    until,
)
from tests.databases import PostgresServer

SERVE = ("serve", "--port", "0", "--json", "--log-level", "error")


def get(url: str, path: str, **headers: str) -> int:
    host = url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=10)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def test_the_first_start_makes_everything_and_prints_a_key_once(tmp_path: Path):
    with running(tmp_path, *SERVE) as first:
        key: str = first.event("key")["key"]
        url: str = first.event("listening")["url"]
        assert get(url, "/api/v1/health") == 200
        assert tenure("keys", "list", "--server", url, "--key", key).code == 0
        first.signal()
        assert first.ended() == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tenure.db", "tenure.db.keys"]
    assert stat.S_IMODE((tmp_path / "tenure.db.keys").stat().st_mode) == 0o600
    assert key.encode() not in (tmp_path / "tenure.db").read_bytes()
    with running(tmp_path, *SERVE) as second:
        second.event("keys_exist")
        url = second.event("listening")["url"]
        assert tenure("keys", "list", "--server", url, "--key", key).code == 0
        assert not any('"key"' in line for line in second.lines)


def test_people_read_what_it_does_and_what_a_stop_may_take(tmp_path: Path):
    with running(tmp_path, "serve", "--port", "0", *LOOPBACK) as command:
        command.wait_for(lambda: "listening on http" in "\n".join(command.lines))
        command.signal(signal.SIGINT)
        assert command.ended() == 0
        text = "\n".join(command.lines)
    assert "API key, shown this once: tnr_" in text
    assert "stopping: nothing is in flight, then 5 s for results to be written" in text
    assert "stopped in" in text


def slow(served: Served, receiver: Receiving, seconds: float) -> str:
    """Have one request in flight at a receiver that takes long to answer."""
    receiver.answer(Reply(delay_seconds=seconds))
    options = ("--wait-seconds", "0", "--json", *served.access)
    sent: dict[str, Any] = tenure("send", receiver.url, "{}", *options).json()
    receiver.wait(1)
    return str(sent["message"])


def test_sigterm_lets_what_is_in_flight_finish_and_records_it(
    tmp_path: Path, receiver: Receiving
):
    with serving(tmp_path) as served:
        message = slow(served, receiver, 1.0)
        served.command.signal()
        budgets = served.command.event("stopping")
        assert 0 < budgets["budget_seconds"] <= 15
        assert served.command.ended() == 0
        done = served.command.event("stopped")
        assert (done["finished"], done["cut"]) == (1, 0)
        found = tenure_json("explain", message, *served.database)
    assert found["deliveries"][0]["state"] == "succeeded"
    assert len(receiver.requests) == 1


def test_a_second_signal_cuts_at_once_and_the_message_is_kept(
    tmp_path: Path, receiver: Receiving
):
    with serving(tmp_path) as served:
        message = slow(served, receiver, 30.0)
        served.command.signal()
        served.command.event("stopping")
        served.command.signal()
        assert served.command.ended() == 0
        assert served.command.event("stopped")["cut"] == 1
        found = tenure_json("explain", message, *served.database)
    [delivery] = found["deliveries"]
    assert delivery["state"] == "ready"
    assert [a["outcome"] for a in delivery["attempts"]] == ["cut"]


def test_a_killed_server_goes_on_where_it_was(tmp_path: Path, receiver: Receiving):
    with serving(tmp_path) as served:
        slow(served, receiver, 30.0)
        served.command.signal(signal.SIGKILL)
        served.command.ended()
    receiver.answer(Reply())
    with serving(tmp_path):
        receiver.wait(2, seconds=30)
    assert len({request.message_id for request in receiver.requests}) == 1


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_port_that_is_taken_is_refused(
    tmp_path: Path, served: Served, processes: str
):
    port = served.url.rpartition(":")[2]
    done = run(tmp_path, "serve", "--port", port, "--processes", processes)
    assert done.code == 2
    assert f"port {port} of 127.0.0.1 is taken" in done.err
    assert "Traceback" not in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_key_ring_that_is_gone_or_another_is_refused(tmp_path: Path):
    with serving(tmp_path) as served:
        served.command.signal()
        served.command.ended()
    (tmp_path / "tenure.db.keys").unlink()
    checked = tenure("config", "check", *served.database)
    assert checked.code == 2
    assert "wrong_key_ring" in checked.err
    done = run(tmp_path, "serve", "--port", "0")
    assert done.code == 2
    assert "tenure.db.keys is missing" in done.err
    assert not (tmp_path / "tenure.db.keys").exists()
    other = run(tmp_path, "serve", "--port", "0", TENURE_SECRET_KEYS=new_key())
    assert other.code == 2
    assert "do not open this database" in other.err


def test_settings_come_from_flags_environment_and_file(tmp_path: Path):
    (tmp_path / "tenure.toml").write_text(
        'database_url = "sqlite:///from-file.db"\n', encoding="utf-8"
    )
    with serving(tmp_path, "--payload-max-bytes", "100", TENURE_SENDING="off") as own:
        done = tenure("send", "https://example.com", "{}", *own.access)
        assert done.code == 69
        assert "waits: off by deployment policy" in done.out
        large = tenure("send", "https://example.com", "x" * 200, *own.access)
        assert large.code == 1
        assert "payload_too_large" in large.err
    assert (tmp_path / "from-file.db").exists()


def listeners(parent: psutil.Process) -> set[int]:
    """Return the children that listen to the port."""
    found: set[int] = set()
    for child in parent.children():
        with suppress(psutil.NoSuchProcess):
            states = {connection.status for connection in child.net_connections()}
            if psutil.CONN_LISTEN in states:
                found.add(child.pid)
    return found


def test_several_processes_share_a_port_and_one_that_dies_comes_back(
    tmp_path: Path, receiver: Receiving
):
    with serving(tmp_path, "--processes", "2") as served:
        parent = psutil.Process(served.command.process.pid)
        first = until(lambda: len(listeners(parent)) == 2 and listeners(parent))
        victim, other = first
        os.kill(victim, signal.SIGKILL)
        second = until(
            lambda: listeners(parent) - {victim, other} and listeners(parent),
            "another process",
        )
        assert other in second
        assert any("ended with SIGKILL" in line for line in served.command.errors)
        assert tenure("send", receiver.url, "{}", *served.access).code == 0
        served.command.signal()
        assert served.command.ended() == 0
        assert tenure_json("nodes", "list", *served.database) == []
    assert not any(psutil.pid_exists(pid) for pid in second)


def test_a_parent_that_is_killed_leaves_no_process_behind(tmp_path: Path):
    with serving(tmp_path, "--processes", "2") as served:
        nodes = until(lambda: tenure_json("nodes", "list", *served.access))
        children = psutil.Process(served.command.process.pid).children()
        assert nodes
        served.command.signal(signal.SIGKILL)
        served.command.ended()
        _, alive = psutil.wait_procs(children, timeout=30)
        assert alive == []
        assert tenure_json("nodes", "list", *served.database) == []


def test_postgresql_without_a_key_ring_is_refused_with_a_fresh_key_to_set(
    tmp_path: Path, postgres_server: PostgresServer, postgres_database: str
):
    url = postgres_server.database_by_port(postgres_database)
    serve = ("serve", "--port", "0", "--database-url", url)
    done = run(tmp_path, *serve)
    assert done.code == 2
    assert "TENURE_SECRET_KEYS is not set" in done.err
    asked = run(tmp_path, "messages", "list", "--database-url", url)
    assert asked.code == 2
    assert "--key or TENURE_API_KEY asks the server" in asked.err
    key = done.err.split("keep it safe: ")[1].split()[0]
    with running(tmp_path, *serve, "--json", env={"TENURE_SECRET_KEYS": key}) as server:
        server.event("listening")
        server.signal()
        assert server.ended() == 0
    assert list(tmp_path.iterdir()) == []

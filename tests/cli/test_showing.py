import base64
import http.client
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.cli.rig import Command, environment, running, until

DEMO = ("demo", "--json", "--port")


def page(url: str, key: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
    try:
        token = base64.b64encode(f"anyone:{key}".encode()).decode()
        connection.request("GET", "/", headers={"authorization": f"Basic {token}"})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def stopped(command: Command) -> None:
    command.signal(signal.SIGINT)
    assert command.ended() == 0
    assert "Traceback" not in "".join(command.errors)


def test_the_demo_delivers_shows_and_leaves_only_its_files(tmp_path: Path):
    with running(tmp_path, *DEMO, "0") as demo:
        started = demo.event("started")
        summary = demo.event("summary")
        assert summary["delivered"] > 0
        assert summary["bad_signatures"] == 0
        assert summary["failed_attempts"] > 0
        status, text = page(started["url"], started["key"])
        assert status == 200
        assert "/failing" in text
        assert page(started["url"], "wrong")[0] == 401
        stopped(demo)
        assert "what is left" in "".join(demo.errors)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["tenure-demo.db", "tenure-demo.db.keys"]


def test_it_runs_again_in_the_same_folder_and_the_old_key_is_over(tmp_path: Path):
    with running(tmp_path, *DEMO, "0", "--seconds", "1") as first:
        old = first.event("started")["key"]
        stopped(first)
    with running(tmp_path, *DEMO, "0") as second:
        started = second.event("started")
        assert page(started["url"], old)[0] == 401
        assert page(started["url"], started["key"])[0] == 200
        assert second.event("summary")["delivered"] > 0
        stopped(second)


def test_a_port_that_is_taken_is_said_and_the_next_one_is_used(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with running(tmp_path / "a", *DEMO, "0") as first:
        port = int(first.event("started")["url"].rpartition(":")[2])
        with running(tmp_path / "b", *DEMO, str(port)) as second:
            url = second.event("started")["url"]
            assert int(url.rpartition(":")[2]) > port
            assert f"port {port} is taken" in "".join(second.errors)
            stopped(second)
        stopped(first)


def test_people_see_an_address_a_login_and_figures(tmp_path: Path):
    with running(tmp_path, "demo", "--port", "0") as demo:
        demo.wait_for(lambda: any("accepted" in line for line in demo.lines))
        text = "\n".join(demo.lines)
        stopped(demo)
    assert "page      http://127.0.0.1:" in text
    assert "password  tnr_" in text
    assert "signatures hold" in text


def test_a_demo_that_is_killed_can_be_started_again(tmp_path: Path):
    process = subprocess.Popen(
        [sys.executable, "-m", "tenure.cli", *DEMO, "0"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    file = tmp_path / "tenure-demo.db"

    def messages() -> int:
        if not file.exists():
            return 0
        connection = sqlite3.connect(file)
        try:
            found: int = connection.execute("SELECT count(*) FROM message").fetchone()[
                0
            ]
        except sqlite3.OperationalError:
            return 0
        else:
            return found
        finally:
            connection.close()

    until(lambda: messages() > 2, "messages of the demo")
    process.kill()
    process.wait()
    before = messages()
    with running(tmp_path, *DEMO, "0") as again:
        assert again.event("summary")["delivered"] > 0
        stopped(again)
    assert messages() > before

"""Every command and program of the README runs as it is written there.

`uv run X` is X of this environment: installing it again would test the network.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.testing.receivers import receiving
from tests.cli.rig import KEY, LOOPBACK, PATIENCE, Done, environment, serving, until
from tests.databases import PostgresServer
from tests.tidy.checkout import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
SCRIPTS = Path(sys.executable).parent

DEMO = "pip install uv && uv run tenure demo"
TEST = "pip install uv && uv run just test"
DEBIAN = "pip install --break-system-packages uv"
INSTALL = "pip install uv"
SERVE = "uv run tenure serve"
SEND = "uv run tenure send https://example.com/hook '{\"hello\":1}'"
ALLOW = "uv run tenure serve --allow-networks 127.0.0.0/8"
POSTGRESQL = (
    "export TENURE_DATABASE_URL=postgresql://tenure@localhost/tenure",
    "export TENURE_SECRET_KEYS=$(uv run tenure key new)",
    "uv run tenure serve --processes 4",
)
TESTED_BELOW = {DEMO, TEST, DEBIAN, INSTALL, SERVE, SEND, ALLOW, *POSTGRESQL}


def commands() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


def words(command: str) -> list[str]:
    """Return the words after `uv run`, with the script of this environment."""
    name, *rest = shlex.split(command.rpartition("uv run ")[2])
    return [str(SCRIPTS / name), *rest]


def test_every_command_is_tested_here():
    assert set(commands()) == TESTED_BELOW


def test_the_three_commands_stand_in_one_block():
    assert f"```sh\n{INSTALL}\n{SERVE}\n{SEND}\n```" in README


class Started:
    """A command of the README that runs until it is stopped, its output in a file."""

    def __init__(self, folder: Path, command: list[str], **env: str) -> None:
        self.output = folder / "output"
        with self.output.open("w") as out:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment(TENURE_PORT="0", **env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def text(self) -> str:
        return self.output.read_text()

    def wait_for(self, part: str) -> None:
        def seen() -> bool:
            assert self.process.poll() is None, self.text()
            return part in self.text()

        until(seen, part)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(PATIENCE) == 0, self.text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def once(folder: Path, command: list[str]) -> Done:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Done(code=done.returncode, out=done.stdout, err=done.stderr)


def test_the_demo_runs_and_leaves_one_file_and_its_keys(tmp_path: Path):
    demo = Started(tmp_path, words(DEMO))
    try:
        demo.wait_for("signatures hold")
        demo.stop()
    finally:
        demo.kill()
    left = {path.name for path in tmp_path.iterdir()} - {"output"}
    assert left == {"tenure-demo.db", "tenure-demo.db.keys"}


def test_all_tests_have_a_verb():
    shown = once(ROOT, [*words(TEST)[:1], "--show", words(TEST)[1]])
    assert shown.code == 0, shown.err
    assert "pytest" in shown.out


def test_three_commands_lead_to_a_delivery(tmp_path: Path):
    # The README's receiver is public and far away; ours is here, hence the third line.
    assert words(ALLOW)[: len(words(SERVE))] == words(SERVE)
    server = Started(tmp_path, words(ALLOW))
    try:
        server.wait_for("listening on http://127.0.0.1:")
        assert "API key, shown this once: tnr_" in server.text()
        with receiving() as receiver:
            url = f"{receiver.url}/hook"
            sent = once(tmp_path, words(SEND.replace("https://example.com/hook", url)))
            assert sent.code == 0, sent.err
            assert f"delivered: {url} answered 200" in sent.out
            assert receiver.wait(1)[0].body == b'{"hello":1}'
        server.stop()
    finally:
        server.kill()


def test_the_lines_for_postgresql_start_nodes(
    tmp_path: Path, postgres_server: PostgresServer, postgres_database: str
):
    url = postgres_server.database_by_port(postgres_database)
    script = "\n".join(POSTGRESQL).replace(
        "postgresql://tenure@localhost/tenure", shlex.quote(url)
    )
    # `exec`, so that the signal of this test reaches the server; two are enough here.
    script = script.replace("uv run tenure serve", "exec uv run tenure serve")
    script = script.replace("--processes 4", "--processes 2").replace("uv run ", "")
    path = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
    server = Started(tmp_path, ["bash", "-euc", script], PATH=path)
    try:
        server.wait_for("listening on http://127.0.0.1:")
        server.stop()
    finally:
        server.kill()


@pytest.mark.parametrize("mark", ["from svix.api import"])
def test_the_program_with_the_published_client_runs(tmp_path: Path, mark: str):
    fences = re.findall(r"```python no-run\n(.*?)```", README, re.DOTALL)
    [program] = [text for text in fences if text.startswith(mark)]
    with serving(tmp_path) as served, receiving() as receiver:
        program = (
            program.replace("http://127.0.0.1:8071", served.url)
            .replace("your key", KEY)
            .replace("https://example.com/hook", receiver.url)
        )
        done = once(tmp_path, [sys.executable, "-c", program])
        assert done.code == 0, done.err
        [received] = receiver.wait(1, seconds=30)
    assert received.body == b'{"id":7}'


def test_the_program_with_tenure_inside_is_the_one_of_the_examples():
    example = (ROOT / "examples" / "fastapi_app.py").read_text(encoding="utf-8")
    fences = re.findall(r"```python no-run\n(.*?)```", README, re.DOTALL)
    [program] = [text for text in fences if "lifespan" in text]
    lines = {line.split("  #")[0].strip() for line in program.splitlines() if line}
    ours = {line.split("  #")[0].strip() for line in example.splitlines()}
    assert {
        line for line in lines - ours if not line.startswith(("from", "async"))
    } == (set())


def test_what_is_allowed_for_tests_is_what_the_readme_says():
    assert " ".join(LOOPBACK) in ALLOW

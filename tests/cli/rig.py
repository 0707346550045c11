"""What the command line's tests share: real servers, and commands run in this process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from typer.testing import CliRunner

from tenure.cli.app import command_line

PATIENCE = 60.0
"""Seconds after which a fact that did not come true fails a test: hosts may be slow."""

COMMAND = (sys.executable, "-m", "tenure.cli")
LOOPBACK = ("--allow-networks", "127.0.0.0/8")


def environment(**settings: str) -> dict[str, str]:
    """Return this process's environment without settings, and these ones.

    Commands run at the speed of the real clock, whatever factor the tests run with:
    what they print is part of what is tested.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TENURE_")}
    return kept | {"PYTHONWARNINGS": "error"} | settings


@dataclass
class Command:
    """A command that runs in a process of its own; its JSON lines become events."""

    process: subprocess.Popen[str]
    folder: Path
    lines: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def read(self, stream: Any, into: list[str]) -> None:
        for line in stream:
            with self.changed:
                into.append(line.rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()

    def wait_for(self, fact: Callable[[], Any], what: str = "the fact") -> Any:
        """Wait until something of the output is so; return what it is."""
        with self.changed:
            found = self.changed.wait_for(
                lambda: fact() or self.process.poll() is not None, PATIENCE
            )
            value = fact()
        assert found, f"{what} never came: {self.lines} {self.errors}"
        assert value, f"{what} did not come before the end: {self.lines} {self.errors}"
        return value

    def event(self, name: str, count: int = 1) -> Any:
        """Wait for the `count`-th event of this name."""

        def found() -> Any:
            events = [json.loads(line) for line in self.lines if line.startswith("{")]
            named = [event for event in events if event.get("event") == name]
            return named[count - 1] if len(named) >= count else None

        return self.wait_for(found, f"event {name}")

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        """Wait for the end; return the exit code."""
        return self.process.wait(PATIENCE)


@contextmanager
def running(
    folder: Path, *arguments: str, env: Mapping[str, str] | None = None
) -> Generator[Command]:
    """Run a command in a folder; whatever is left of it is killed at the end."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    command = Command(process=process, folder=folder)
    readers = [
        threading.Thread(target=command.read, args=(stream, into), daemon=True)
        for stream, into in (
            (process.stdout, command.lines),
            (process.stderr, command.errors),
        )
    ]
    for reader in readers:
        reader.start()
    try:
        yield command
    finally:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
        process.wait()
        for reader in readers:
            reader.join()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@dataclass(frozen=True)
class Served:
    """A server that answers."""

    command: Command
    folder: Path
    url: str
    key: str

    @property
    def access(self) -> tuple[str, ...]:
        """The options that make a command ask this server."""
        return ("--server", self.url, "--key", self.key)

    @property
    def database(self) -> tuple[str, ...]:
        """The option that makes a command open this server's database."""
        return ("--database-url", f"sqlite:///{self.folder / 'tenure.db'}")


KEY = "a bootstrap key for tests"


@contextmanager
def serving(folder: Path, *arguments: str, **env: str) -> Generator[Served]:
    """Run `tenure serve` in a folder, on a free port."""
    given = {"TENURE_BOOTSTRAP_KEY": KEY} | env
    flags = ("serve", "--port", "0", "--json", "--log-level", "error")
    with running(folder, *flags, *LOOPBACK, *arguments, env=given) as command:
        url = command.event("listening")["url"]
        yield Served(command=command, folder=folder, url=url, key=KEY)


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Return what it printed as JSON."""
        return json.loads(self.out)


def tenure(*arguments: str, stdin: bytes | None = None) -> Done:
    """Run a command in this process."""
    result = CliRunner().invoke(
        command_line(), list(arguments), input=stdin, env={"TENURE_API_KEY": ""}
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(code=result.exit_code, out=result.stdout, err=result.stderr)


def tenure_json(*arguments: str) -> Any:
    """Run a command that must succeed; return its JSON."""
    done = tenure(*arguments, "--json")
    assert done.code == 0, done.err
    return done.json()


def run(folder: Path, *arguments: str, **env: str) -> Done:
    """Run a command in a process of its own, to its end."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Done(code=done.returncode, out=done.stdout, err=done.stderr)


def until(fact: Callable[[], Any], what: str = "the fact") -> Any:
    """Wait until something outside of any output is so; return what it is."""
    never = threading.Event()
    for _ in range(int(PATIENCE / 0.05)):
        if value := fact():
            return value
        never.wait(0.05)
    raise AssertionError(f"{what} never came true")


def names(items: Sequence[Any]) -> list[str]:
    """Return the ids of what a list shows."""
    return [item["id"] for item in items]

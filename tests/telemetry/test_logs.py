from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
import structlog

from tenure.telemetry.events import Event, Events
from tenure.telemetry.logs import REQUEST_ID, configure, logger, set_level

EMBEDDED = """
from tenure.telemetry.events import Event, Events
events = Events()
events.tell(Event.NODE_OPENED, node=1)
events.tell(Event.CUT, attempts=3)
"""


@pytest.fixture
def unconfigured() -> Iterator[None]:
    was = structlog.is_configured()
    before = structlog.get_config()
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()
    if was:
        structlog.configure(**before)


def test_a_host_that_configures_nothing_sees_warnings_on_standard_error_only() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EMBEDDED], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    assert done.stderr == "attempts cut attempts=3\n"


@pytest.mark.usefixtures("unconfigured")
def test_a_hosts_handlers_see_the_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="tenure")
    Events().tell(Event.NODE_OPENED, node=1)
    ((name, level, text),) = caplog.record_tuples
    assert (name, level, text) == ("tenure", logging.INFO, "node opened node=1")


@pytest.mark.usefixtures("unconfigured")
def test_a_traceback_stands_below_its_line(caplog: pytest.LogCaptureFixture) -> None:
    Events().tell(Event.LOOP_FAILED, error=ValueError("x"), task="t")
    first, *rest = caplog.records[0].getMessage().splitlines()
    assert first == "worker loop failed task='t'"
    assert rest[-1] == "ValueError: x"


@pytest.mark.usefixtures("unconfigured")
def test_a_host_that_configures_structlog_later_gets_the_lines_there() -> None:
    log = logger("tenure")
    seen = structlog.testing.LogCapture()
    structlog.configure(processors=[seen])
    log.log(logging.WARNING, "attempts cut", attempts=3)
    (entry,) = seen.entries
    assert (entry["event"], entry["attempts"]) == ("attempts cut", 3)


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers[:], root.level, structlog.get_config()
    yield io.StringIO()
    root.handlers[:], root.level = before[0], before[1]
    structlog.configure(**before[2])


def test_the_level_changes_while_a_process_runs(stream: io.StringIO) -> None:
    configure(form="json", level="error", stream=stream)
    events = Events()
    events.tell(Event.CUT, attempts=1)
    set_level("debug")
    events.tell(Event.NODE_OPENED, node=1)
    set_level("error")
    events.tell(Event.CUT, attempts=2)
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["event"] == "node opened"


def test_a_line_written_while_a_request_is_served_says_which(
    stream: io.StringIO,
) -> None:
    configure(form="json", level="info", stream=stream)
    outer = REQUEST_ID.set("abc-1")
    try:
        Events().tell(Event.CUT, attempts=1)
        logging.getLogger("library").warning("theirs")
    finally:
        REQUEST_ID.reset(outer)
    Events().tell(Event.CUT, attempts=2)
    said = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line.get("request_id") for line in said] == ["abc-1", "abc-1", None]

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from tenure.telemetry import logs
from tenure.telemetry.events import Event, Events


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers[:], root.level, structlog.get_config()
    yield io.StringIO()
    root.handlers[:], root.level = before[0], before[1]
    structlog.configure(**before[2])


def test_an_event_is_one_json_line_with_its_fields(stream: io.StringIO) -> None:
    logs.configure(form="json", level="info", stream=stream)
    events = Events()
    events.tell(Event.CLAIM_NO_LONGER_HELD, work="wrk_1", claim=2)
    (line,) = stream.getvalue().splitlines()
    said = json.loads(line)
    assert said["event"] == "claim no longer held"
    assert said["level"] == "warning"
    assert (said["work"], said["claim"]) == ("wrk_1", 2)
    assert said["timestamp"].endswith("Z")


def test_a_line_for_people_holds_event_and_fields(stream: io.StringIO) -> None:
    logs.configure(form="console", level="info", stream=stream)
    Events().tell(Event.CUT, attempts=3)
    assert "attempts cut" in stream.getvalue()
    assert "attempts=3" in stream.getvalue()


def test_lines_below_the_level_are_counted_and_not_written(
    stream: io.StringIO,
) -> None:
    logs.configure(form="json", level="error", stream=stream)
    events = Events()
    events.tell(Event.NODE_OPENED, node=1)
    assert stream.getvalue() == ""
    assert events.count(Event.NODE_OPENED) == 1
    assert events.counts() == {Event.NODE_OPENED: 1}


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_traceback_shows_no_local_variables(stream: io.StringIO, form: str) -> None:
    logs.configure(form=form, level="info", stream=stream)
    password = "hunter2-local"
    try:
        _ = 1 / (len(password) - len(password))
    except ZeroDivisionError as error:
        Events().tell(Event.LOOP_FAILED, error=error)
        logging.getLogger("library").exception("theirs")
    assert stream.getvalue().count("ZeroDivisionError") == 2
    assert "hunter2-local" not in stream.getvalue().replace(
        'password = "hunter2-local"', ""
    )


def test_library_lines_come_in_the_same_form(stream: io.StringIO) -> None:
    logs.configure(form="json", level="info", stream=stream)
    logging.getLogger("library").warning("theirs %d", 7)
    said = json.loads(stream.getvalue())
    assert (said["event"], said["logger"]) == ("theirs 7", "library")


def test_every_event_says_what_it_means_and_is_named_once() -> None:
    texts = [event.text for event in Event]
    assert len(set(texts)) == len(texts)
    assert all(event.meaning.endswith(".") for event in Event)


def test_a_log_that_cannot_be_written_is_nobodys_end() -> None:
    class Broken:
        def log(self, *_: object, **__: object) -> None:
            raise BrokenPipeError

    log: Any = Broken()
    events = Events(log)
    events.tell(Event.CUT, error=ValueError("x"))
    assert events.count(Event.CUT) == 1


def test_a_listener_hears_each_event_and_its_end_is_nobodys() -> None:
    heard: list[tuple[Event, dict[str, object]]] = []

    def broken(event: Event, fields: object) -> None:
        raise ValueError(event, fields)

    events = Events()
    events.listen(broken)
    events.listen(lambda event, fields: heard.append((event, dict(fields))))
    events.tell(Event.CUT, attempts=3)
    assert heard == [(Event.CUT, {"attempts": 3})]

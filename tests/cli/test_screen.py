import io
import json

from tenure.cli.screen import Screen, ago, when
from tenure.clock import US, from_rfc3339
from tenure.errors import NotFound, ValidationFailed


def screens(*, as_json: bool = False) -> tuple[Screen, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    return Screen(as_json=as_json, out=out, err=err), out, err


def test_text_of_others_cannot_style_or_steer_a_terminal():
    screen, out, _ = screens()
    screen.table(("A",), [("[bold]x[/bold]\x1b[2J\x07",)], empty="")
    screen.facts({"name": "\x1b]0;title\x07"})
    shown = out.getvalue()
    assert "[bold]x[/bold]" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_a_pipe_is_never_cut_short():
    screen, out, _ = screens()
    long = "x" * 300
    screen.table(("A", "B"), [(long, long[:90])], empty="")
    screen.line(long)
    assert long in out.getvalue().splitlines()[1]
    assert long in out.getvalue().splitlines()[2]


def test_an_empty_table_says_what_to_do():
    screen, out, err = screens()
    screen.table(("A",), [], empty="make one")
    assert (out.getvalue(), err.getvalue()) == ("", "make one\n")


def test_with_json_only_documents_reach_standard_output():
    screen, out, err = screens(as_json=True)
    screen.line("for people")
    screen.json({"a": [1]})
    screen.error(NotFound("gone"))
    screen.error(ValidationFailed.at("body", "url", msg="no"))
    assert json.loads(out.getvalue()) == {"a": [1]}
    first, second = err.getvalue().splitlines()
    assert json.loads(first) == {"code": "not_found", "detail": "gone"}
    assert json.loads(second)["faults"][0]["loc"] == ["body", "url"]


def test_an_error_is_one_line_with_its_code():
    screen, _, err = screens()
    screen.error(NotFound("msg_1 is not there: look elsewhere"))
    assert err.getvalue() == "error: msg_1 is not there: look elsewhere (not_found)\n"


def test_values_are_shown_as_people_write_them():
    screen, out, _ = screens()
    screen.facts({"none": None, "yes": True, "no": False, "list": ["a", "b"], "e": []})
    assert out.getvalue().split() == (
        ["none", "-", "yes", "yes", "no", "no", "list", "a,", "b", "e", "-"]
    )


def test_instants_are_shown_to_the_second_and_as_distances():
    assert when("2026-01-02T03:04:05.678901Z") == "2026-01-02 03:04:05Z"
    assert when(None) == "-"
    at = "2026-01-02T03:04:05Z"
    now = from_rfc3339(at)
    assert ago(at, now + 30 * US) == "30 s ago"
    assert ago(at, now - 600 * US) == "in 10 min"
    assert ago(at, now + 7200 * US) == "2 h ago"
    assert ago(at, now + 864_000 * US) == "10 d ago"

"""CEL: what is refused at save, what a message is to an expression, what it comes to."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.outbox.cel import (
    Outcome,
    Verdict,
    check_filter,
    check_transform,
    evaluate,
    facts_of,
    is_short,
    verdict_of,
)
from tenure.outbox.relayed import Relay


def facts(body: bytes = b'{"a": {"b": 1}, "l": [1, 2, 3]}', **changes: Any):
    given: dict[str, Any] = {
        "message": "msg_1",
        "event_type": "invoice.paid",
        "channels": ["news"],
        "headers": {"X-Kind": "test", "Authorization": "hidden"},
        "body": body,
        "relay": None,
    }
    return facts_of(**(given | changes))


GOOD = {
    "type == 'invoice.paid'": True,
    "body.a.b == 1 && 'news' in channels": True,
    "has(body.a.c)": False,
    "headers['x-kind'] == 'test'": True,
    "'authorization' in headers": False,
    "source == null": True,
    "message.startsWith('msg_')": True,
    "body.l.exists(i, i > 2)": True,
}


@pytest.mark.parametrize(("text", "value"), GOOD.items())
def test_an_expression_sees_a_message(text: str, value: bool):
    assert evaluate(check_filter(text), facts()) == Outcome(value=value)


def test_a_relayed_message_is_known_by_its_receipt():
    relay = Relay(
        receipt="rcpt_1",
        source="github",
        method="POST",
        query="",
        headers=(("x-a", "1"), ("x-a", "2"), ("cookie", "hidden")),
    )
    seen = facts(relay=relay)
    assert (seen["source"], seen["headers"]) == ("github", {"x-a": "1"})


@pytest.mark.parametrize(
    "body",
    [b"", b"no json", b"\xff", b"[" * 100_000, b'{"n": 1e999}', b"9" * 5000],
)
def test_a_body_that_is_no_json_is_null_or_a_value_and_never_an_error(body: bytes):
    outcome = evaluate("body == null", facts(body))
    assert isinstance(outcome.value, bool) or outcome.fault is not None


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("body.a.b == 1", Verdict(matched=True)),
        ("body.a.b == 2", Verdict(matched=False, reason="filter")),
        ("body.zz == 1", Verdict(matched=False, reason="filter: no such key 'zz'")),
        (
            "body.a.b",
            Verdict(matched=False, reason="filter: it gives int, not true or false"),
        ),
    ],
)
def test_a_filter_that_fails_on_a_message_does_not_match_it(
    text: str, verdict: Verdict
):
    assert verdict_of(evaluate(text, facts())) == verdict


@pytest.mark.parametrize("text", ["1/0 == 1", "nobody == 1", "body.a < 'x'"])
def test_an_error_is_told_and_never_raised(text: str):
    found = verdict_of(evaluate(text, facts()))
    assert not found.matched
    assert found.reason is not None
    assert found.reason.startswith("filter: ")


def nested(depth: int) -> str:
    text = "true"
    for n in range(depth):
        text = f"body.l.all(i{n}, {text})"
    return text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("type ===", "not a CEL expression"),
        ("type == 'x' && " * 20 + "!", r"ERROR: <input>:1:302: Syntax error"),
        (
            "body.l.exists(i, i == typ)",
            "'typ' is not known; it can name type, channels",
        ),
        ("", "not a CEL expression"),
        ("'" + "x" * 4096 + "' == ''", "at most 4096 bytes"),
        (nested(3), "3 deep"),
        ("body.l.map(i, body.l.filter(j, body.l .exists(k, k > 1)))", "3 deep"),
        (nested(3).replace("all", "existsOne"), "3 deep"),
        # Quotes that end, and begin, where a reader of escapes does not expect it.
        (rf"r'\' == type || {nested(3)} || type == r'\'", "3 deep"),
        (rf"'''\\\\''' == type || {nested(3)} || type == '''x'''", "3 deep"),
        (f"'' == type || {nested(3)} // '", "3 deep"),
    ],
)
def test_what_cannot_be_is_refused_at_save(text: str, why: str):
    with pytest.raises(ValueError, match=why):
        check_filter(text)


def test_a_transform_has_no_channels():
    check_transform("{'t': type, 'm': message, 'l': body.l.map(i, i)}")
    with pytest.raises(ValueError, match="'channels' is not known"):
        check_transform("{'c': channels}")


def test_macros_are_counted_by_their_calls_alone():
    check_filter(nested(2))
    check_filter("'l.all(i, l.all(j, l.all(k, true)))' == type")
    check_filter('"""a.all( " a.all( """ == type')
    check_filter("type == 'x' // .all( .all( .all(\n")
    check_filter("body.all(i, true) && body.map(i, i) == [] && body.l.exists(i, i > 1)")
    check_filter("body.all.map.filter == 1")


def test_what_may_take_long_is_told_from_what_cannot():
    assert is_short("type == 'a' + 'b'", 1000)
    assert is_short("has(body.a) && body.a.startsWith('x') && type in ('y')", 1000)
    assert not is_short("type == 'a'", 1_000_000)
    assert not is_short("body.l.exists(i, i > 1)", 10)
    assert not is_short("body.l.existsOne(i, i > 1)", 10)
    assert not is_short("body.l.all//'\n\n(i, i > 1)", 10)
    assert not is_short(r"r'\' == type || body.l.all(i, i > 1) || type == r'\'", 10)
    assert not is_short("'x//' == type || body.l.all(i, i > 1)\n(", 10)
    assert not is_short("type.matches('(a{300}){100}')", 10)
    assert not is_short(" && ".join(["body == body"] * 50), 10)
    assert not is_short(" + ".join(["body.s"] * 50) + " == ''", 10)

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tenure.outbox.fields import (
    check_channel,
    check_description,
    check_endpoint_channels,
    check_event_type,
    check_message_channels,
    check_metadata,
    check_name,
    check_schemas,
    check_tag,
    check_tags,
    check_throttle_rate,
    check_uid,
    compile_schema,
)

GOOD_TOKENS = ["a", "A.b-c_d", "0", "user.created", "-", ".", "a" * 128]
BAD_TOKENS = ["", " ", "$$x", "a b", "a/b", "é", "a\n", "a\0", "a:b", "a" * 257, "😀"]
LONE = "\ud800"


def check_app_uid(value: str) -> str:
    return check_uid(value, prefix="app")


TOKEN_CHECKS = [check_app_uid, check_event_type, check_channel, check_tag]


@pytest.mark.parametrize("check", TOKEN_CHECKS)
@pytest.mark.parametrize("value", GOOD_TOKENS)
def test_tokens_are_accepted(check: Callable[[str], str], value: str):
    assert check(value) == value


@pytest.mark.parametrize("check", TOKEN_CHECKS)
@pytest.mark.parametrize("value", BAD_TOKENS)
def test_what_is_no_token_is_refused(check: Callable[[str], str], value: str):
    with pytest.raises(ValueError):
        check(value)


def test_a_uid_and_an_event_type_have_256_characters_a_channel_128():
    assert check_app_uid("u" * 256)
    assert check_event_type("e" * 256)
    assert check_channel("c" * 128)
    with pytest.raises(ValueError, match="1 to 128"):
        check_channel("c" * 129)


@pytest.mark.parametrize("prefix", ["app", "ep", "msg"])
def test_a_uid_must_not_look_like_an_id_of_its_own_kind(prefix: str):
    with pytest.raises(ValueError, match=f"`{prefix}_`"):
        check_uid(f"{prefix}_x", prefix=prefix)
    assert check_uid(f"{prefix}x", prefix=prefix)
    assert check_uid(f"x{prefix}_", prefix=prefix)
    assert check_uid("other_x", prefix=prefix)


def test_channels_and_tags_are_sets_in_bounds():
    assert check_message_channels(["b", "a", "b"]) == ("a", "b")
    assert len(check_message_channels("abcde")) == 5
    assert len(check_endpoint_channels("abcdefghij")) == 10
    assert check_tags(["t"]) == ("t",)
    with pytest.raises(ValueError, match="1 to 5"):
        check_message_channels("abcdef")
    with pytest.raises(ValueError, match="1 to 10"):
        check_endpoint_channels("abcdefghijk")
    with pytest.raises(ValueError, match="1 to 10 tags"):
        check_tags("abcdefghijk")
    for check in (check_message_channels, check_endpoint_channels, check_tags):
        with pytest.raises(ValueError, match="not 0"):
            check([])
        with pytest.raises(ValueError, match="only letters"):
            check(["good", "not good"])


@pytest.mark.parametrize("value", ["x", "My App", "é😀", "tab\there", "n" * 256])
def test_names_are_accepted(value: str):
    assert check_name(value) == value


@pytest.mark.parametrize("value", ["", "a\0", "\x08", "n" * 257, LONE])
def test_names_that_are_empty_long_or_hold_controls_are_refused(value: str):
    with pytest.raises(ValueError):
        check_name(value)


@pytest.mark.parametrize("value", ["", "two\nlines\r\n\ttab", "é😀", "d" * 4096])
def test_descriptions_are_accepted(value: str):
    assert check_description(value) == value


@pytest.mark.parametrize("value", ["\0", "\x1b[31m", "\x7f", "\x85", "d" * 4097, LONE])
def test_descriptions_with_control_characters_are_refused(value: str):
    with pytest.raises(ValueError):
        check_description(value)


def test_metadata_is_bounded_as_json():
    longest = {"k": "v" * (4096 - len('{"k":""}'))}
    assert check_metadata(longest) == longest
    assert check_metadata({}) == {}
    with pytest.raises(ValueError, match="4097 bytes"):
        check_metadata({"k": longest["k"] + "v"})
    with pytest.raises(ValueError, match="bytes"):
        check_metadata({"k": "é" * 3000})


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1},
        {"a": None},
        {1: "a"},
        {"a": {"b": "c"}},
        {"a": "\x00"},
        {"\x00": "a"},
        {"a": LONE},
        {LONE: "a"},
    ],
)
def test_metadata_that_cannot_be_kept_is_refused(value: dict[str, str]):
    with pytest.raises(ValueError):
        check_metadata(value)


@pytest.mark.parametrize("value", [1, 100, 65535])
def test_rates_are_accepted(value: int):
    assert check_throttle_rate(value) == value


@pytest.mark.parametrize("value", [0, -1, 65536, True, 1.5, "7"])
def test_rates_out_of_bounds_or_of_another_type_are_refused(value: int):
    with pytest.raises(ValueError, match="1 to 65535"):
        check_throttle_rate(value)


# JSON Schemas.


def test_a_schema_is_checked_and_compiled():
    schema = {
        "type": "object",
        "properties": {"n": {"$ref": "#/definitions/small"}},
        "definitions": {"small": {"maximum": 5}},
    }
    assert check_schemas({"1": schema}) == {"1": schema}
    validator = compile_schema(schema)
    assert validator.is_valid({"n": 5})
    assert not validator.is_valid({"n": 6})


def test_the_draft_that_a_schema_names_is_used():
    newer = "https://json-schema.org/draft/2020-12/schema"
    pair = {"prefixItems": [{"type": "string"}]}
    assert not compile_schema({"$schema": newer, **pair}).is_valid([1])
    assert compile_schema(pair).is_valid([1])  # draft 7 knows no prefixItems


@pytest.mark.parametrize(
    "schema",
    [
        {"readOnly": 15},
        {"type": "no type"},
        {"pattern": "("},
        {"$ref": "#/definitions/missing"},
        {"$ref": "other.json"},
        {"$schema": "http://schemas.invalid/mine", "type": "object"},
        {"$schema": 5},
        "text",
        [],
        None,
        5,
        {"enum": [LONE]},
        {"description": "x" * 70_000},
    ],
)
def test_what_is_no_usable_schema_is_refused(schema: object):
    with pytest.raises(ValueError, match="schema version v1"):
        check_schemas({"v1": schema})


def test_a_hostile_nesting_of_a_schema_is_refused():
    deep: dict[str, object] = {}
    for _ in range(3000):
        deep = {"not": deep}
    with pytest.raises(ValueError):
        compile_schema(deep)


def test_an_external_reference_is_refused_and_never_fetched(tmp_path: Path):
    local = tmp_path / "schema.json"
    local.write_text("{}")
    calls: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            try:
                calls.append(server.accept())
            except OSError:
                return

        listener = threading.Thread(target=listen)
        listener.start()
        port = server.getsockname()[1]
        for reference in (f"http://127.0.0.1:{port}/x.json", local.as_uri()):
            for key in ("$ref", "$schema"):
                with pytest.raises(ValueError):
                    compile_schema({key: reference})
        server.shutdown(socket.SHUT_RDWR)
        listener.join(timeout=10)
    assert not listener.is_alive()
    assert calls == []


def test_the_number_and_the_names_of_versions_are_bounded():
    with pytest.raises(ValueError, match="at most 50"):
        check_schemas({str(number): True for number in range(51)})
    with pytest.raises(ValueError, match="schema version"):
        check_schemas({"": True})

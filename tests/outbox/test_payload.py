import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import ValidationFailed
from tenure.outbox import payload as payload_module
from tenure.outbox.payload import canonical_out, extract_payload, scan_members

EXACT = [
    b"{}",
    b'{"a":1}',
    b'{ "b" : 1 ,\n\t"a":\r[ ] }',
    b'{"z":1,"a":2,"m":{"y":0,"b":0}}',
    b'{"a":1,"a":2,"a":1}',
    b'{"a":1e400,"b":-0,"c":-0.0,"d":1.0,"e":1E+2,"f":0.10}',
    b'{"a":9223372036854775807,"b":18446744073709551616,"c":' + b"9" * 5000 + b"}",
    '{"a":"😀","b":"\u2028\u2029","c":"é"}'.encode(),
    b'{"a":"\\u00e9\\ud83d\\ude00\\/\\n\\u0000\\"\\\\"}',
    b'{"lone":"\\ud800","other":"\\udc00x","cut":"\\ud800\\u0041"}',
    b'{"}":"{\\"payload\\":1}","]":"["}',
]


def request(payload: bytes, *, name: bytes = b"payload") -> bytes:
    return b'{"eventType":"a.b" ,"%b" :\n %b\t, "channels":["c"]}' % (name, payload)


@pytest.mark.parametrize("payload", EXACT)
@pytest.mark.parametrize("name", [b"payload", b"data", b"payl\\u006fad"])
def test_the_exact_source_text_is_cut_out(payload: bytes, name: bytes):
    assert extract_payload(request(payload, name=name)) == payload


@pytest.mark.parametrize("payload", EXACT)
def test_both_scanners_cut_the_same_text(payload: bytes):
    assert scan_members(request(payload))["payload"] == payload


def test_the_last_of_repeated_payloads_counts():
    body = b'{"payload":{"a":1},"payload": {"b":2} }'
    assert extract_payload(body) == b'{"b":2}'
    assert scan_members(body) == {"payload": b'{"b":2}'}


def test_only_the_outermost_payload_counts():
    body = b'{"x":{"payload":{"no":1}},"payload":{"payload":{"in":1}}}'
    assert extract_payload(body) == b'{"payload":{"in":1}}'


def items(body: bytes) -> list[tuple[tuple[str | int, ...], str, str]]:
    with pytest.raises(ValidationFailed) as caught:
        extract_payload(body)
    assert caught.value.status == 422
    return [(item.loc, item.msg, item.type) for item in caught.value.items]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b'"text"', "a string"),
        (b"[1]", "an array"),
        (b"true", "a boolean"),
        (b"false", "a boolean"),
        (b"null", "null"),
        (b"12", "a number"),
        (b"-1.5", "a number"),
        (b'"\\ud800"', "a string"),
    ],
)
@pytest.mark.parametrize("name", [b"payload", b"data"])
def test_a_payload_that_is_no_object_is_refused(value: bytes, kind: str, name: bytes):
    assert items(request(value, name=name)) == [
        (("body", "payload"), f"must be a JSON object, not {kind}", "value_error")
    ]


def test_a_missing_payload_is_refused():
    missing = (("body", "payload"), "field required", "value_error.missing")
    assert items(b'{"eventType":"a"}') == [missing]
    assert items(b"{}") == [missing]


def test_payload_and_its_former_name_together_are_refused():
    [(loc, message, _)] = items(b'{"payload":{},"data":{}}')
    assert loc == ("body", "data")
    assert "not both" in message


MALFORMED = [
    (b"", 0),
    (b"   ", 3),
    (b"[]", 0),
    (b'"payload"', 0),
    (b"nul", 0),
    (b"\xef\xbb\xbf{}", 0),
    (b'{"payload":{"a":1}', 18),
    (b'{"payload":{"a":1}} x', 20),
    (b'{"payload":{"a":1}}{}', 19),
    (b'{"payload":{"a":1},}', 19),
    (b'{"payload":{"a":NaN}}', 16),
    (b'{"payload":{"a":Infinity}}', 16),
    (b'{"payload":{"a":-Infinity}}', 16),
    (b'{"payload":{"a":01}}', 17),
    (b'{"payload" {"a":1}}', 11),
    (b'{payload:{"a":1}}', 1),
    (b"{'payload':{}}", 1),
    (b'{"x":"\xff","payload":{}}', 6),
    (b'{"payload":{"a":"\xff"}}', 17),
    (b'{"payload":{"a":"\xed\xa0\x80"}}', 17),
    (b'{"payload":{"a":"\xc3', 17),
    ('{"é":1,"payload":{"a":01}}'.encode(), 24),
]


@pytest.mark.parametrize(("body", "position"), MALFORMED)
def test_a_malformed_body_is_refused_with_its_position(body: bytes, position: int):
    [(loc, message, kind)] = items(body)
    assert loc == ("body", "", "")
    assert kind == "value_error.jsondecode"
    assert message.startswith(f"malformed JSON at byte {position}: ")


@pytest.mark.parametrize(
    "inner",
    [
        b'{"a":1,}',
        b'{"a":1.}',
        b'{"a":-}',
        b'{"a":+1}',
        b'{"a":.5}',
        b'{"a":1e}',
        b'{"a":"\x01"}',
        b'{"a":"\n"}',
        b'{"a":"\\x"}',
        b'{"a":"\\u12"}',
        b'{"a"}',
        b"{a:1}",
        b'{"a":\x0b1}',
        b'{"a":tru}',
        b"{,}",
        b'{"a":1 "b":2}',
        b'{"a":[1,]}',
        b'{"a":"\\ud800\x01"}',
        b"{'a':1}",
        b'{"a":1}//',
        b'{"a":\xc2\xa01}',
    ],
)
def test_lax_json_is_refused_inside_the_payload_as_well(inner: bytes):
    [(_, message, _)] = items(request(inner))
    assert message.startswith("malformed JSON at byte ")


@pytest.mark.parametrize(
    "inner",
    [
        b"[" * 100000,
        b"[" * 100000 + b"]" * 100000,
        b'{"a":' * 50000,
        b'{"a":"\\ud800","b":' + b"[" * 100000 + b"]" * 100000 + b"}",
    ],
)
def test_hostile_nesting_is_refused_and_does_not_crash(inner: bytes):
    for name in (b"payload", b"other"):
        [(_, message, kind)] = items(request(inner, name=name))
        assert kind == "value_error.jsondecode"
        assert "nested too deeply" in message or "malformed" in message


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text(max_size=3), VALUES, max_size=4)


@given(OBJECTS, st.booleans(), st.sampled_from([None, 1]))
def test_any_object_in_any_style_comes_out_byte_for_byte(
    value: dict[str, object], ascii_only: bool, indent: int | None
):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    body = request(text)
    assert extract_payload(body) == text
    assert scan_members(body)["payload"] == text


@given(st.binary(max_size=40))
def test_any_bytes_are_cut_or_refused_alike_by_both_scanners(body: bytes):
    for text in (body, b'{"payload":' + body, b'{"payload":{"a":' + body + b"}}"):
        try:
            cut = extract_payload(text)
        except ValidationFailed:
            cut = None
        try:
            members = scan_members(text)
        except ValidationFailed:
            assert cut is None
        else:
            assert cut is None or cut == members.get("payload", members.get("data"))


# What the API shows.


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (b'{ "b" : 1 ,\n"a":\t[ ] }', b'{"a":[],"b":1}'),
        (b'{"b":{"z":1,"y":2},"a":0}', b'{"a":0,"b":{"y":2,"z":1}}'),
        (b'{"a":1e400,"b":1.0,"c":-0}', b'{"a":1e400,"b":1.0,"c":-0}'),
        (b'{"a":' + b"9" * 5000 + b"}", b'{"a":' + b"9" * 5000 + b"}"),
        (b'{"a":1,"a":2}', b'{"a":2}'),
        (b'{"a":"\\u00e9\\/"}', '{"a":"é/"}'.encode()),
        (b"[2,1]", b"[2,1]"),
        (b"3", b"3"),
        (b'{"z":"\\ud800", "a":1}', b'{"z":"\\ud800", "a":1}'),
        (b"plain text", b'{"expired":true}'),
        (b"", b'{"expired":true}'),
        (b"\xff", b'{"expired":true}'),
        (b'{"a":NaN}', b'{"expired":true}'),
        (b"{} {}", b'{"expired":true}'),
    ],
)
def test_a_stored_payload_is_shown_compact_and_sorted(stored: bytes, shown: bytes):
    assert canonical_out(stored) == shown


def test_a_deeply_nested_raw_payload_is_shown_as_it_is():
    deep = b"[" * 100_000 + b"]" * 100_000
    assert canonical_out(deep) == deep


@given(OBJECTS)
def test_showing_changes_no_value(value: dict[str, object]):
    text = json.dumps(value).encode()
    shown = canonical_out(text)
    assert json.loads(shown) == value
    assert canonical_out(shown) == shown


def test_every_shown_payload_is_read_by_the_wire_decoder():
    assert msgspec.json.decode(canonical_out(b'{"b":1,"a":"x"}')) == {"a": "x", "b": 1}


def verbatim(payload: bytes) -> bytes:
    """Return what the scanner that knows every number's text shows."""
    value = payload_module._VERBATIM.decode(payload.decode())
    return msgspec.json.encode(value, order="sorted")


_NUMBERS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,12})?([eE][+-]?[0-9]{1,4})?", fullmatch=True
)
_VALUES = st.recursive(
    _NUMBERS | st.sampled_from(["null", "true", '""', '"\\u00e9-0"', '"1.50"']),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda parts: f"[{' , '.join(parts)}]")
        | st.lists(inner, max_size=3).map(
            lambda parts: (
                "{"
                + ",".join(f'"{"cba"[at]}" :{v}' for at, v in enumerate(parts))
                + "}"
            )
        )
    ),
    max_leaves=8,
)


@given(_VALUES.map(lambda value: f'{{"z": {value}, "a":{value}}}'.encode()))
def test_the_quick_way_and_the_exact_way_show_the_same(payload: bytes):
    assert canonical_out(payload) == verbatim(payload)
    quick = payload_module._canonical_quick(payload)
    assert quick in {None, verbatim(payload)}


def test_what_msgspec_would_change_goes_the_exact_way():
    assert payload_module._canonical_quick(b'{"a":-0}') is None
    assert canonical_out(b'{"a":-0,"b":[-0.0]}') == b'{"a":-0,"b":[-0.0]}'

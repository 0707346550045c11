"""The exact source text of a message's payload, cut out of the request that brought it.

What is accepted is what is stored, signed and sent: spacing, key order, escapes,
repeated keys and numbers of any size stay as they were written. Nothing here decodes a
payload to send it.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import msgspec

from tenure.errors import ValidationFailed

PAYLOAD: Final = "payload"
PAYLOAD_ALIAS: Final = "data"
"""The former name of the field, which older clients still send."""

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_MALFORMED: Final = "value_error.jsondecode"


class _Members(msgspec.Struct, frozen=True):
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_FAST: Final = msgspec.json.Decoder(_Members)


def extract_payload(body: bytes) -> bytes:
    """Return the bytes of the request's `payload` exactly as they stand in `body`.

    The last of repeated `payload` members counts; `data` is its former name, and both
    together are refused. Raises ValidationFailed (422) with the byte position when the
    body is not UTF-8 or not JSON, and when the payload is missing or no JSON object.
    """
    check_utf8(body)
    try:
        found = _FAST.decode(body)
        payload = _raw(found.payload)
        data = _raw(found.data)
    except RecursionError:
        raise _too_deep() from None
    except msgspec.MsgspecError:
        # Either malformed, or a lone surrogate escape, which msgspec refuses and JSON
        # allows: the slower scanner tells them apart and knows every position.
        members = scan_members(body)
        payload, data = members.get(PAYLOAD), members.get(PAYLOAD_ALIAS)
    if payload is not None and data is not None:
        raise ValidationFailed.at(
            "body", PAYLOAD_ALIAS, msg="give either `payload` or `data`, not both"
        )
    value = data if payload is None else payload
    if value is None:
        raise ValidationFailed.at(
            "body", PAYLOAD, msg="field required", type="value_error.missing"
        )
    return check_object(value)


def check_object(value: bytes) -> bytes:
    """Return the JSON value's source text if it is an object; else ValidationFailed.

    The text is one that a JSON parser has delimited already.
    """
    if value[:1] != b"{":
        raise ValidationFailed.at(
            "body", PAYLOAD, msg=f"must be a JSON object, not {_kind(value)}"
        )
    return value


def check_utf8(body: bytes) -> None:
    """Raise ValidationFailed with the position unless the bytes are UTF-8.

    msgspec leaves the inside of values that it does not decode unchecked.
    """
    if body.isascii():
        return
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise _malformed("not UTF-8", error.start) from None


def scan_members(body: bytes) -> dict[str, bytes]:
    """Return the members of a JSON object, each value as its exact source bytes.

    Strict RFC 8259 (no NaN, no trailing comma, no control characters in strings); lone
    surrogate escapes are allowed; the last of repeated names counts. Raises
    ValidationFailed with the byte position.
    """
    check_utf8(body)
    text = body.decode()
    try:
        return _members(text)
    except json.JSONDecodeError as error:
        # Byte offset: positions in text and bytes differ beyond ASCII.
        raise _malformed(error.msg, len(text[: error.pos].encode())) from None
    except RecursionError:
        raise _too_deep() from None


def canonical_out(payload: bytes) -> bytes:
    """Return a stored payload as the API shows it: compact, keys sorted.

    Numbers stay verbatim and the last of repeated keys counts. Text with lone
    surrogates or nested beyond what can be sorted is returned as it is stored; what is
    no JSON at all (a raw payload) becomes `{"expired":true}`, as Svix answers.
    """
    quick = _canonical_quick(payload)
    if quick is not None:
        return quick
    try:
        value = _VERBATIM.decode(payload.decode())
    except ValueError:
        return b'{"expired":true}'
    except RecursionError:
        return payload
    try:
        return msgspec.json.encode(value, order="sorted")
    except (UnicodeEncodeError, RecursionError):
        return payload


def _canonical_quick(payload: bytes) -> bytes | None:
    """Return what msgspec can do alone, None where the slower way must judge.

    It keeps every number as it was written but `-0`.
    """
    if b"-0" in payload:
        return None
    try:
        return msgspec.json.encode(_QUICK.decode(payload), order="sorted")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _refused_constant(name: str) -> NoReturn:
    raise json.JSONDecodeError(f"{name} is no JSON number", name, 0)


def _verbatim(number: str) -> msgspec.Raw:
    return msgspec.Raw(number.encode())


_VERBATIM: Final = json.JSONDecoder(
    parse_int=_verbatim, parse_float=_verbatim, parse_constant=_refused_constant
)


_QUICK: Final = msgspec.json.Decoder(float_hook=_verbatim)


def _members(text: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        raise json.JSONDecodeError("the body must be a JSON object", text, at)
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        at += 1
    else:
        more = True
        while more:
            name, at = _name(text, at)
            at = _skip(text, _expect(text, at, ":"))
            end = _value_end(text, at)
            found[name] = text[at:end].encode()
            at = _skip(text, end)
            more = text[at : at + 1] == ","
            at = _skip(text, at + 1) if more else _expect(text, at, "}")
    at = _skip(text, at)
    if at != len(text):
        raise json.JSONDecodeError("something follows the JSON value", text, at)
    return found


def _name(text: str, at: int) -> tuple[str, int]:
    if text[at : at + 1] != '"':
        raise json.JSONDecodeError("expected a name in double quotes", text, at)
    name: Any
    name, end = _VERBATIM.raw_decode(text, at)
    return str(name), _skip(text, end)


def _value_end(text: str, at: int) -> int:
    try:
        return _VERBATIM.raw_decode(text, at)[1]
    except json.JSONDecodeError as error:
        if error.doc is text:
            raise
        # A constant is refused by a callback that does not know its position.
        where = text.find(error.doc, at)
        raise json.JSONDecodeError(error.msg, text, where) from None


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _expect(text: str, at: int, wanted: str) -> int:
    if text[at : at + 1] != wanted:
        raise json.JSONDecodeError(f"expected `{wanted}`", text, at)
    return at + 1


def _raw(value: msgspec.Raw | msgspec.UnsetType) -> bytes | None:
    return None if isinstance(value, msgspec.UnsetType) else bytes(value)


_KINDS: Final[Mapping[bytes, str]] = {
    b'"': "a string",
    b"[": "an array",
    b"t": "a boolean",
    b"f": "a boolean",
    b"n": "null",
}


def _kind(value: bytes) -> str:
    return _KINDS.get(value[:1], "a number")


def _malformed(reason: str, position: int) -> ValidationFailed:
    return ValidationFailed.at(
        "body",
        "",
        "",
        msg=f"malformed JSON at byte {position}: {reason}",
        type=_MALFORMED,
    )


def _too_deep() -> ValidationFailed:
    return ValidationFailed.at(
        "body", "", "", msg="the JSON is nested too deeply", type=_MALFORMED
    )

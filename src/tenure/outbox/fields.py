"""Checks of single fields, shared by the slice's models and the API.

Each takes a value and returns it, or raises ValueError that says what is wanted, so
that pydantic, the façade and the command line can all use it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import jsonschema_rs
import msgspec

from tenure.limits import (
    CHANNEL_MAX,
    CHANNELS_PER_ENDPOINT_MAX,
    CHANNELS_PER_MESSAGE_MAX,
    DESCRIPTION_MAX,
    METADATA_MAX,
    NAME_MAX,
    SCHEMA_BYTES,
    SCHEMAS_MAX,
    TAGS_MAX,
    THROTTLE_RATE_MAX,
    UID_MAX,
)

_MASK: Final = "the value"  # in place of what a payload holds, in every message
_TOKEN: Final = re.compile(r"[a-zA-Z0-9\-_.]+")
# U+0000-0008 as in the Svix API; NUL fits no PostgreSQL text.
_NAME_CONTROLS: Final = re.compile(r"[\x00-\x08]")
# Tab and line breaks belong to prose; every other control character does not.
_TEXT_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def check_uid(value: str, *, prefix: str) -> str:
    """Check a caller's own id; `prefix` (`app`) is that of the entity's own ids.

    With it a uid could be taken for somebody else's id.
    """
    _check_token(value, what="a uid", longest=UID_MAX)
    if value.startswith(f"{prefix}_"):
        raise ValueError(f"a uid must not start with `{prefix}_`, as generated ids do")
    return value


def check_event_type(value: str) -> str:
    """Check the name of an event type."""
    return _check_token(value, what="an event type", longest=NAME_MAX)


def check_channel(value: str) -> str:
    """Check one channel."""
    return _check_token(value, what="a channel", longest=CHANNEL_MAX)


def check_tag(value: str) -> str:
    """Check one tag of a message."""
    return _check_token(value, what="a tag", longest=CHANNEL_MAX)


def check_message_channels(values: Iterable[str]) -> tuple[str, ...]:
    """Return a message's channels sorted and without repeats: 1 to 5."""
    return _check_set(
        values, check_channel, what="channels", most=CHANNELS_PER_MESSAGE_MAX
    )


def check_endpoint_channels(values: Iterable[str]) -> tuple[str, ...]:
    """Return an endpoint's channels sorted and without repeats: 1 to 10."""
    return _check_set(
        values, check_channel, what="channels", most=CHANNELS_PER_ENDPOINT_MAX
    )


def check_tags(values: Iterable[str]) -> tuple[str, ...]:
    """Return a message's tags sorted and without repeats."""
    return _check_set(values, check_tag, what="tags", most=TAGS_MAX)


def check_name(value: str) -> str:
    """Check a name that people read: at least one character, no U+0000 to U+0008."""
    _check_text(value, what="a name", longest=NAME_MAX)
    if not value:
        raise ValueError("a name has at least 1 character")
    if _NAME_CONTROLS.search(value):
        raise ValueError("a name holds no control characters (U+0000 to U+0008)")
    return value


def check_description(value: str) -> str:
    """Check a description: no control characters but tab and line breaks."""
    _check_text(value, what="a description", longest=DESCRIPTION_MAX)
    if _TEXT_CONTROLS.search(value):
        raise ValueError("a description holds no control characters")
    return value


def check_metadata(value: Mapping[str, str]) -> dict[str, str]:
    """Check metadata: strings to strings, bounded as compact JSON in UTF-8."""
    given = cast("Mapping[object, object]", value)  # callers without types come too
    for key, text in given.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise ValueError(  # noqa: TRY004 -- ValueError is what pydantic reads
                "metadata maps strings to strings"
            )
        if "\0" in key or "\0" in text:
            raise ValueError("metadata holds no NUL character")
        _check_text(key, what="a metadata key", longest=METADATA_MAX)
        _check_text(text, what="a metadata value", longest=METADATA_MAX)
    size = len(msgspec.json.encode(value))
    if size > METADATA_MAX:
        raise ValueError(
            f"metadata is {size} bytes as JSON; at most {METADATA_MAX} are kept"
        )
    return dict(value)


def check_throttle_rate(value: int) -> int:
    """Check a rate in messages per second."""
    if type(value) is not int or not 1 <= value <= THROTTLE_RATE_MAX:
        raise ValueError(
            f"a rate is a whole number of messages per second, 1 to {THROTTLE_RATE_MAX}"
        )
    return value


def check_schemas(schemas: Mapping[str, object]) -> dict[str, object]:
    """Check an event type's schemas: version → JSON Schema (draft 7 unless it says so).

    References must point into the schema itself: nothing is ever fetched.
    """
    if len(schemas) > SCHEMAS_MAX:
        raise ValueError(f"an event type has at most {SCHEMAS_MAX} schema versions")
    for version, schema in schemas.items():
        _check_token(version, what="a schema version", longest=NAME_MAX)
        try:
            compile_schema(schema)
        except ValueError as error:
            raise ValueError(f"schema version {version}: {error}") from None
    return dict(schemas)


def compile_schema(schema: object) -> jsonschema_rs.Validator:
    """Return the validator of a JSON Schema; never opens a file or a connection.

    Raises ValueError when the schema is not one, refers outside itself, names an
    unknown meta-schema or passes the bound of its size.
    """
    if not isinstance(schema, dict | bool):
        raise ValueError(  # noqa: TRY004 -- ValueError is what pydantic reads
            "a JSON Schema is an object or a boolean"
        )
    known = cast("dict[str, Any] | bool", schema)
    try:
        size = len(msgspec.json.encode(known))
    except (RecursionError, UnicodeEncodeError):
        raise ValueError(
            "the JSON Schema is nested too deeply or not Unicode"
        ) from None
    if size > SCHEMA_BYTES:
        raise ValueError(
            f"the JSON Schema is {size} bytes as JSON; at most {SCHEMA_BYTES} are kept"
        )
    try:
        if isinstance(known, dict) and "$schema" in known:
            return jsonschema_rs.validator_for(known, offline=True, mask=_MASK)
        return jsonschema_rs.Draft7Validator(known, offline=True, mask=_MASK)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"not a usable JSON Schema: {reason}") from None


def _check_token(value: str, *, what: str, longest: int) -> str:
    if not 1 <= len(value) <= longest:
        raise ValueError(
            f"{what} has 1 to {longest} characters, this one has {len(value)}"
        )
    if not _TOKEN.fullmatch(value):
        raise ValueError(f"{what} holds only letters, digits, `-`, `_` and `.` (ASCII)")
    return value


def _check_text(value: str, *, what: str, longest: int) -> None:
    if len(value) > longest:
        raise ValueError(
            f"{what} has at most {longest} characters, this one has {len(value)}"
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        # JSON can spell half a surrogate pair; no database stores it.
        raise ValueError(
            f"{what} holds half of a surrogate pair, which is no character"
        ) from None


def _check_set(
    values: Iterable[str], check: Any, *, what: str, most: int
) -> tuple[str, ...]:
    found = sorted({check(value) for value in values})
    if not 1 <= len(found) <= most:
        raise ValueError(f"give 1 to {most} {what}, not {len(found)}")
    return tuple(found)

"""Query parameters, read as the Svix API reads them.

A parameter that cannot be read is 400 `generic_error` (a word where a number belongs, an
unknown order, a repeated key, a date without an offset); a `limit` that is too high or a
bad event type is a 422 with its place. Unknown parameters are ignored.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl

from fastapi import Depends, Query, Request
from pydantic import BeforeValidator, WithJsonSchema

from tenure.clock import from_rfc3339
from tenure.errors import BadRequest, TenureError, ValidationFailed, ValidationItem
from tenure.limits import LIST_DEFAULT, LIST_MAX, NAME_MAX
from tenure.outbox.fields import check_event_type
from tenure.outbox.model import AttemptStatus, Order, PageIn

_EVENT_TYPES: Final = re.compile(r"event_types(\[\d*\])?")
# A plus sign that was not escaped arrives as a space: `10:00:00 02:00`.
_LOST_PLUS: Final = re.compile(r" (\d\d:\d\d)$")
_UTC_WORD: Final = re.compile(r"^(\d{4}-\d\d-\d\d) (\S+) UTC$")


def read_bool(text: object) -> object:
    """Return true or false; no other spelling counts."""
    match text:
        case "true":
            return True
        case "false":
            return False
        case bool():
            return text
        case _:
            raise ValueError("write true or false")


def read_instant(text: object) -> object:
    """Return microseconds since the epoch; the text must carry an offset."""
    if not isinstance(text, str):
        return text
    spelled = _UTC_WORD.sub(r"\1T\2Z", _LOST_PLUS.sub(r"+\1", text.strip()))
    return from_rfc3339(spelled)


Bool = Annotated[bool, BeforeValidator(read_bool), WithJsonSchema({"type": "boolean"})]
When = Annotated[
    int,
    BeforeValidator(read_instant),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class StatusClass(IntEnum):
    """The hundred of a status code; 0 = no HTTP answer."""

    NONE = 0
    INFORMATIONAL = 100
    OK = 200
    REDIRECT = 300
    CLIENT = 400
    SERVER = 500


Limit = Annotated[int, Query(ge=0, le=LIST_MAX)]
Iterator = Annotated[
    str | None, Query(description="`iterator` or `prevIterator` of an earlier page")
]
Text = Annotated[str | None, Query()]
Status = Annotated[AttemptStatus | None, Query()]
CodeClass = Annotated[StatusClass | None, Query()]
Bound = Annotated[When | None, Query()]
Content = Annotated[Bool, Query()]


def single(request: Request) -> None:
    """Refuse a query that says one thing twice, or that is no text."""
    seen: set[str] = set()
    for name, value in parse_qsl(
        request.scope["query_string"].decode("latin-1"), keep_blank_values=True
    ):
        if "\0" in name or "\0" in value:
            raise BadRequest("The query holds a NUL character: remove it")
        if _EVENT_TYPES.fullmatch(name) is not None:
            continue
        if name in seen:
            raise BadRequest(f"The query gives `{name[:NAME_MAX]}` twice: give it once")
        seen.add(name)


Single = Depends(single)


def page_in(
    limit: Limit = LIST_DEFAULT, iterator: Iterator = None, _once: None = Single
) -> PageIn:
    """Return the page that the query asks for, in the list's own order."""
    return PageIn(limit=limit, iterator=iterator)


def ordered_page_in(
    limit: Limit = LIST_DEFAULT,
    iterator: Iterator = None,
    order: Annotated[Order | None, Query()] = None,
    _once: None = Single,
) -> PageIn:
    """Return the page that the query asks for."""
    return PageIn(limit=limit, iterator=iterator, order=order)


def event_types_in(
    request: Request,
    event_types: Annotated[
        list[str] | None, Query(description="Comma separated, or given repeatedly")
    ] = None,
) -> Sequence[str] | None:
    """Return the event types of `a,b`, `event_types=`, `event_types[]=`, `[0]=`."""
    del event_types  # declared for the document; the other spellings are read here
    found: list[str] | None = None
    for name, value in request.query_params.multi_items():
        if _EVENT_TYPES.fullmatch(name) is not None:
            found = [*(found or ()), *value.split(",")]
    if found is None:
        return None
    try:
        return tuple(sorted({check_event_type(name) for name in found}))
    except ValueError as error:
        raise ValidationFailed.at(
            "query", "event_types", "event_types", msg=str(error)
        ) from None


Paged = Annotated[PageIn, Depends(page_in)]
Ordered = Annotated[PageIn, Depends(ordered_page_in)]
EventTypes = Annotated[Sequence[str] | None, Depends(event_types_in)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What every time-limited list can be narrowed by."""

    channel: str | None
    tag: str | None
    before: int | None
    after: int | None
    event_types: Sequence[str] | None


def window_in(
    event_types: EventTypes,
    channel: Text = None,
    tag: Text = None,
    before: Bound = None,
    after: Bound = None,
) -> Window:
    """Return the filters that the query asks for."""
    return Window(
        channel=channel, tag=tag, before=before, after=after, event_types=event_types
    )


Windowed = Annotated[Window, Depends(window_in)]


def query_error(faults: Sequence[Any]) -> TenureError:
    """Return the error of parameters that FastAPI could not read."""
    high = [
        ValidationItem(
            loc=("query", str(fault["loc"][-1]), str(fault["loc"][-1])),
            msg=f"at most {LIST_MAX}",
            type="value_error",
        )
        for fault in faults
        if fault["type"] == "less_than_equal"
    ]
    if high and len(high) == len(faults):
        return ValidationFailed(high)
    first = next(fault for fault in faults if fault["type"] != "less_than_equal")
    where = ".".join(str(part) for part in first["loc"])
    return BadRequest(f"Cannot read {where}: {first['msg']}")

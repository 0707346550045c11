"""CEL expressions: checked at save, compiled once, evaluated over a message's facts."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import cel
import msgspec

from tenure.limits import (
    EXPRESSION_BYTES,
    EXPRESSION_INLINE_BYTES,
    EXPRESSION_JOINS_MAX,
    EXPRESSION_NAMES_MAX,
    EXPRESSION_NESTED_MAX,
    EXPRESSIONS_KEPT,
)
from tenure.outbox.relayed import CREDENTIALS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenure.outbox.relayed import Relay

__all__ = [
    "Outcome",
    "Verdict",
    "check_filter",
    "check_transform",
    "evaluate",
    "facts_of",
    "is_short",
    "verdict_of",
]

NAMES: Final = ("type", "channels", "headers", "body", "source", "message")
"""What an expression can name. A transform has no channels: they choose receivers."""

_TYPES: Final = frozenset(
    [
        "bool",
        "bytes",
        "double",
        "duration",
        "int",
        "list",
        "map",
        "null_type",
        "optional",
        "string",
        "timestamp",
        "type",
        "uint",
    ]
)
_MACROS: Final = frozenset(
    {"all", "exists", "exists_one", "existsOne", "map", "filter"}
)
# Strings and comments first: what stands in them is no call. In a raw string a
# backslash escapes nothing.
_TOKEN: Final = re.compile(
    r"//[^\n]*"
    r"|(?:[bB]?[rR]|[rR][bB])(?:'''.*?'''|\"\"\".*?\"\"\"|'[^'\n]*'|\"[^\"\n]*\")"
    r"|[bB]?(?:'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\")"
    r"|[bB]?(?:'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\")"
    r"|[A-Za-z_][A-Za-z0-9_]*|[()\[\]{}.+*]|\S",
    re.DOTALL,
)
# What is called, strings and comments not told apart: a call that seems to be one costs
# little, one that is overlooked would hold the node.
_CALLED: Final = re.compile(r"([A-Za-z_]\w*)(?=(?>\s|//[^\n]*\n)*\()")
_CHEAP: Final = frozenset(
    [
        "has",
        "size",
        "contains",
        "startsWith",
        "endsWith",
        "int",
        "uint",
        "double",
        "string",
        "bool",
        "bytes",
        "dyn",
        "type",
        "timestamp",
        "duration",
        "getFullYear",
        "getMonth",
        "getDate",
        "getDayOfMonth",
        "getDayOfWeek",
        "getDayOfYear",
        "getHours",
        "getMinutes",
        "getSeconds",
        "getMilliseconds",
        "in",
    ]
)
"""Calls whose cost is that of reading what they are given. `matches` is none of them:
a pattern of a few characters can take seconds."""
_FAULT_MAX: Final = 150  # characters of an error that is told


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What an evaluation came to: a value, or why there is none.

    `exceeded` says that the expression ran past its bound: its own fault, not the
    message's.
    """

    value: Any = None
    fault: str | None = None
    exceeded: bool = False


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a filter lets a message through, and why not."""

    matched: bool
    reason: str | None = None
    exceeded: bool = False


class _Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How far an expression can go: macros inside of each other, joins, names."""

    nested: int
    joins: int
    names: int
    bound: frozenset[str]  # by its macros
    cheap: bool  # it calls nothing that may take long


def check_filter(text: str) -> str:
    """Check a filter at save; raises ValueError that names what is wrong and where."""
    _check(text, frozenset(NAMES))
    return text


def check_transform(text: str) -> str:
    """Check a transform at save; raises ValueError."""
    _check(text, frozenset(NAMES) - {"channels"})
    return text


def _check(text: str, names: frozenset[str]) -> None:
    size = len(text.encode())
    if size > EXPRESSION_BYTES:
        raise ValueError(
            f"an expression has at most {EXPRESSION_BYTES} bytes, this one {size}"
        )
    try:
        named = _compiled(text).variables()
    except ValueError as error:
        raise ValueError(f"not a CEL expression: {_refused(error, text)}") from None
    shape = _shape(text)
    if shape.nested > EXPRESSION_NESTED_MAX:
        raise ValueError(
            f"macros (all, exists, map …) stand {shape.nested} deep inside of each"
            f" other; at most {EXPRESSION_NESTED_MAX} are allowed"
        )
    unknown = sorted(set(named) - names - _TYPES - shape.bound)
    if unknown:
        known = ", ".join(name for name in NAMES if name in names)
        raise ValueError(f"{unknown[0][:50]!r} is not known; it can name {known}")


@lru_cache(maxsize=EXPRESSIONS_KEPT)
def _compiled(text: str) -> cel.Program:
    return cel.compile(text)


@lru_cache(maxsize=EXPRESSIONS_KEPT)
def _shape(text: str) -> _Shape:
    """Find the macros by their calls; an identifier of that name alone is none."""
    bound: set[str] = set()
    tokens = [token for token in _TOKEN.findall(text) if not token.startswith("//")]
    opened: list[bool] = []
    nested = joins = names = 0
    for at, token in enumerate(tokens):
        match token:
            case "(":
                macro = at >= 2 and tokens[at - 1] in _MACROS and tokens[at - 2] == "."
                opened.append(macro)
                nested = max(nested, sum(opened))
                if macro and at + 1 < len(tokens):
                    bound.add(tokens[at + 1])
            case "[" | "{":
                opened.append(False)
            case ")" | "]" | "}":
                if opened:
                    opened.pop()
            case "+" | "*":
                joins += 1
            case _:
                names += token.isidentifier()
    return _Shape(
        nested=nested,
        joins=joins,
        names=names,
        bound=frozenset(bound),
        cheap=_CHEAP.issuperset(_CALLED.findall(text)),
    )


def is_short(text: str, body_bytes: int) -> bool:
    """Tell whether an expression cannot take long over a body of this size."""
    shape = _shape(text)
    return (
        shape.cheap
        and shape.joins <= EXPRESSION_JOINS_MAX
        and shape.names <= EXPRESSION_NAMES_MAX
        and body_bytes <= EXPRESSION_INLINE_BYTES
    )


def facts_of(
    *,
    message: str,
    event_type: str,
    channels: Sequence[str],
    headers: Mapping[str, str] | None,
    body: bytes,
    relay: Relay | None,
) -> dict[str, Any]:
    """Return what an expression sees of a message.

    `body` is its JSON, null when it is none; `headers` have lower-case names and the
    first value of each, credentials left out; `source` is null unless it arrived as a
    webhook.
    """
    lines = tuple((headers or {}).items()) if relay is None else relay.headers
    seen: dict[str, str] = {}
    for name, value in lines:
        folded = name.lower()
        if folded not in CREDENTIALS:
            seen.setdefault(folded, value)
    return {
        "type": event_type,
        "channels": list(channels),
        "headers": seen,
        "body": _json(body),
        "source": None if relay is None else relay.source,
        "message": message,
    }


def _json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def evaluate(text: str, facts: Mapping[str, Any]) -> Outcome:
    """Evaluate where it is called; never raises. For what `is_short` allows."""
    try:
        return Outcome(value=_compiled(text).execute(dict(facts)))
    except KeyError as error:
        return Outcome(fault=f"no such key {_said(error)}")
    except (ValueError, TypeError, RuntimeError, ArithmeticError, LookupError) as error:
        return Outcome(fault=_said(error))


def verdict_of(outcome: Outcome) -> Verdict:
    """Return what a filter's outcome means.

    A filter that fails on a message does not match it, and says why; one that ran past
    its bound has said nothing about the message.
    """
    if outcome.exceeded:
        return Verdict(matched=True, reason=outcome.fault, exceeded=True)
    if outcome.fault is not None:
        return Verdict(matched=False, reason=f"filter: {outcome.fault}")
    match outcome.value:
        case True:
            return Verdict(matched=True)
        case False:
            return Verdict(matched=False, reason="filter")
        case _:
            kind = type(outcome.value).__name__
            return Verdict(
                matched=False, reason=f"filter: it gives {kind}, not true or false"
            )


def _refused(error: ValueError, text: str) -> str:
    """Return the parser's words and place, without the expression before them."""
    said = str(error).removeprefix(f"Failed to parse expression '{text}': ")
    return " ".join(said.split())[:_FAULT_MAX]


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text[:_FAULT_MAX] or type(error).__name__

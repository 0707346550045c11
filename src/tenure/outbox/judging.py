"""Payloads against the schema of their event type, before a message is accepted.

An event type says `off`, `warn` or `enforce`; its highest schema version counts. Rules
are remembered for `SCHEMA_CACHE_SECONDS`, which is how long another node may go by the
former one, and are judged here rather than in the transaction that accepts, so that no
lock is held meanwhile. No line and no answer repeats a value of the payload.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from tenure.errors import ValidationFailed, ValidationItem
from tenure.limits import (
    REASON_MAX,
    SCHEMA_CACHE_MAX,
    SCHEMA_CACHE_SECONDS,
    SCHEMA_FAULTS_SHOWN,
    SCHEMA_INLINE_BYTES,
)
from tenure.outbox.fields import compile_schema
from tenure.outbox.ledger.eventtypes import schema_in_force
from tenure.outbox.model import SchemaCheck
from tenure.telemetry.logs import logger

if TYPE_CHECKING:
    import jsonschema_rs

    from tenure.clock import Clock
    from tenure.ids import TenantId
    from tenure.outbox.model import NewMessage
    from tenure.store.backend import Backend
    from tenure.store.tx import Tx

T = TypeVar("T")

log: Final = logger("tenure.outbox")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What one event type asks of a payload; `validator` None = nothing."""

    check: SchemaCheck
    validator: jsonschema_rs.Validator | None = None


class SchemaJudge:
    """Says whether a message may be accepted as far as schemas go."""

    __slots__ = ("_backend", "_clock", "_known")

    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._backend: Final = backend
        self._clock: Final = clock
        self._known: Final[OrderedDict[tuple[str, str], tuple[float, Rule]]] = (
            OrderedDict()
        )

    def changed(self, value: T) -> T:
        """Read every rule again, because an event type was changed; return `value`."""
        self._known.clear()
        return value

    async def misfit(
        self, tenant: TenantId, message: NewMessage
    ) -> ValidationFailed | None:
        """Return why an enforced schema refuses the payload; a `warn` is only logged."""
        rule = await self._rule(tenant, message.event_type)
        if rule.validator is None:
            return None
        body = message.body
        if len(body) <= SCHEMA_INLINE_BYTES:
            faults = faults_of(rule.validator, body)
        else:
            faults = await asyncio.to_thread(faults_of, rule.validator, body)
        return _verdict(rule, faults, tenant, message)

    async def _rule(self, tenant: TenantId, event_type: str) -> Rule:
        name = (tenant, event_type)
        now = self._clock.monotonic()
        held = self._known.get(name)
        if held is not None and now < held[0]:
            return held[1]
        if held is not None:
            # One caller reads it again; those who come meanwhile go by what is known.
            self._known[name] = (now + SCHEMA_CACHE_SECONDS, held[1])
        try:
            check, schema = await self._backend.read(
                partial(schema_in_force, tenant=tenant, name=event_type)
            )
        except BaseException:
            self._known.pop(name, None)
            raise
        validator = None if schema is None else compile_schema(schema)
        rule = Rule(check=check, validator=validator)
        self._known[name] = (self._clock.monotonic() + SCHEMA_CACHE_SECONDS, rule)
        while len(self._known) > SCHEMA_CACHE_MAX:
            self._known.popitem(last=False)
        return rule


def misfit_within(
    tx: Tx, tenant: TenantId, message: NewMessage
) -> ValidationFailed | None:
    """As `SchemaJudge.misfit`, by the rule that this transaction sees."""
    check, schema = schema_in_force(tx, tenant, message.event_type)
    if schema is None:
        return None
    rule = Rule(check=check, validator=_validator(msgspec.json.encode(schema)))
    assert rule.validator is not None
    return _verdict(rule, faults_of(rule.validator, message.body), tenant, message)


@lru_cache(maxsize=SCHEMA_CACHE_MAX)
def _validator(schema: bytes) -> jsonschema_rs.Validator:
    return compile_schema(msgspec.json.decode(schema))


def _verdict(
    rule: Rule, faults: list[ValidationItem], tenant: TenantId, message: NewMessage
) -> ValidationFailed | None:
    """Refuse where the rule enforces; else say so in one line."""
    if not faults:
        return None
    if rule.check is SchemaCheck.ENFORCE:
        return ValidationFailed(faults)
    log.log(
        logging.WARNING,
        "payload misses its schema",
        tenant=tenant,
        event_type=message.event_type,
        faults=[f"{_pointer(each)}: {each.msg}" for each in faults],
    )
    return None


def faults_of(validator: jsonschema_rs.Validator, body: bytes) -> list[ValidationItem]:
    """Return what a schema says against a payload; values are not repeated."""
    try:
        value = json.loads(body)
    except RecursionError:
        return [_fault((), "is nested too deeply to be checked by its schema")]
    except ValueError:
        return [_fault((), "is not JSON, which the schema of its event type asks for")]
    try:
        errors = islice(validator.iter_errors(value), SCHEMA_FAULTS_SHOWN)
        return [_fault(tuple(each.instance_path), each.message) for each in errors]
    except ValueError:  # half of a surrogate pair, which JSON can spell
        return [_fault((), "holds text that no schema can judge")]


def _fault(path: tuple[str | int, ...], msg: str) -> ValidationItem:
    return ValidationItem(
        loc=("body", "payload", *path), msg=msg[:REASON_MAX], type="value_error.schema"
    )


def _pointer(item: ValidationItem) -> str:
    return "/".join(str(part) for part in item.loc[1:])

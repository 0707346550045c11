"""Arguments of a job: from a call to JSON and back, each checked against its type.

The function's own annotations are the schema. They are read once, when the job is
registered, so that a type that JSON cannot carry is refused there and not at 3 a.m.
"""

from __future__ import annotations

import inspect
import typing
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tenure.errors import ConfigInvalid, ValidationFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["OPTIONS", "Parameters"]

OPTIONS: Final = frozenset(
    {"at", "delay", "into", "key", "priority", "tenant", "actor", "note"}
)
"""What `submit` takes for itself, so that no parameter of a job may be called that."""


class Parameters:
    """The parameters of one function."""

    __slots__ = ("_coder", "_signature", "_struct")

    def __init__(self, call: Callable[..., Any], named: str) -> None:
        """Read them. Raises ConfigInvalid for what cannot be a job's."""
        self._signature: Final = inspect.signature(call)
        try:
            hints = typing.get_type_hints(call)
        except (NameError, TypeError) as error:
            raise ConfigInvalid(
                f"job {named}: its annotations cannot be read ({error}); import what"
                " they name at run time too, not only for type checkers"
            ) from None
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        for name, parameter in self._signature.parameters.items():
            if parameter.kind not in _BY_NAME:
                raise ConfigInvalid(
                    f"job {named}: parameter {name!r} cannot be given by name;"
                    " name each parameter, without * and /"
                )
            if name in OPTIONS:
                raise ConfigInvalid(
                    f"job {named}: a parameter named {name!r} would hide what `submit`"
                    " takes under that name; call it otherwise"
                )
            kind = hints.get(name, Any)
            if parameter.default is inspect.Parameter.empty:
                fields.append((name, kind))
            else:
                fields.append((name, kind, msgspec.UNSET))
        try:
            self._struct: Final = msgspec.defstruct(
                "Arguments",
                [
                    field
                    if len(field) == 2
                    else (field[0], field[1] | _UNSET, field[2])
                    for field in fields
                ],
                kw_only=True,
                forbid_unknown_fields=True,
            )
            self._coder: Final = msgspec.json.Decoder(self._struct)
        except TypeError as error:
            raise ConfigInvalid(
                f"job {named}: its arguments cannot travel as JSON: {error}"
            ) from None

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """Return a call's arguments as JSON, checked as `decode` will check them.

        Raises ValidationFailed that names the argument.
        """
        try:
            bound = self._signature.bind(*args, **kwargs)
            raw = msgspec.json.encode(bound.arguments, order="deterministic")
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
            raise ValidationFailed.at("body", "args", msg=str(error)) from None
        self.decode(raw)
        return raw

    def decode(self, raw: bytes) -> dict[str, Any]:
        """Return the keyword arguments that a run is called with.

        Raises ValidationFailed where they do not fit the function's annotations.
        """
        try:
            found = self._coder.decode(raw)
        except msgspec.MsgspecError as error:
            where, _, path = str(error).partition(" - at `$")
            raise ValidationFailed.at(
                "body", "args", *_pointer(path), msg=where
            ) from None
        given = (
            (name, getattr(found, name)) for name in self._struct.__struct_fields__
        )
        return {name: value for name, value in given if value is not msgspec.UNSET}

    @property
    def needed(self) -> tuple[str, ...]:
        """Names of the parameters that have no default."""
        return tuple(
            name
            for name, each in self._signature.parameters.items()
            if each.default is inspect.Parameter.empty
        )


_UNSET: Final = msgspec.UnsetType
_BY_NAME: Final = {
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
}


def _pointer(path: str) -> tuple[str, ...]:
    return tuple(
        part for part in path.rstrip("`").replace("[", ".[").split(".") if part
    )

"""Coordinates: the package that contributes an item, and the item's name there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = [
    "BUILTIN",
    "ENV",
    "Coordinate",
    "check_name",
    "check_package",
    "parse_coordinate",
]

ENV: Final = "env"
"""The package of what an operator makes at run time."""
BUILTIN: Final = "builtin"
"""The package of what comes with Tenure."""
PART_MAX: Final = 100  # characters of a package or a name: both fit a table's column
_PACKAGE: Final = re.compile(r"[a-z][a-z0-9]*(?:[._-][a-z0-9]+)*")
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")
_RESERVED: Final = frozenset({BUILTIN, ENV})


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Coordinate:
    """Who an item belongs to, and how it is called there."""

    package: str
    name: str

    def __str__(self) -> str:
        return f"{self.package}:{self.name}"


def check_package(text: str, *, reserved_ok: bool = False) -> str:
    """Return a package's name. Raises ValueError saying what may stand there."""
    if not text or len(text) > PART_MAX or _PACKAGE.fullmatch(text) is None:
        raise ValueError(
            f"package {text!r}: write small letters and digits, in parts joined by"
            f" . - or _, beginning with a letter, at most {PART_MAX} characters"
        )
    if text in _RESERVED and not reserved_ok:
        raise ValueError(f"package {text!r} is Tenure's own word: take another name")
    return text


def check_name(text: str) -> str:
    """Return an item's name. Raises ValueError saying what may stand there."""
    if not text or len(text) > PART_MAX or _NAME.fullmatch(text) is None:
        raise ValueError(
            f"name {text!r}: write small letters, digits and _, beginning with a letter"
            f" or _, at most {PART_MAX} characters"
        )
    return text


def parse_coordinate(
    text: str, *, package: str | None = None, reserved_ok: bool = False
) -> Coordinate:
    """Return what `package:name` says, or `name` where a package is given.

    Raises ValueError for a name without a package, and for parts that may not be.
    """
    said, colon, name = text.partition(":")
    if not colon:
        if package is None:
            raise ValueError(f"{text!r} names no package: write package:{text}")
        said, name = package, said
    return Coordinate(
        package=check_package(said, reserved_ok=reserved_ok), name=check_name(name)
    )

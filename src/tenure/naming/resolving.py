"""What a bare name means: the caller's own item, else the one that there is."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from tenure.naming.coordinates import BUILTIN, Coordinate

__all__ = ["Ambiguous", "Resolution", "Resolved", "Unknown", "resolve"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """One item is meant. `overlaid`: an operator's changes lie over it."""

    coordinate: Coordinate
    via_builtin: bool = False
    overlaid: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguous:
    """Several packages hold the name: refused, with every candidate in order."""

    candidates: tuple[Coordinate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Nobody holds the name."""

    name: str


Resolution: TypeAlias = Resolved | Ambiguous | Unknown


def resolve(
    name: str,
    holders: Iterable[Coordinate],
    *,
    caller: str | None = None,
    overridden: Collection[Coordinate] = (),
) -> Resolution:
    """Return what a bare name means to a caller (a package, or nobody).

    The caller's own item; else the one holder; a built-in only where nobody else holds
    the name. Two or more holders are refused. The order of `holders` changes nothing.
    """
    holding = sorted({each for each in holders if each.name == name})
    own = [each for each in holding if each.package == caller]
    others = [each for each in holding if each.package != BUILTIN]
    match own or others or holding:
        case []:
            return Unknown(name=name)
        case [one]:
            return Resolved(
                coordinate=one,
                via_builtin=one.package == BUILTIN,
                overlaid=one in overridden,
            )
        case several:
            return Ambiguous(candidates=tuple(several))

"""Former names: which known item a declared coordinate is, and what contradicts itself.

A coordinate that is known leads to its item. One that is not leads to the item that one
of its former names leads to; that is a rename or a move, or both. Else it is new.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tenure.naming.coordinates import Coordinate, parse_coordinate

__all__ = ["Plan", "check_declarations", "parse_formerly", "plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What declared coordinates are: known ids, new ones, and renames (from, to)."""

    ids: Mapping[Coordinate, str]
    added: tuple[Coordinate, ...]
    renamed: tuple[tuple[Coordinate, Coordinate], ...]


def parse_formerly(text: str, package: str) -> Coordinate:
    """Return a former name: `old` in the same package, or `package:old`.

    Raises ValueError for what cannot be a coordinate.
    """
    return parse_coordinate(text, package=package)


def check_declarations(declared: Mapping[Coordinate, Collection[str]]) -> None:
    """Refuse former names that contradict each other.

    Raises ValueError naming both sides: one former name of two items, a former name
    that is still an item's, and with it every cycle.
    """
    claimed: dict[Coordinate, Coordinate] = {}
    for coordinate in sorted(declared):
        for text in declared[coordinate]:
            former = parse_coordinate(text)
            if former in declared:
                raise ValueError(
                    f"{coordinate} says that it was formerly {former}, which is declared"
                    " too: remove one of them"
                )
            if claimed.setdefault(former, coordinate) != coordinate:
                raise ValueError(
                    f"{claimed[former]} and {coordinate} both say that they were"
                    f" formerly {former}: only one can have its history"
                )


def plan(
    known: Mapping[Coordinate, str], declared: Mapping[Coordinate, Collection[str]]
) -> Plan:
    """Return which item each declared coordinate is.

    Raises ValueError where a coordinate and one of its former names lead to different
    items, or two coordinates to one.
    """
    ids: dict[Coordinate, str] = {}
    added: list[Coordinate] = []
    renamed: list[tuple[Coordinate, Coordinate]] = []
    for coordinate in sorted(declared):
        leads = {
            former: known[former]
            for text in declared[coordinate]
            if (former := parse_coordinate(text)) in known
        }
        own = known.get(coordinate)
        found = {*leads.values(), *(() if own is None else (own,))}
        if len(found) > 1:
            names = ", ".join(str(each) for each in sorted(leads))
            raise ValueError(
                f"{coordinate} was formerly {names}, but these are different items with"
                " a history each: remove the former name that is not its own"
            )
        if not found:
            added.append(coordinate)
            continue
        (ids[coordinate],) = found
        if own is None:
            renamed.append((min(leads), coordinate))
    _one_each(ids)
    return Plan(ids=ids, added=tuple(added), renamed=tuple(renamed))


def _one_each(ids: Mapping[Coordinate, str]) -> None:
    holders: dict[str, Coordinate] = {}
    for coordinate, id_ in ids.items():
        if holders.setdefault(id_, coordinate) != coordinate:
            raise ValueError(
                f"{holders[id_]} and {coordinate} are one item under two names: declare"
                " it once, with the other name as `formerly`"
            )

"""What a bare name means, by the table, whatever the order of holders."""

from __future__ import annotations

from itertools import permutations

import pytest

from tenure.naming.coordinates import Coordinate
from tenure.naming.resolving import Ambiguous, Resolved, Unknown, resolve


def at(package: str) -> Coordinate:
    return Coordinate(package=package, name="n")


P, Q, ENV, BUILTIN = at("p"), at("q"), at("env"), at("builtin")


@pytest.mark.parametrize(
    ("holders", "overridden", "nobody", "p", "q"),
    [
        ((P,), (), P, P, P),
        ((P,), (P,), P, P, P),
        ((ENV,), (), ENV, ENV, ENV),
        ((BUILTIN,), (), BUILTIN, BUILTIN, BUILTIN),
        ((P, BUILTIN), (), P, P, P),
        ((P, Q), (), None, P, Q),
        ((P, Q), (P,), None, P, Q),
        ((), (), "unknown", "unknown", "unknown"),
    ],
)
def test_the_table_of_resolution(
    holders: tuple[Coordinate, ...],
    overridden: tuple[Coordinate, ...],
    nobody: object,
    p: object,
    q: object,
):
    for order in permutations(holders):
        for caller, meant in ((None, nobody), ("p", p), ("q", q)):
            found = resolve("n", order, caller=caller, overridden=overridden)
            match meant:
                case Coordinate():
                    assert found == Resolved(
                        coordinate=meant,
                        via_builtin=meant == BUILTIN,
                        overlaid=meant in overridden,
                    )
                case None:
                    assert found == Ambiguous(candidates=(P, Q))
                case _:
                    assert found == Unknown(name="n")


def test_items_of_another_name_hold_nothing():
    other = Coordinate(package="p", name="m")
    assert resolve("n", [other]) == Unknown(name="n")

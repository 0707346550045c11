"""Former names: renames, moves, and what contradicts itself."""

from __future__ import annotations

import pytest

from tenure.naming.coordinates import parse_coordinate
from tenure.naming.spellings import check_declarations, parse_formerly, plan


def declared(**names: str) -> dict[object, tuple[str, ...]]:
    return {
        parse_coordinate(name.replace("__", ":")): tuple(former.split())
        for name, former in names.items()
    }


def known(**names: str) -> dict[object, str]:
    return {parse_coordinate(n.replace("__", ":")): id_ for n, id_ in names.items()}


def test_a_known_coordinate_leads_to_its_item_and_a_former_one_does_too():
    found = plan(
        known(a__x="1", b__y="2"),  # pyright: ignore[reportArgumentType]
        declared(a__x="", c__z="b:y", d__w=""),  # pyright: ignore[reportArgumentType]
    )
    assert {str(c): i for c, i in found.ids.items()} == {"a:x": "1", "c:z": "2"}
    assert [str(c) for c in found.added] == ["d:w"]
    assert [(str(a), str(b)) for a, b in found.renamed] == [("b:y", "c:z")]


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ({"a__x": "a:old", "a__y": "a:old"}, "both say that they were formerly a:old"),
        ({"a__x": "a:y", "a__y": ""}, "formerly a:y, which is declared too"),
        ({"a__x": "a:y", "a__y": "a:x"}, "which is declared too"),
        ({"a__x": "a:x"}, "formerly a:x, which is declared too"),
    ],
)
def test_former_names_that_contradict_each_other_are_refused(
    names: dict[str, str], why: str
):
    with pytest.raises(ValueError, match=why):
        check_declarations(declared(**names))  # pyright: ignore[reportArgumentType]


def test_two_histories_are_never_led_together():
    with pytest.raises(ValueError, match="different items with a history each"):
        plan(
            known(a__x="1", a__y="2"),  # pyright: ignore[reportArgumentType]
            declared(a__x="a:y"),  # pyright: ignore[reportArgumentType]
        )
    with pytest.raises(ValueError, match="one item under two names"):
        plan(
            known(a__x="1", a__y="1"),  # pyright: ignore[reportArgumentType]
            declared(a__x="", a__y=""),  # pyright: ignore[reportArgumentType]
        )


def test_a_former_name_is_of_the_same_package_unless_it_says_another():
    assert str(parse_formerly("old", "billing")) == "billing:old"
    assert str(parse_formerly("app:old", "billing")) == "app:old"

"""Who has the bare name: the table, and that no order of anything decides it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.ids import Random
from tenure.naming.keys import Keyed, allot

UNKNOWN = None
Step = tuple[str, str, list[str]]


@dataclass
class Catalogue:
    """What the catalogue does with keys, in memory: rows, and who declares them."""

    rows: dict[str, Keyed] = field(default_factory=dict[str, Keyed])
    nodes: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])

    def start(self, node: str, packages: Sequence[str]) -> None:
        """A process starts in place of the one of this name."""
        self.nodes[node] = frozenset(packages)
        for package in packages:
            row = self.rows.get(package)
            new = Keyed(id=package, package=package, name="t", key=None, declared=True)
            self.rows[package] = new if row is None else replace(row, installed=True)
        self._allot()

    def stop(self, node: str) -> None:
        self.nodes.pop(node, None)

    def uninstall(self, package: str) -> None:
        """Its rows give their keys up, and no process declares them any more."""
        self.rows[package] = replace(self.rows[package], installed=False, key=None)
        self.nodes = {n: p - {package} for n, p in self.nodes.items()}
        self._allot()

    def _allot(self) -> None:
        declared = frozenset[str]().union(*self.nodes.values())
        rows = [replace(r, declared=r.id in declared) for r in self.rows.values()]
        keys = allot(rows)
        self.rows = {row.id: replace(row, key=keys.get(row.id)) for row in rows}

    @property
    def keys(self) -> dict[str, str]:
        return {id_: row.key for id_, row in self.rows.items() if row.key is not None}


def run(*steps: tuple[str, ...]) -> dict[str, str]:
    catalogue = Catalogue()
    for verb, *what in steps:
        match verb:
            case "start":
                catalogue.stop("n")
                catalogue.start("n", what)
            case "beside":
                catalogue.start("beside", what)
            case "uninstall":
                catalogue.uninstall(what[0])
            case "import":
                catalogue.rows["old"] = Keyed(
                    id="old", package=UNKNOWN, name="t", key=None, declared=False
                )
            case _:
                raise AssertionError(verb)
    return catalogue.keys


TABLE = {
    "S1": ((("start", "a"),), {"a": "t"}),
    "S2": ((("start", "a"), ("start", "a", "b")), {"a": "t", "b": "b:t"}),
    "S3": ((("start", "a", "b", "c"),), {"a": "t", "b": "b:t", "c": "c:t"}),
    "S4": (
        (("start", "a", "b"), ("start", "b"), ("start", "b", "a")),
        {"a": "t", "b": "b:t"},
    ),
    "S5": (
        (("start", "a", "b"), ("uninstall", "a"), ("start", "b", "c")),
        {"b": "b:t", "c": "t"},
    ),
    "S6": ((("start", "a"), ("start", "a")), {"a": "t"}),
    "S7": ((("start", "a", "b"), ("start", "a", "b")), {"a": "t", "b": "b:t"}),
    "S8": ((("start", "a", "b"), ("start", "b", "a")), {"a": "t", "b": "b:t"}),
    "S9": (
        (("start", "a", "b"), ("uninstall", "a"), ("start", "b")),
        {"b": "b:t"},
    ),
    "S10": (
        (("start", "a", "b"), ("uninstall", "b"), ("start", "b")),
        {"a": "a:t", "b": "t"},
    ),
    "S10b": (
        (("beside", "a"), ("start", "a", "b"), ("uninstall", "b"), ("start", "b")),
        {"a": "t", "b": "b:t"},
    ),
    "S11": ((("import",), ("start", "a")), {"a": "t"}),
    "S12": ((("import",), ("start", "a", "b")), {"a": "t", "b": "b:t"}),
}


@pytest.mark.parametrize("name", TABLE)
def test_the_keys_are_those_of_the_table(name: str):
    steps, keys = TABLE[name]
    assert run(*steps) == keys


packages = st.lists(st.sampled_from("abcd"), unique=True, min_size=1)
events = st.one_of(
    st.tuples(st.just("start"), st.sampled_from(["n", "m"]), packages),
    st.tuples(st.just("stop"), st.sampled_from(["n", "m"]), st.just([])),
    st.tuples(st.just("uninstall"), st.sampled_from("abcd"), st.just([])),
)


def apply(catalogue: Catalogue, event: Step) -> None:
    verb, name, what = event
    if verb == "start":
        catalogue.start(name, what)
    elif verb == "stop":
        catalogue.stop(name)
    elif name in catalogue.rows:
        catalogue.uninstall(name)


@given(st.lists(events, max_size=12), st.randoms(use_true_random=False))
def test_no_order_of_loading_changes_a_key(history: list[Step], rng: Random):
    one, other = Catalogue(), Catalogue()
    for verb, name, what in history:
        mixed = list(what)
        rng.shuffle(mixed)
        apply(one, (verb, name, what))
        rows = list(other.rows.items())
        rng.shuffle(rows)
        other.rows = dict(rows)
        apply(other, (verb, name, mixed))
        assert one.keys == other.keys


@given(st.lists(events, max_size=12))
def test_a_key_leads_to_one_item_and_stays_with_one_that_is_declared(
    history: list[Step],
):
    catalogue = Catalogue()
    for event in history:
        before = catalogue.keys
        apply(catalogue, event)
        keys = catalogue.keys
        assert len(set(keys.values())) == len(keys)
        for package in frozenset[str]().union(*catalogue.nodes.values()):
            if package in before:
                assert keys[package] == before[package]
            assert keys[package] in {"t", f"{package}:t"}


def test_an_item_that_was_renamed_asks_for_a_key_like_a_new_one():
    rows = [
        Keyed(id="1", package="a", name="new", key="old", declared=True),
        Keyed(id="2", package="b", name="new", key="new", declared=True),
    ]
    assert allot(rows) == {"1": "a:new", "2": "new"}

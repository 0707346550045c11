import ast
import re
from pathlib import Path

import pytest

from tests.tidy.checkout import ROOT, SOURCE, python_files, shown

BANNED = frozenset(
    {"manager", "service", "helper", "util", "common", "base", "handler"}
)
# Suites that cut across the modules; every other test mirrors one.
SUITES = frozenset(
    {
        "ablation",
        "benchmarks",
        "browser",
        "cases",
        "conformance",
        "crash",
        "examples",
        "fundamentals",
        "interleaving",
        "simulation",
        "stranger",
        "tidy",
        "upgrade",
        "virtual",
    }
)


def words(name: str) -> set[str]:
    """Return the lower-case words of a snake_case or CamelCase name, singular too."""
    parts = {p.lower() for p in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}
    return parts | {part.removesuffix("s") for part in parts}


@pytest.mark.parametrize(
    ("name", "banned"),
    [
        ("JobManager", {"manager"}),
        ("utils", {"util"}),
        ("HTTPHandler", {"handler"}),
        ("database", set[str]()),
        ("Basement", set[str]()),
    ],
)
def test_a_banned_word_is_found_as_a_word(name: str, banned: set[str]):
    assert words(name) & BANNED == banned


def test_no_module_or_class_is_named_by_a_word_that_says_nothing():
    faults: list[str] = []
    for file in python_files("src"):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        faults += [shown(file) for part in parts if words(part) & BANNED]
        tree = ast.parse(file.read_text(encoding="utf-8"))
        faults += [
            f"{shown(file)}: {node.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and words(node.name) & BANNED
        ]
    assert faults == []


def test_no_source_file_or_folder_has_an_underscore_in_its_name():
    faults = [
        shown(file)
        for file in python_files("src")
        for part in file.relative_to(SOURCE).with_suffix("").parts
        if "_" in part and part not in {"__init__", "__main__"}
    ]
    assert faults == []


def mirrors(test: Path) -> bool:
    """Tell whether a test stands where the module that it names stands."""
    place = test.relative_to(ROOT / "tests")
    if place.parts[0] in SUITES:
        return True
    source = SOURCE / place.parent / place.stem.removeprefix("test_")
    return source.with_suffix(".py").is_file() or source.is_dir()


def test_every_test_mirrors_a_module_or_belongs_to_a_suite():
    tests = [f for f in python_files("tests") if f.name.startswith("test_")]
    assert [shown(test) for test in tests if not mirrors(test)] == []

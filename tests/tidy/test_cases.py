"""The pages that name tests name tests that exist, and no case is left out."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from docs.generate import DOCS
from tests.tidy.checkout import python_files

CASES = DOCS / "internals/cases.md"
PAGES = (CASES, DOCS / "explanation/origins.md")
NAMED = re.compile(r"`(test_\w+)`")
LAST = 64


@cache
def known() -> frozenset[str]:
    """Return the name of every test of this checkout."""
    return frozenset(
        node.name
        for file in python_files("tests")
        if file.name.startswith("test_")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page: Path):
    named = NAMED.findall(page.read_text(encoding="utf-8"))
    assert named != []
    assert sorted(set(named) - known()) == []


def test_every_case_has_its_row_in_order():
    first = re.compile(r"^\| (\d+[a-z]?(?:, \d+)*) \|.*`test_", re.MULTILINE)
    listed = [
        case
        for cell in first.findall(CASES.read_text(encoding="utf-8"))
        for case in cell.split(", ")
    ]
    numbers = [int(re.sub(r"\D", "", case)) for case in listed]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(1, LAST + 1))
    assert len(listed) == len(set(listed))

"""What `just ablate` takes out still stands where it looks, and its tests exist."""

import ast

import pytest

from tests.ablation.guards import GUARDS, Guard
from tests.tidy.checkout import ROOT, SOURCE


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_stands_once_in_the_source(guard: Guard):
    for file, text, instead in guard.edits:
        assert text != instead
        found = (SOURCE / file).read_text(encoding="utf-8").count(text)
        assert found == 1, f"{file}: change tests/ablation/guards.py with it"


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_the_tests_that_must_notice_exist(guard: Guard):
    assert guard.tests != ()
    for named in guard.tests:
        file, _, name = named.partition("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        names = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert not name or name.split("[")[0] in names, named


def test_no_two_guards_have_one_name():
    names = [guard.name for guard in GUARDS]
    assert sorted(set(names)) == sorted(names)

import ast
from collections.abc import Iterator
from math import inf
from pathlib import Path

from tests.tidy.checkout import SOURCE, python_files, shown

FILE_LINES_MAX = 600
BODY_LINES_MAX = 60
KERNEL_BODY_LINES_MAX = 40
FOLDERS = ("src", "tests", "docs", "examples", "benchmarks")


def bodies(text: str) -> Iterator[tuple[str, int]]:
    """Yield each function with the lines of its body, docstring not counted."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            if body:
                yield node.name, (body[-1].end_lineno or 0) - body[0].lineno + 1


def body_max(file: Path) -> float:
    if file.is_relative_to(SOURCE / "store" / "migrations" / "versions"):
        return inf  # a list of statements that never changes once released
    in_kernel = file.is_relative_to(SOURCE / "kernel")
    return KERNEL_BODY_LINES_MAX if in_kernel else BODY_LINES_MAX


def test_files_stay_short_enough_to_read():
    lines = {
        shown(file): len(file.read_text(encoding="utf-8").splitlines())
        for file in python_files(*FOLDERS)
    }
    assert {f: n for f, n in lines.items() if n > FILE_LINES_MAX} == {}


def test_function_bodies_fit_on_a_screen():
    long = [
        f"{shown(file)}: {name} has {count} lines"
        for file in python_files(*FOLDERS)
        for name, count in bodies(file.read_text(encoding="utf-8"))
        if count > body_max(file)
    ]
    assert long == []


def test_a_docstring_does_not_count_as_body():
    text = 'def f():\n    """One.\n\n    Two.\n    """\n    a = 1\n    return a\n'
    assert list(bodies(text)) == [("f", 2)]

"""Python in Markdown runs: a fence ``python`` is executed, ``python no-run`` compiled."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.checkout import committed, shown

FENCE = re.compile(
    r"^```python(?P<how>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


def examples() -> list[tuple[str, str, str]]:
    """Return where each example stands, how it is marked, and its text."""
    return [
        (
            f"{shown(page)}:{text.count(chr(10), 0, m.start()) + 2}",
            m["how"].strip(),
            m["code"],
        )
        for page in committed()
        if page.suffix == ".md"
        for text in [page.read_text(encoding="utf-8")]
        for m in FENCE.finditer(text)
    ]


def test_every_example_is_python():
    for place, how, code in examples():
        assert how in {"", "no-run"}, place
        ast.parse(code, filename=place)


def test_examples_run(tmp_path: Path):
    for place, how, code in examples():
        if how == "":
            done = subprocess.run(
                [sys.executable, "-W", "error", "-c", code],
                cwd=tmp_path,
                check=False,
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 0, f"{place}: {done.stderr}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("```python\na = 1\n```\n", [("", "a = 1\n")]),
        ("```python no-run\nb\n```\n", [("no-run", "b\n")]),
        ("```sh\nls\n```\n", list[tuple[str, str]]()),
    ],
)
def test_fences_are_found(text: str, found: list[tuple[str, str]]):
    assert [(m["how"].strip(), m["code"]) for m in FENCE.finditer(text)] == found

"""What the pages say about commands and tests is there."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from tenure.cli.app import command_line
from tests.tidy.checkout import ROOT, committed, python_files, shown


def pages() -> list[Path]:
    return [file for file in committed() if file.suffix == ".md"]


def commands(text: str) -> Iterator[list[str]]:
    """Yield each `tenure …` command of a page as its words."""
    joined = text.replace("\\\n", " ")
    lines = re.findall(r"^(?:uv run )?tenure (.+)$", joined, re.MULTILINE)
    spans = re.findall(r"`(?:uv run )?tenure ([a-z][^`]*)`", joined)
    for found in (*lines, *spans):
        yield shlex.split(found.split("#")[0])


def unknown(words: list[str]) -> str | None:
    """Return what the command line does not know of a command; None when it is good."""
    command = typer.main.get_command(command_line())
    rest = list(words)
    while (children := getattr(command, "commands", None)) is not None:
        if not rest:
            return None
        if rest[0] not in children:
            return rest[0]
        command = children[rest.pop(0)]
    known = {flag for parameter in command.params for flag in parameter.opts}
    flags = [word.split("=")[0] for word in rest if re.match(r"--?[a-zA-Z]", word)]
    return next((f for f in flags if f not in known | {"--help", "-h"}), None)


def test_every_command_in_a_page_exists_with_its_options():
    faults = [
        f"{shown(page)}: tenure {' '.join(words)}: {fault}"
        for page in pages()
        if page.name != "CHANGELOG.md"
        for words in commands(page.read_text(encoding="utf-8"))
        if (fault := unknown(words)) is not None
    ]
    assert faults == []


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["messages", "lisst"], "lisst"),
        (["serve", "--prot", "1"], "--prot"),
        (["messages"], None),
        (["send", "URL", "BODY", "--app", "x"], None),
    ],
)
def test_a_command_that_does_not_exist_would_be_found(
    words: list[str], fault: str | None
):
    assert unknown(words) == fault


@pytest.mark.parametrize("name", ["explanation/origins.md", "internals/cases.md"])
def test_every_test_that_a_page_names_exists(name: str):
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    source = "\n".join(
        file.read_text(encoding="utf-8")
        for file in python_files("tests")
        if file != Path(__file__)
    )
    assert len(named) > 10
    assert {test for test in named if f"def {test}(" not in source} == set()

import re
from pathlib import Path

import pytest

from tests.tidy.checkout import committed, shown

# Written in parts, so that this file does not find itself.
FORBIDDEN = {
    "the host of a package registry": re.compile(
        r"py"
        r"pi\.(?:org|io)|python"
        r"hosted\.org|registry\.npm"
        r"js\.|deb\.deb"
        r"ian"
    ),
    "a path of one machine": re.compile(
        r"(?<![\w.~])/(?:ro" r"ot|ho" r"me|wo" r"rk|Us" r"ers)/\w"
    ),
    "a conflict marker": re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE),
}


def text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""  # an image or another binary


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_committed_file_holds(what: str):
    faults = [
        f"{shown(file)}: {found[0]}"
        for file in committed()
        if (found := FORBIDDEN[what].search(text_of(file)))
    ]
    assert faults == []


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("the host of a package registry", "https://py" + "pi.org/simple"),
        ("the host of a package registry", "https://files.python" + "hosted.org/x"),
        ("a path of one machine", "see /ho" + "me/me/project"),
        ("a conflict marker", "a\n<<<<<<" + "< HEAD\n"),
    ],
)
def test_what_is_forbidden_would_be_found(what: str, text: str):
    assert FORBIDDEN[what].search(text)


def test_the_lock_file_that_names_a_registry_is_not_committed():
    assert "uv.lock" not in {shown(file) for file in committed()}


def test_text_files_end_with_one_newline_and_have_no_trailing_blanks():
    faults: list[str] = []
    for file in committed():
        text = text_of(file)
        if file.suffix in {".py", ".toml"} or file.name in {"justfile", "run"}:
            clean = text == "" or (text.endswith("\n") and not text.endswith("\n\n"))
            if not clean or re.search(r"[ \t]$", text, re.MULTILINE):
                faults.append(shown(file))
    assert faults == []

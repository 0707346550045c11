import re
from pathlib import Path

import pytest

from docs.generate import DOCS, PAGES
from tenure.config import Settings
from tenure.errors import leaves
from tenure.telemetry.events import Event
from tests.tidy.checkout import ROOT, SOURCE, committed, python_files, shown


@pytest.mark.parametrize("page", PAGES)
def test_a_page_made_from_the_source_is_up_to_date(page: str):
    committed_text = (DOCS / page).read_text(encoding="utf-8")
    assert committed_text == PAGES[page](), "run `just docs`"


def test_every_setting_is_documented_with_a_meaning():
    page = (DOCS / "reference/settings.md").read_text(encoding="utf-8")
    for name, field in Settings.model_fields.items():
        assert f"`TENURE_{name.upper()}`" in page
        assert field.description


def test_every_error_code_is_documented():
    page = (DOCS / "reference/errors.md").read_text(encoding="utf-8")
    assert [leaf.code for leaf in leaves() if f"| `{leaf.code}` |" not in page] == []


def test_every_event_is_documented_and_told_somewhere():
    page = (DOCS / "reference/events.md").read_text(encoding="utf-8")
    source = "\n".join(
        file.read_text(encoding="utf-8")
        for file in python_files("src")
        if file != SOURCE / "telemetry" / "events.py"
    )
    assert [event.text for event in Event if f"| `{event.text}` |" not in page] == []
    told = set(re.findall(r"\bEvent\.([A-Z_]+)\b", source))
    assert {event.name for event in Event} - told == set()


def broken_links(page: Path) -> list[str]:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    return [
        f"{shown(page)}: {link}"
        for link in links
        if not re.match(r"[a-z]+:", link) and not (page.parent / link).exists()
    ]


def test_links_between_pages_lead_somewhere():
    pages = [file for file in committed() if file.suffix == ".md"]
    assert [link for page in pages for link in broken_links(page)] == []


def test_architecture_stays_short_enough_to_be_read():
    page = ROOT / "ARCHITECTURE.md"
    assert len(page.read_text(encoding="utf-8").splitlines()) < 200

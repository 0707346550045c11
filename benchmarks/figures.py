"""What a benchmark hands back: figures with their target and verdict, and tables.

Only ratios taken in one run are judged; rates and times are printed beside them.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

REACHED: Final = "reached"
MISSED: Final = "missed"
PRINTED: Final = "—"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the result.

    `ratio` is what `at_least` or `at_most` judges; with neither it is only printed.
    """

    mark: str
    what: str
    measured: str
    ratio: float | None = None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def target(self) -> str:
        """The bound as a reader writes it."""
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return "" if self.at_most is None else f"≤ {self.at_most:g}"

    @property
    def verdict(self) -> str:
        """Whether the bound is kept."""
        if self.ratio is None or not self.target:
            return PRINTED
        low = self.at_least is None or self.ratio >= self.at_least
        high = self.at_most is None or self.ratio <= self.at_most
        return REACHED if low and high else MISSED


@dataclass(slots=True)
class Result:
    """What one or several benchmarks found."""

    figures: list[Figure] = field(default_factory=list[Figure])
    notes: list[str] = field(default_factory=list[str])
    tables: dict[str, str] = field(default_factory=dict[str, str])
    """Further tables, as Markdown, by their title."""

    def add(self, other: Result) -> None:
        """Take over what another result holds."""
        self.figures += other.figures
        self.notes += other.notes
        self.tables |= other.tables

    def as_json(self, facts: dict[str, str]) -> str:
        """Return everything as one JSON object."""
        figures = [
            {**asdict(each), "target": each.target, "verdict": each.verdict}
            for each in self.figures
        ]
        whole = {"facts": facts, "figures": figures, "notes": self.notes}
        return json.dumps({**whole, "tables": self.tables}, ensure_ascii=False)

    def as_markdown(self, facts: dict[str, str]) -> str:
        """Return everything as it stands in the README."""
        lines = ["; ".join(f"{name} {value}" for name, value in facts.items()), ""]
        lines += table(
            ("#", "what", "target", "measured", "verdict"),
            ((f.mark, f.what, f.target, f.measured, f.verdict) for f in self.figures),
        )
        lines += ["", *(f"- {note}" for note in self.notes)]
        for title, text in self.tables.items():
            lines += ["", f"### {title}", "", text]
        return "\n".join(lines).rstrip() + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table line by line."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def median(values: Iterable[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def ratio_of(over: Sequence[float], under: Sequence[float]) -> float:
    """Return the median of the ratios, round by round: drift hits both sides alike."""
    return median(a / b for a, b in zip(over, under, strict=True))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` (0 to 1) of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(values: Sequence[float]) -> str:
    """Return median, lowest and highest as text."""
    return f"{median(values):,.0f} ({min(values):,.0f}-{max(values):,.0f})"


def ms(seconds: float) -> str:
    """Return a time in milliseconds as text."""
    return f"{seconds * 1000:.2f} ms"

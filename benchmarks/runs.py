"""What every benchmark is given: databases, a size, settings to try."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from benchmarks.databases import DIALECTS, Databases, Dialect
from tenure.config import Settings

T = TypeVar("T")
Size = Literal["tiny", "quick", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One call of the benchmarks. `tiny` shows that they work, and measures nothing."""

    databases: Databases
    size: Size
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """`TENURE_*` variables of every node."""
    profile: bool = False
    dialects: tuple[Dialect, ...] = DIALECTS

    def pick(self, *, tiny: T, quick: T, full: T) -> T:
        """Return the value of this run's size."""
        match self.size:
            case "tiny":
                return tiny
            case "quick":
                return quick
            case "full":
                return full

    @property
    def rounds(self) -> int:
        """How many interleaved rounds a ratio is the median of."""
        return self.pick(tiny=1, quick=3, full=5)

    def variants(self) -> dict[str, dict[str, str]]:
        """Return the settings to measure under, by the words that name them.

        Both ways of handing work over, once the product has the setting; one way when
        it is given.
        """
        name = "TENURE_BORN_CLAIMED"
        given = dict(self.settings)
        if "born_claimed" not in Settings.model_fields or name in given:
            return {"": given}
        return {
            ", born claimed off": {**given, name: "off"},
            ", born claimed on": {**given, name: "on"},
        }

    @staticmethod
    def say(text: str) -> None:
        """Show progress, beside the result."""
        print(text, file=sys.stderr, flush=True)

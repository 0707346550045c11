"""The command line: which benchmarks, how large, under which settings."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks.databases import DIALECTS, databases
from benchmarks.facts import facts_of
from benchmarks.figures import Result
from benchmarks.runs import Run

BENCHES: Final = {
    "http_client": "the HTTP client, beside a bare loop and aiohttp",
    "accept": "T1: accept over HTTP, beside a no-op and a commit each",
    "receive": "T8: webhooks received, beside a no-op and a commit each",
    "deliver": "T2: a backlog delivered, beside bare client loops",
    "drain": "T3: work that does nothing, beside other queues",
    "latency": "T4: from submit to the request, on an idle node",
    "growth": "T5, cases 23, 24: a claim beside what must not matter",
    "memory": "T6: the resident set beside a backlog",
    "idle": "T7: statements of an idle node",
    "ticks": "T9: jobs that fire, beside plain inserts and many schedules",
    "bulkhead": "case 9: one endpoint of 30 s beside 200 quick ones",
    "pinned": "case 22: a long transaction pins the oldest snapshot",
}


def options() -> argparse.ArgumentParser:
    """Return what the command line understands."""
    shown = "\n".join(f"  {name:11} {what}" for name, what in BENCHES.items())
    parser = argparse.ArgumentParser(
        prog="just bench",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"Measure. Benchmarks:\n{shown}\n  all         each of them in turn",
    )
    parser.add_argument("which", nargs="+", choices=[*BENCHES, "all"])
    parser.add_argument("--quick", action="store_true", help="smaller, for a glance")
    parser.add_argument("--tiny", action="store_true", help="only shows that they run")
    parser.add_argument("--json", action="store_true", help="print JSON, not Markdown")
    parser.add_argument(
        "--profile", action="store_true", help="add profiles (client, T1 to T3)"
    )
    parser.add_argument("--output", type=Path, help="also write the result there")
    parser.add_argument(
        "--dialect", choices=DIALECTS, help="one database only, where both are measured"
    )
    parser.add_argument(
        "--setting",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a TENURE_* variable of every node; may be repeated",
    )
    return parser


def main() -> int:
    """Run what was asked for and print it; 1 when one of them could not be measured."""
    chosen = options().parse_args()
    names = list(BENCHES) if "all" in chosen.which else chosen.which
    result, failed = Result(), False
    with databases() as made:
        facts = asyncio.run(facts_of(made))
        given = Run(
            databases=made,
            size="tiny" if chosen.tiny else "quick" if chosen.quick else "full",
            settings=dict(pair.split("=", 1) for pair in chosen.setting),
            profile=chosen.profile,
            dialects=(chosen.dialect,) if chosen.dialect else DIALECTS,
        )
        facts["size"] = given.size
        for name in names:
            began = time.monotonic()
            try:
                bench = importlib.import_module(f"benchmarks.{name}")
                result.add(asyncio.run(bench.run(given)))
            except Exception as error:  # noqa: BLE001 - the others are measured all the same
                failed = True
                result.notes.append(f"{name} could not be measured: {error}")
            given.say(f"{name}: {time.monotonic() - began:.0f} s")
    text = result.as_json(facts) if chosen.json else result.as_markdown(facts)
    print(text)
    if chosen.output is not None:
        chosen.output.write_text(text, encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

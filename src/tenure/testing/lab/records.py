"""What the sink wrote down: one line for each request that it read to its end."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Record", "Records"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One request; `at` is microseconds since the epoch by the sink's clock."""

    at: int
    endpoint: str
    attempt: int
    message: str

    def line(self) -> bytes:
        """Return the record as it is written."""
        return f"{self.at} {self.endpoint} {self.attempt} {self.message}\n".encode()


def parsed(line: bytes) -> Record:
    """Return the record that a line holds."""
    at, endpoint, attempt, message = line.decode().split(" ")
    return Record(at=int(at), endpoint=endpoint, attempt=int(attempt), message=message)


class Records:
    """The sink's file, read on from where the last look ended."""

    def __init__(self, file: Path) -> None:
        self._file: Final = file
        self._offset = 0
        self._rest = b""
        self._seen: Final[dict[tuple[str, str], list[int]]] = defaultdict(list)
        self.requests = 0

    @property
    def pairs(self) -> int:
        """How many different (message, endpoint) pairs have arrived."""
        return len(self._seen)

    def look(self) -> None:
        """Read what was written since; not from an event loop."""
        with self._file.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            record = parsed(line)
            self._seen[record.message, record.endpoint].append(record.attempt)
            self.requests += 1

    def missing(self, messages: set[str], endpoints: int) -> int:
        """Return how many pairs of these messages never arrived."""
        arrived = Counter(message for message, _ in self._seen)
        return sum(endpoints - min(endpoints, arrived[each]) for each in messages)

    @property
    def repeated(self) -> int:
        """Return how many requests were not the first of their pair."""
        return self.requests - len(self._seen)

    def doubled(self, count: int) -> tuple[str, ...]:
        """Return some pairs that arrived more than once, with the attempts' numbers."""
        found = [
            f"{message} {endpoint} attempts {sorted(attempts)}"
            for (message, endpoint), attempts in self._seen.items()
            if len(attempts) > 1
        ]
        return tuple(found[:count])

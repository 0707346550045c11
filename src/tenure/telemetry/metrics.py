"""What one process counts and measures, in the text format of Prometheus.

Counting is a dictionary look-up and an addition; nothing here asks the database. Names
begin with `tenure_`, durations are in seconds, and every label has few values: reasons
beyond `METRIC_LABELS_MAX` are counted as `other`, so no receiver can grow the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client import generate_latest as render_registry

from tenure.limits import METRIC_LABELS_MAX
from tenure.telemetry.events import Event

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

FAST: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Buckets of what happens inside of a node and its database."""
SLOW: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 600.0, 86_400.0)
"""Buckets of what receivers and retries take part in."""
OTHER: Final = "other"

M = TypeVar("M", Counter, Histogram)


class _Labelled(Generic[M]):
    """A metric with labels whose children are looked up once.

    `labels()` takes a lock and makes text of every value each time, which each attempt
    would pay for; no counter is ever cleared, so a child stays the right one.
    """

    __slots__ = ("_children", "_metric")

    def __init__(self, metric: M) -> None:
        self._metric: Final = metric
        self._children: Final[dict[tuple[str, ...], M]] = {}

    def of(self, *labels: str) -> M:
        """Return the child of these labels."""
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = self._metric.labels(*labels)
        return child


class Metrics:
    """The counters, histograms and gauges of one engine. Safe from any thread."""

    def __init__(self) -> None:
        self._registry: Final = CollectorRegistry(auto_describe=True)
        self._reasons: Final[set[str]] = set()
        self._attempts: Final = self._counters(
            "attempts", "Attempts that ended here.", ("kind", "outcome", "cause")
        )
        self._attempt_seconds: Final = self._histograms(
            "attempt_seconds", "From the start of an attempt to its end.", SLOW, "kind"
        )
        self._delivery_seconds: Final = self._histograms(
            "delivery_seconds",
            "From the acceptance of a message to its success, by attempt.",
            SLOW,
            "attempt",
        )
        self._accept_seconds: Final = self._histograms(
            "accept_seconds", "Answering one message, by status.", FAST, "status"
        )
        self._commit_seconds: Final = self._histogram(
            "commit_seconds", "One writing transaction, its retries included.", FAST
        )
        self._claim_seconds: Final = self._histogram(
            "claim_seconds", "One walk over the lanes and its claim.", FAST
        )
        self._lag_seconds: Final = self._histogram(
            "loop_lag_seconds", "By how much the event loop was late.", FAST
        )
        self._lost: Final = self._counter(
            "claims_lost", "Claims that this node took back from nodes that are gone."
        )
        self._released: Final = self._counter(
            "claims_released", "Claims handed back before anything was begun."
        )
        self._parked: Final = self._counters(
            "parked", "Rows parked here, by reason.", ("reason",)
        )
        self._late: Final = self._counters(
            "late_results", "Results of claims that were not held any more.", ("kept",)
        )
        self._events: Final = self._counters(
            "events", "Log lines by event, written or not.", ("event",)
        )
        self.accepting = 0
        """Messages that are being accepted just now; the event loop's own."""
        self._gauges: Final[dict[str, Gauge]] = {}

    def _counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(f"tenure_{name}", text, labels, registry=self._registry)

    def _counters(
        self, name: str, text: str, labels: Sequence[str]
    ) -> _Labelled[Counter]:
        return _Labelled(self._counter(name, text, labels))

    def _histogram(
        self, name: str, text: str, buckets: Sequence[float], *labels: str
    ) -> Histogram:
        return Histogram(
            f"tenure_{name}", text, labels, buckets=buckets, registry=self._registry
        )

    def _histograms(
        self, name: str, text: str, buckets: Sequence[float], label: str
    ) -> _Labelled[Histogram]:
        return _Labelled(self._histogram(name, text, buckets, label))

    # --- what is counted as it happens -----------------------------------------------

    def attempted(self, kind: str, outcome: str, cause: str, seconds: float) -> None:
        """Count one attempt that ended; `cause` is short and from a known set."""
        self._attempts.of(kind, outcome, self._known(cause)).inc()
        self._attempt_seconds.of(kind).observe(seconds)

    def delivered(self, attempt: int, seconds: float) -> None:
        """Count a success, so many seconds after its message was accepted."""
        which = "first" if attempt == 1 else "later"
        self._delivery_seconds.of(which).observe(max(0.0, seconds))

    def accepted(self, status: int, seconds: float) -> None:
        """Count one answer to a message that was handed in."""
        self._accept_seconds.of(str(status)).observe(seconds)

    def committed(self, seconds: float) -> None:
        """Count one writing transaction."""
        self._commit_seconds.observe(seconds)

    def claimed(self, seconds: float) -> None:
        """Count one walk with its claim."""
        self._claim_seconds.observe(seconds)

    def lagged(self, seconds: float) -> None:
        """Count by how much the event loop was late this time."""
        self._lag_seconds.observe(seconds)

    def released(self, claims: int = 1) -> None:
        """Count claims that were handed back."""
        self._released.inc(claims)

    def parked(self, reason: str) -> None:
        """Count a row that was parked; what follows a colon is left out."""
        self._parked.of(self._known(reason.partition(":")[0])).inc()

    def told(self, event: Event, fields: Mapping[str, object]) -> None:
        """Count an event; see `Events.listen`."""
        self._events.of(event.text).inc()
        match event:
            case Event.SWEPT:
                rows = fields.get("rows")
                self._lost.inc(rows if isinstance(rows, int) else 1)
            case Event.CLAIM_NO_LONGER_HELD:
                self._late.of("no").inc()
            case Event.LATE_SUCCESS_KEPT:
                self._late.of("yes").inc()
            case _:
                pass

    def _known(self, label: str) -> str:
        if label not in self._reasons:
            if len(self._reasons) >= METRIC_LABELS_MAX:
                return OTHER
            self._reasons.add(label)
        return label

    # --- what is read when somebody asks ---------------------------------------------

    def gauge(
        self,
        name: str,
        text: str,
        values: Iterable[tuple[Mapping[str, str], float]],
        labels: Sequence[str] = (),
    ) -> None:
        """Set a gauge to these values; what it had for other labels is forgotten."""
        known = self._gauges.get(name)
        if known is None:
            known = Gauge(f"tenure_{name}", text, labels, registry=self._registry)
            self._gauges[name] = known
        if labels:
            known.clear()
        for given, value in values:
            (known.labels(**given) if labels else known).set(value)

    def render(self) -> bytes:
        """Return everything as Prometheus reads it."""
        return render_registry(self._registry)

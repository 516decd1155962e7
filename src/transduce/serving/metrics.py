"""Measurements in Prometheus' text format."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from transduce.serving.backend import Backend
from transduce.serving.http import Record

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
TOKEN_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)

REASONS = {
    400: "malformed",
    401: "key",
    403: "forbidden",
    404: "not_found",
    405: "method",
    408: "slow",
    413: "too_large",
    415: "media_type",
    421: "host",
    422: "invalid",
    429: "busy",
    431: "headers",
    499: "disconnected",
    500: "failed",
    503: "unavailable",
    504: "deadline",
}
"""Why a request was rejected, by the status of the answer; 499 is a client that went away."""

METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")

ENGINE: Sequence[tuple[str, str, str]] = (
    ("queue_tokens", "gauge", "Tokens that waiting requests have reserved."),
    ("waiting", "gauge", "Requests that wait."),
    ("active", "gauge", "Requests that are being decoded."),
    ("rows", "gauge", "Rows of the last decoding step."),
    ("steps", "counter", "Decoding steps."),
    ("stepped_rows", "counter", "Rows of all decoding steps; divided by the steps, the mean size of a batch."),
    ("step_seconds", "counter", "Seconds spent in decoding steps."),
    ("encoded_tokens", "counter", "Source tokens that were encoded."),
    ("written_tokens", "counter", "Tokens that were written."),
    ("restarts", "counter", "How often the engine's process was started again."),
    ("resident_bytes", "gauge", "Resident memory of the engine's process."),
)
"""Fields of Statistics, their kind and what they mean."""


class Histogram:
    """Counts of observations at most as large as each bound."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, labels: Mapping[str, str]) -> Iterator[str]:
        """The lines of the text format; buckets are cumulative."""
        total = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            yield _line(f"{name}_bucket", {**labels, "le": bound}, total)
        yield _line(f"{name}_sum", labels, self._sum)
        yield _line(f"{name}_count", labels, total)


class Metrics:
    """Counts of the HTTP side; those of the engines are asked for when they are shown.

    Labels are route templates, models and statuses, never text of a request, so that their number is bounded.
    """

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._rejected: Counter[str] = Counter()
        self._latency: dict[str, Histogram] = {}
        self._first_token: dict[str, Histogram] = {}
        self._per_token: dict[str, Histogram] = {}

    def observe(self, record: Record, method: str, status: int, seconds: float) -> None:
        """Count one request that was answered, or that its client gave up (499)."""
        route = record.route or "other"
        self._requests[route, known_method(method), status] += 1
        if status >= 400:
            self._rejected[REASONS.get(status, "other")] += 1
        self._latency.setdefault(route, Histogram(SECONDS)).observe(seconds)
        if record.model is not None and record.first_token is not None:
            self._first_token.setdefault(record.model, Histogram(SECONDS)).observe(record.first_token)
            if record.output_tokens > 1:
                each = record.job_seconds / (record.output_tokens - 1)
                self._per_token.setdefault(record.model, Histogram(TOKEN_SECONDS)).observe(each)

    def render(self, backends: Iterable[Backend]) -> str:
        """Return everything as text."""
        lines = [*self._http_lines(), *_engine_lines(list(backends))]
        return "\n".join(lines) + "\n"

    def _http_lines(self) -> Iterator[str]:
        yield from _head("transduce_requests_total", "counter", "Requests by route, method and status.")
        for (route, method, status), count in sorted(self._requests.items()):
            yield _line("transduce_requests_total", {"route": route, "method": method, "status": str(status)}, count)
        yield from _head("transduce_rejected_total", "counter", "Requests that were not served, by reason.")
        for reason, count in sorted(self._rejected.items()):
            yield _line("transduce_rejected_total", {"reason": reason}, count)
        for name, label, histograms, meaning in (
            ("transduce_request_seconds", "route", self._latency, "Seconds from a request to the end of its response."),
            ("transduce_time_to_first_token_seconds", "model", self._first_token, "Seconds to a stream's first piece."),
            ("transduce_time_per_token_seconds", "model", self._per_token, "Seconds per further token of a stream."),
        ):
            yield from _head(name, "histogram", meaning)
            for value, histogram in sorted(histograms.items()):
                yield from histogram.lines(name, {label: value})


def known_method(method: str) -> str:
    """A method of HTTP, or "other": what a client makes up is text of its own, which neither log nor metrics have."""
    return method if method in METHODS else "other"


def _engine_lines(backends: Sequence[Backend]) -> Iterator[str]:
    counters = [(backend.info.name, backend.statistics()) for backend in backends]
    yield from _head("transduce_ready", "gauge", "Whether a model takes requests.")
    for backend in backends:
        yield _line("transduce_ready", {"model": backend.info.name}, int(backend.state == "ready"))
    for field, kind, meaning in ENGINE:
        name = f"transduce_{field}_total" if kind == "counter" else f"transduce_{field}"
        yield from _head(name, kind, meaning)
        for model, statistics in counters:
            yield _line(name, {"model": model}, getattr(statistics, field))
    yield from _head("transduce_engine", "gauge", "Further counters of an engine, by name.")
    for model, statistics in counters:
        for extra, value in sorted(statistics.extra.items()):
            yield _line("transduce_engine", {"model": model, "name": extra}, value)


def _head(name: str, kind: str, meaning: str) -> Iterator[str]:
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {kind}"


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    given = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{given}}} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

"""Measurements in Prometheus' text format."""

from __future__ import annotations

import re

from tests.unit.serving.fake_backend import FakeBackend
from tests.unit.serving.front import Front
from transduce.serving.backend import Statistics
from transduce.serving.http import Record
from transduce.serving.metrics import Histogram, Metrics

LINE = re.compile(r'[a-z_]+(\{[a-z]+="[^"\n]*"(,[a-z]+="[^"\n]*")*\})? -?[0-9.e+-]+')


def values(text: str) -> dict[str, float]:
    """Each series and its value; every line must have the form of the text format."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith(("# HELP ", "# TYPE ")):
            assert LINE.fullmatch(line), line
            name, _, value = line.rpartition(" ")
            assert name not in found
            found[name] = float(value)
    return found


def test_buckets_are_cumulative_and_a_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 3.0):
        histogram.observe(value)
    assert list(histogram.lines("x", {"a": "b"})) == [
        'x_bucket{a="b",le="0.1"} 2',
        'x_bucket{a="b",le="1.0"} 3',
        'x_bucket{a="b",le="+Inf"} 4',
        'x_sum{a="b"} 3.65',
        'x_count{a="b"} 4',
    ]


def test_requests_are_counted_by_route_and_rejections_by_reason() -> None:
    front = Front()
    for body in ({"text": "a"}, {"text": "a"}, {"text": "a", "beam_size": 99}, {}):
        front.client.post("/v1/translate", json=body)
    front.client.get("/some/unknown/path")
    front.client.request("BREW", "/health")
    found = values(front.client.get("/metrics").text)
    assert found['transduce_requests_total{route="/v1/translate",method="POST",status="200"}'] == 2
    assert found['transduce_requests_total{route="/v1/translate",method="POST",status="422"}'] == 2
    assert found['transduce_requests_total{route="other",method="GET",status="404"}'] == 1
    assert found['transduce_requests_total{route="/health",method="other",status="405"}'] == 1
    assert found['transduce_rejected_total{reason="invalid"}'] == 2
    assert found['transduce_request_seconds_count{route="/v1/translate"}'] == 4
    assert found['transduce_ready{model="de-en"}'] == 1


def test_streams_are_timed() -> None:
    front = Front()
    front.translator.delay = 0.01
    front.client.post("/v1/translate", json={"text": "a b c", "stream": True})
    found = values(front.client.get("/metrics").text)
    assert found['transduce_time_to_first_token_seconds_count{model="de-en"}'] == 1
    assert 0.01 <= found['transduce_time_to_first_token_seconds_sum{model="de-en"}'] < 5
    assert 0.01 <= found['transduce_time_per_token_seconds_sum{model="de-en"}'] < 5


def test_counters_of_an_engine_are_shown_for_each_model() -> None:
    backend = FakeBackend()
    backend.counters = Statistics(
        queue_tokens=3, waiting=5, active=7, rows=11, steps=13, stepped_rows=17, step_seconds=0.5, encoded_tokens=19,
        written_tokens=23, restarts=2, resident_bytes=1 << 30, extra={"batches": 29.0},
    )  # fmt: skip
    found = values(Metrics().render([backend]))
    for name, value in {
        "queue_tokens": 3, "waiting": 5, "active": 7, "rows": 11, "steps_total": 13, "stepped_rows_total": 17,
        "step_seconds_total": 0.5, "encoded_tokens_total": 19, "written_tokens_total": 23, "restarts_total": 2,
        "resident_bytes": 1 << 30,
    }.items():  # fmt: skip
        assert found[f'transduce_{name}{{model="de-en"}}'] == value
    assert found['transduce_engine{model="de-en",name="batches"}'] == 29


def test_a_label_cannot_break_the_format() -> None:
    metrics = Metrics()
    metrics.observe(Record(model='a"b\\c\nd', first_token=0.1), "GET", 200, 0.1)
    text = metrics.render([])
    assert r'model="a\"b\\c\nd"' in text

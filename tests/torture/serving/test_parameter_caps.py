"""R20: every number of every route has bounds, and every list; beyond them nothing is allocated."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.torture.example import Tally, sizes
from tests.torture.serving.routes import JSON, Document, Operation
from tests.torture.serving.target import Client, Target, percentile
from transduce.serving.limits import Limits

LIMITS = Limits()
CAPS = {
    "beam_size": LIMITS.max_beam_size,
    "beam_groups": LIMITS.max_beam_size,
    "n_best": LIMITS.max_n_best,
    "n": LIMITS.max_n_best,
    "best_of": LIMITS.max_n_best,
    "alternatives": LIMITS.max_n_best - 1,
    "max_length": LIMITS.max_length,
    "min_length": LIMITS.max_length,
    "max_extra": LIMITS.max_length,
    "max_tokens": LIMITS.max_length,
    "max_completion_tokens": LIMITS.max_length,
}
"""Numbers that work or memory grow with, and the server's limit of each; OpenAPI's maximum bounds the others."""
UNBOUNDED = {"seed", "dimensions"}
"""Numbers that nothing grows with; the model's own dimension is the only one that is accepted."""
NEVER = [
    str(2**63),
    str(2**64),
    "1" + "0" * 400,
    "NaN",
    "Infinity",
    "-Infinity",
    "1e308",
    "-1e308",
    '"1"',
    "true",
    "[1]",
    "{}",
]
"""No number of any route may be one of these; 2^63 is no seed either."""
OR_TEXT = {"instead_of"}
"""Numbers that may also be a text."""
RSS_GROWTH = 5 << 20


def cases(document: Document, operation: Operation) -> list[tuple[str, str]]:
    """(parameter, JSON) of values that must be rejected."""
    found = []
    for name, schema in document.numbers(operation):
        values = [value for value in NEVER if not (name in OR_TEXT and value == '"1"')]
        highest = schema.get("maximum", schema.get("exclusiveMaximum"))
        lowest = schema.get("minimum", schema.get("exclusiveMinimum"))
        assert lowest is not None or highest is not None, f"{operation}: {name} has no bounds at all"
        cap = CAPS.get(name)
        if cap is None and name not in UNBOUNDED:
            assert highest is not None, f"{operation}: {name} has no maximum; CAPS or UNBOUNDED must say why"
        most = min((one for one in (cap, highest) if one is not None), default=None)
        if most is not None and name not in UNBOUNDED:
            values += [str(value) for value in (most + 1, 10**6, 2**31, 2**32) if value > most]
        if lowest is not None:
            values += [str(lowest - 1), *([] if lowest <= -1 else ["-1"])]
        if schema["type"] == "integer":
            values += ["1.5", "1e1"]
        if "exclusiveMinimum" in schema:
            values.append(str(schema["exclusiveMinimum"]))
        found += [(name, value) for value in values]
    return found


def with_value(operation: Operation, name: str, value: str) -> bytes:
    """The smallest request of a route with one parameter more, written as it is: json.dumps knows no NaN."""
    fields = {other: json.dumps(given) for other, given in operation.body.items()} | {name: value}
    return ("{" + ", ".join(f'"{other}": {given}' for other, given in fields.items()) + "}").encode()


@sizes(1, 20)
def test_numbers_beyond_their_bounds_are_rejected(size: int, target: Target, tally: Tally) -> None:
    document = Document(target)
    seconds: list[float] = []
    parameters = set()
    with Client(target) as client:
        client.post("/v1/translate", {"text": "a"})
        before = target.resident()
        for _ in range(size):
            for operation in document.operations:
                if JSON not in operation.kinds:
                    continue
                for name, value in cases(document, operation):
                    answer = client.send("POST", operation.filled, with_value(operation, name, value))
                    assert answer.status in (400, 422), (operation, name, value, answer)
                    assert len(answer.body) < 1000
                    seconds.append(answer.seconds)
                    parameters.add((operation.path, name))
        growth = target.resident() - before
    assert len({name for _, name in parameters}) >= 20, "the walk must find the numbers of all routes"
    assert growth <= RSS_GROWTH, f"{growth:,} bytes"
    note = f", {len(parameters)} parameters, p99 {percentile(seconds, 0.99):.1f} ms, memory +{growth / 1e6:.1f} MB"
    tally("numbers beyond their bounds rejected", len(seconds), note)


def test_numbers_at_their_bounds_are_accepted(target: Target) -> None:
    """Otherwise the test above would pass against a server that rejects everything."""
    with Client(target) as client:
        for path, body in (
            ("/v1/translate", {"text": "a", "beam_size": 16, "n_best": 16, "max_length": 1024}),
            ("/v1/generate", {"prompt": "a", "n_best": 16, "max_length": 1024, "seed": 2**63 - 1}),
            ("/v1/completions", {"model": "gpt", "prompt": "a", "n": 16, "temperature": 1.0, "max_tokens": 1024}),
            ("/v1/chat/completions", {"model": "de-en", "messages": [{"role": "user", "content": "a"}], "n": 16}),
            ("/translate", {"q": "a", "source": "de", "target": "en", "alternatives": 15}),
        ):
            if target.is_fake or "model" not in body:
                assert client.post(path, body).status == 200, path


def long_lists() -> list[tuple[str, dict[str, Any]]]:
    """Every list of every route with one entry more than allowed, and with very many."""
    found: list[tuple[str, dict[str, Any]]] = []
    for extra in (1, 50_000):
        texts, terms = ["a"] * (LIMITS.max_texts + extra), ["a"] * (LIMITS.max_terms + extra)
        message = {"role": "user", "content": "a"}
        found += [
            ("/v1/translate", {"text": texts}),
            ("/v1/translate", {"text": "a", "forbid": terms}),
            ("/v1/translate", {"text": "a", "stop": terms}),
            ("/v1/translate", {"text": "a", "glossary": {str(number): "a" for number in range(len(terms))}}),
            ("/v1/generate", {"prompt": texts}),
            ("/v1/generate", {"prompt": "a", "forbid": terms}),
            ("/v1/generate", {"prompt": "a", "stop": terms}),
            ("/v1/predict", {"text": texts}),
            ("/v1/predict", {"text": [["a", "b"]] * len(texts)}),
            ("/v1/predict", {"text": [["a"] * len(terms)]}),
            ("/v1/embed", {"text": texts}),
            ("/studio/api/passes", {"model": 0, "text": "a", "forbid": terms}),
            ("/studio/api/passes", {"model": 0, "text": "a", "prefix_tokens": [1] * (1024 + extra)}),
            ("/studio/api/passes/x/continue", {"tokens": [1] * (1024 + extra)}),
            ("/studio/api/passes/x/intervention", {"words": [1] * (1024 + extra)}),
            ("/studio/api/passes/x/intervention", {"heads": [["cross", 1, 1]] * (1024 + extra)}),
            ("/studio/api/head-summary", {"model": 0, "texts": ["a"] * (64 + extra)}),
            ("/v1/completions", {"model": "gpt", "prompt": texts}),
            ("/v1/completions", {"model": "gpt", "prompt": "a", "stop": ["a"] * (4 + extra)}),
            ("/v1/completions", {"model": "gpt", "prompt": list(range(len(texts)))}),
            ("/v1/chat/completions", {"model": "de-en", "messages": [message] * (LIMITS.max_terms + extra)}),
            (
                "/v1/chat/completions",
                {
                    "model": "de-en",
                    "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * len(terms)}],
                },
            ),
            ("/v1/chat/completions", {"model": "de-en", "messages": [message], "stop": ["a"] * (4 + extra)}),
            ("/v1/embeddings", {"model": "bert", "input": texts}),
            ("/v2/translate", {"text": texts, "target_lang": "EN"}),
            ("/translate", {"q": texts, "source": "de", "target": "en"}),
            ("/detect", {"q": texts}),
            ("/v1/translate", {str(number): 1 for number in range(10_000)}),
        ]
    return found


def test_lists_with_one_entry_too_many_are_rejected(target: Target, tally: Tally) -> None:
    seconds, before = [], target.resident()
    with Client(target) as client:
        for path, body in long_lists():
            answer = client.post(path, body)
            assert answer.status in (400, 413, 422), (path, list(body), answer)
            assert len(answer.body) < 1000
            seconds.append(answer.seconds)
    growth = target.resident() - before
    assert growth <= RSS_GROWTH, f"{growth:,} bytes"
    note = f", p99 {percentile(seconds, 0.99):.1f} ms, memory +{growth / 1e6:.1f} MB"
    tally("lists with too many entries rejected", len(seconds), note)


@pytest.mark.parametrize("value", ["1", "0.5"])
def test_the_walk_writes_requests_that_are_served(value: str, target: Target) -> None:
    with Client(target) as client:
        for operation in Document(target).operations:
            if operation.path == "/v1/translate":
                body = with_value(operation, "length_penalty", value)
                assert client.send("POST", operation.path, body).status == 200

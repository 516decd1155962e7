"""R17: whatever the parameters are, the answer is one that /openapi.json documents, and never an error of the server.

By hypothesis here; `make fuzz` does the same with schemathesis, which knows more ways to break a schema.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.torture.example import Tally, sizes
from tests.torture.serving.routes import Document, encode
from tests.torture.serving.target import Client, Target, percentile

NUMBERS = (-1, 0, 1, 2**31, 2**63, -(2**63), 10**30, 1e308, 5e-324, 0.5, -0.0)
TEXTS = st.text(max_size=30) | st.sampled_from(
    ["", " ", "\0", "</s>", "<pad>", "a" * 300, "\r\n\r\n", "nan", "true", "1"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def from_schema(document: Document, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema allows, as far as it is used here."""
    found = document.alternatives(schema)
    if len(found) > 1:
        return st.one_of([from_schema(document, one) for one in found])
    schema = found[0]
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "string":
            return st.text(min_size=schema.get("minLength", 0), max_size=schema.get("maxLength", 40))
        case "integer":
            return st.integers(schema.get("minimum", 0), schema.get("maximum", 300))
        case "number":
            low = schema.get("minimum", schema.get("exclusiveMinimum", 0.0))
            return st.floats(low, schema.get("maximum", 100.0))
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array":
            least, most = schema.get("minItems", 0), schema.get("maxItems", 4)
            return st.lists(from_schema(document, schema.get("items", {})), min_size=least, max_size=most)
        case "object" if "properties" in schema:
            inner = {name: from_schema(document, one) for name, one in schema["properties"].items()}
            required = {name: inner.pop(name) for name in schema.get("required", ())}
            return st.fixed_dictionaries(required, optional=inner)
        case "object":
            return st.dictionaries(TEXTS, from_schema(document, schema.get("additionalProperties", {})), max_size=3)
    return VALUES


@st.composite
def requests(draw: st.DrawFn, document: Document) -> tuple[Any, str, Any]:
    """An operation, how its parameters are sent, and the parameters: allowed ones, of which some are replaced."""
    operation = draw(st.sampled_from(document.operations))
    kind = draw(st.sampled_from(operation.kinds or ["query"]))
    properties = document.schema_of(operation).get("properties", {})
    if draw(st.integers(0, 19)) == 0 and kind != "query":
        return operation, kind, draw(VALUES)
    fields = dict(operation.body)
    for name in draw(st.lists(st.sampled_from(sorted(properties)), max_size=4, unique=True)) if properties else ():
        fields[name] = draw(from_schema(document, properties[name]) if draw(st.booleans()) else VALUES)
    if draw(st.integers(0, 9)) == 0:
        fields[draw(TEXTS)] = draw(VALUES)
    if draw(st.integers(0, 9)) == 0 and fields:
        del fields[draw(st.sampled_from(sorted(fields)))]
    return operation, kind, fields


@sizes(300, 10_000)
def test_every_answer_is_documented(size: int, target: Target, tally: Tally) -> None:
    document = Document(target)
    rejected: list[float] = []
    statuses: dict[int, int] = {}

    @settings(
        max_examples=size, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(requests(document))
    def attack(drawn: tuple[Any, str, Any]) -> None:
        operation, kind, fields = drawn
        path, body, headers = encode(operation, kind, fields)
        answer = client.send(operation.method, path, body, headers)
        assert document.problem(operation, answer) is None, (document.problem(operation, answer), kind, fields)
        assert answer.status < 500 or operation.path == "/ready", fields
        statuses[answer.status] = statuses.get(answer.status, 0) + 1
        if answer.status >= 400:
            rejected.append(answer.seconds)

    with Client(target) as client:
        attack()
    assert rejected
    assert len(statuses) > 1, "a fuzzer whose requests all have the same fate tests nothing"
    note = f", statuses {dict(sorted(statuses.items()))}, rejected p99 {percentile(rejected, 0.99):.1f} ms"
    tally("requests by hypothesis with an answer that is documented", sum(statuses.values()), note)

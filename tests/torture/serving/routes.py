"""The routes of a server as its own /openapi.json describes them, and whether an answer is as documented."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import quote_plus

import jsonschema

from tests.torture.serving.target import Answer, Client, Target

JSON, FORM = "application/json", "application/x-www-form-urlencoded"
PAGES = ("/docs", "/docs.css", "/docs.js", "/metrics", "/", "/studio/page/{asset}")
"""Routes whose answers are no JSON."""
BODIES: dict[str, dict[str, Any]] = {
    "/v1/translate": {"text": "ein Hund"},
    "/v1/generate": {"prompt": "ein Hund"},
    "/v1/predict": {"text": "ein Hund"},
    "/v1/embed": {"text": "ein Hund"},
    "/v1/completions": {"model": "gpt", "prompt": "ein Hund"},
    "/v1/chat/completions": {"model": "de-en", "messages": [{"role": "user", "content": "ein Hund"}]},
    "/v1/embeddings": {"model": "bert", "input": "ein Hund"},
    "/v2/translate": {"text": "ein Hund", "source_lang": "DE", "target_lang": "EN"},
    "/translate": {"q": "ein Hund", "source": "de", "target": "en"},
    "/detect": {"q": "ein Hund"},
    "/studio/api/translate": {"model": 0, "text": "ein Hund"},
    "/studio/api/passes": {"model": 0, "text": "ein Hund"},
    "/studio/api/passes/{id}/neuron": {"kind": "cross", "layer": 1, "head": 1},
    "/studio/api/passes/{id}/continue": {"tokens": [5]},
    "/studio/api/passes/{id}/patch": {"other": "ein Hund"},
    "/studio/api/head-summary": {"model": 0, "texts": ["ein Hund"]},
}
"""The smallest request of each route with a required parameter; names and languages are those of the fake models."""


@dataclass(frozen=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    described: dict[str, Any] = field(repr=False)
    values: dict[str, str] = field(default_factory=dict, repr=False)
    """Values of the path's parameters."""

    @property
    def kinds(self) -> list[str]:
        """How its parameters may be sent: as JSON, as a form, in the query string."""
        found = list(self.described.get("requestBody", {}).get("content", {}))
        has_query = any(one["in"] == "query" for one in self.described.get("parameters", ()))
        return [*found, *(["query"] if has_query else [])]

    @property
    def body(self) -> dict[str, Any]:
        """The smallest request that is served."""
        return BODIES.get(self.path, {})

    @property
    def filled(self) -> str:
        """The path with its parameters filled in."""
        return re.sub(r"\{(\w+)\}", lambda match: self.values.get(match[1], "de-en"), self.path)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Document:
    """The OpenAPI document of a server."""

    def __init__(self, target: Target) -> None:
        with Client(target) as client:
            self.table: dict[str, Any] = client.send("GET", "/openapi.json").json()
            names = [one["id"] for one in client.send("GET", "/v1/models").json()["data"]]
            recorded = client.post("/studio/api/passes", {"model": 0, "text": "ein Hund"})
        self.models: list[str] = names
        self.values = {"kind": "cross", "layer": "1", "index": "0", "asset": "base.css"}
        if recorded.status == 200:
            self.values["id"] = recorded.json()["id"]
        self._validators: dict[str, jsonschema.Draft202012Validator] = {}

    @cached_property
    def operations(self) -> list[Operation]:
        """All methods of all paths."""
        return [
            Operation(method.upper(), path, described, self.values)
            for path, methods in self.table["paths"].items()
            for method, described in methods.items()
        ]

    def schema_of(self, operation: Operation) -> dict[str, Any]:
        """The schema of the parameters: of the JSON body, or else of the query."""
        content = operation.described.get("requestBody", {}).get("content", {})
        if JSON in content:
            return self.resolve(content[JSON]["schema"])
        found = [one for one in operation.described.get("parameters", ()) if one["in"] == "query"]
        return {"type": "object", "properties": {one["name"]: one["schema"] for one in found}}

    def resolve(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Follow references to the components."""
        while "$ref" in schema:
            schema = self.table["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        return schema

    def numbers(self, operation: Operation) -> Iterator[tuple[str, dict[str, Any]]]:
        """The parameters of an operation that are numbers, with the schema of the number."""
        for name, schema in self.schema_of(operation).get("properties", {}).items():
            for one in self.alternatives(schema):
                if one.get("type") in ("integer", "number"):
                    yield name, one

    def alternatives(self, schema: dict[str, Any]) -> list[dict[str, Any]]:
        """The schemas that `anyOf` lists, or the schema itself."""
        schema = self.resolve(schema)
        return [self.resolve(one) for one in schema.get("anyOf", [schema])]

    def validator(self, schema: dict[str, Any]) -> jsonschema.Draft202012Validator:
        """What checks values against a schema of the document."""
        key = json.dumps(schema)
        if key not in self._validators:
            whole = {**schema, "components": self.table["components"]}
            self._validators[key] = jsonschema.Draft202012Validator(whole)
        return self._validators[key]

    def problem(self, operation: Operation, answer: Answer) -> str | None:
        """What of an answer is not as documented."""
        responses = operation.described["responses"]
        if str(answer.status) not in responses:
            return f"{operation}: status {answer.status} is not documented: {answer.body[:200]!r}"
        content = responses[str(answer.status)].get("content", {})
        kind = answer.header("content-type").split(";")[0]
        if kind not in content:
            return f"{operation}: content type {kind!r} is not documented for {answer.status}"
        if kind != JSON or "schema" not in content[kind]:
            return None
        error = next(self.validator(content[kind]["schema"]).iter_errors(answer.json()), None)
        return None if error is None else f"{operation}: {answer.status} is not as documented: {error.message[:200]}"


def encode(operation: Operation, kind: str, fields: Any) -> tuple[str, bytes | None, list[tuple[str, str]]]:
    """The path, body and headers that send parameters in one of the kinds of an operation."""
    path = operation.filled
    if kind == "query":
        query = urlencode(fields)
        return f"{path}?{query}" if query else path, None, []
    if kind == FORM:
        return path, urlencode(fields).encode(), [("Content-Type", FORM)]
    return path, json.dumps(fields).encode(), []


def urlencode(fields: Any) -> str:
    """Fields of a form: lists are repeated, other values than texts are written as JSON."""
    pairs = []
    for name, value in fields.items() if isinstance(fields, dict) else [("q", fields)]:
        for one in value if isinstance(value, list) else [value]:
            text = one if isinstance(one, str) else json.dumps(one)
            pairs.append(f"{quote_plus(name, errors='replace')}={quote_plus(text, errors='replace')}")
    return "&".join(pairs)

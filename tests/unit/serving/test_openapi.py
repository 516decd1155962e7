"""The OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from tests.unit.serving.front import BEARER, KEY, Front


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = Front(keys=(KEY,)).client.get("/openapi.json", headers=BEARER).json()
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from [inner] if name == "$ref" else references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_every_route_is_described(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    assert {"title", "version"} <= document["info"].keys()
    front = Front()
    routes = {(route.path, method.lower()) for route in front.app.routes for method in route.methods}
    described = {(path, method) for path, method, _ in operations(document)}
    assert {(re.sub(r":\w+\}", "}", path), method) for path, method in routes if method != "head"} == described


def test_every_reference_leads_to_a_valid_schema(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    found = set(references(document))
    assert found
    assert {reference.removeprefix("#/components/schemas/") for reference in found} <= schemas.keys()


def test_operations_have_what_the_standard_requires(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(names)) == len(names)
    for path, method, operation in operations(document):
        assert method in ("get", "post", "put", "delete")
        assert operation["responses"]["200"]["description"]
        assert all(response["description"] for response in operation["responses"].values())
        assert operation["summary"]
        given = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"}
        assert given == set(re.findall(r"\{(\w+)\}", path))
        is_open = path in ("/health", "/ready", "/", "/studio/page/{asset}")
        assert operation["security"] == ([] if is_open else [{"bearer": []}, {"header": []}])


def resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "components": document["components"]}


def test_examples_answers_and_errors_have_the_described_form(document: dict[str, Any]) -> None:
    front, checked = Front(), 0
    for path, method, operation in operations(document):
        if "requestBody" not in operation:
            continue
        content = operation["requestBody"]["content"]["application/json"]
        if "example" not in content:
            continue
        jsonschema.validate(content["example"], resolved(document, content["schema"]))
        answer = front.client.request(method, path, json=content["example"])
        assert answer.status_code == 200, path
        described = operation["responses"]["200"]["content"]
        assert answer.headers["content-type"].split(";")[0] in described
        schema = described.get("application/json", {}).get("schema", {})
        if "application/json" in described:
            jsonschema.validate(answer.json(), resolved(document, schema))
        error = front.client.request(method, path, json={"unknown": 1})
        described = operation["responses"][str(error.status_code)]
        assert "invalid" in described["description"], path
        jsonschema.validate(error.json(), resolved(document, described["content"]["application/json"]["schema"]))
        checked += 1
    assert checked >= 10


def test_one_status_is_described_for_invalid_parameters(document: dict[str, Any]) -> None:
    found = {
        (operation["tags"][0], status)
        for _, _, operation in operations(document)
        for status, response in operation["responses"].items()
        if "A parameter is invalid" in response["description"] or status == "422"
    }
    invalid = {"Transduce": "422", "OpenAI": "400", "DeepL": "400", "LibreTranslate": "400", "Studio": "422"}
    assert found == set(invalid.items())


def test_parameters_are_explained(document: dict[str, Any]) -> None:
    properties = document["components"]["schemas"]["TranslateRequest"]["properties"]
    assert {"text", "beam_size", "glossary", "stream"} <= properties.keys()
    assert "keep" not in properties, "regular expressions of clients are never compiled"
    assert "beam search" in properties["beam_size"]["description"]

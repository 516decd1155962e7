"""The Kubernetes manifests: their schema, and that they agree with each other and with the server."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from tests.deploy.files import instructions
from tests.deploy.kubernetes_schema import MANIFESTS, SCHEMA, every_manifest, manifests
from tests.unit.serving.front import Front
from transduce.serving.connection import Timeouts
from transduce.serving.fair_queue import FairQueue
from transduce.serving.limits import Limits
from transduce.serving.security import OPEN_ROUTES

FOUND = manifests()
POD: dict[str, Any] = FOUND["Deployment"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
LABELS = {"app.kubernetes.io/name": "transduce"}
PROBES = {name: CONTAINER[f"{name}Probe"] for name in ("startup", "readiness", "liveness")}


def test_manifests_have_the_schema_of_kubernetes() -> None:
    kinds = json.loads(SCHEMA.read_text(encoding="utf-8"))["kinds"]
    found = every_manifest()
    assert set(kinds) == set(found)
    for kind, several in found.items():
        for manifest in several:
            jsonschema.validate(manifest, kinds[kind])


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("spec", "template", "spec", "containers", 0, "readinesProbe"), {}),
        (("spec", "template", "spec", "containers", 0, "ports", 0, "containerPort"), "8000"),
        (("spec", "template", "spec", "containers", 0, "livenessProbe", "httpGet", "port"), None),
        (("spec", "replicas"), "2"),
        (("spec", "selector"), None),
    ],
)
def test_the_schema_finds_wrong_names_and_types(place: tuple[Any, ...], value: Any) -> None:
    damaged = json.loads(json.dumps(FOUND["Deployment"]))
    inner = damaged
    for step in place[:-1]:
        inner = inner[step]
    if value is None:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(damaged, json.loads(SCHEMA.read_text(encoding="utf-8"))["kinds"]["Deployment"])


def test_every_file_is_part_of_the_kustomization() -> None:
    listed = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    assert {path.name for path in MANIFESTS.glob("*.yaml")} == {"kustomization.yaml", *listed}


@pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="renders the folder by kubectl; installing kubectl removes this skip"
)
def test_kubectl_renders_the_folder() -> None:
    done = subprocess.run(["kubectl", "kustomize", str(MANIFESTS)], capture_output=True, text=True, check=True)
    rendered = {one["kind"]: one for one in yaml.safe_load_all(done.stdout)}
    assert rendered == FOUND


def test_selectors_are_the_labels_of_the_pods() -> None:
    specs = {kind: manifest["spec"] for kind, manifest in FOUND.items()}
    assert specs["Deployment"]["template"]["metadata"]["labels"] == LABELS
    assert specs["Deployment"]["selector"]["matchLabels"] == LABELS
    assert specs["Service"]["selector"] == LABELS
    assert specs["PodDisruptionBudget"]["selector"]["matchLabels"] == LABELS
    assert specs["NetworkPolicy"]["podSelector"]["matchLabels"] == LABELS
    target = specs["HorizontalPodAutoscaler"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", FOUND["Deployment"]["metadata"]["name"])


def test_ports_are_named_and_the_one_that_the_image_listens_on() -> None:
    (port,) = CONTAINER["ports"]
    last = {one.name: one for one in instructions() if one.stage == 1}
    assert str(port["containerPort"]) == last["EXPOSE"].value
    (service,) = FOUND["Service"]["spec"]["ports"]
    (rule,) = FOUND["NetworkPolicy"]["spec"]["ingress"]
    named = [service["targetPort"], rule["ports"][0]["port"], *(probe["httpGet"]["port"] for probe in PROBES.values())]
    assert set(named) == {port["name"]}


def test_probes_call_routes_that_need_no_key() -> None:
    paths = {name: probe["httpGet"]["path"] for name, probe in PROBES.items()}
    assert paths == {"startup": "/ready", "readiness": "/ready", "liveness": "/health"}
    assert set(paths.values()) <= set(OPEN_ROUTES)


def test_the_server_answers_a_probe_that_calls_it_by_the_address_of_its_pod() -> None:
    """The kubelet sends the address as Host, which --allowed-host=$(POD_IP) allows."""
    (name,) = [one["name"] for one in CONTAINER["env"] if one["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"]
    hosts = [one.partition("=")[2] for one in CONTAINER["args"] if one.startswith("--allowed-host=")]
    assert f"$({name})" in hosts
    for address, host in (("10.1.2.3", "10.1.2.3:8000"), ("fd00::7", "[fd00::7]:8000")):
        allowed = tuple(address if one == f"$({name})" else one for one in hosts)
        client = Front(keys=("key",), hosts=allowed).client
        for path in ("/health", "/ready"):
            assert client.get(path, headers={"Host": host}).status_code == 200
        assert client.get("/health", headers={"Host": "10.9.9.9:8000"}).status_code == 421


def test_a_pod_has_time_to_finish_what_runs() -> None:
    command, seconds = CONTAINER["lifecycle"]["preStop"]["exec"]["command"]
    assert command == "sleep"
    assert POD["terminationGracePeriodSeconds"] > int(seconds) + Timeouts().shutdown + 5


def test_a_pod_has_no_rights_that_it_does_not_need() -> None:
    assert POD["securityContext"]["runAsNonRoot"] is True
    last = {one.name: one for one in instructions() if one.stage == 1}
    user = "{runAsUser}:{runAsGroup}".format(**POD["securityContext"])
    assert user == last["USER"].value
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert POD["automountServiceAccountToken"] is False
    mounts = {mount["name"]: mount for mount in CONTAINER["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in POD["volumes"]}
    assert [name for name, mount in mounts.items() if not mount.get("readOnly")] == ["tmp"]
    assert set(CONTAINER["resources"]["limits"]) == {"cpu", "memory"}
    assert f"--threads={CONTAINER['resources']['limits']['cpu']}" in CONTAINER["args"]


def test_keys_and_models_are_where_the_arguments_say() -> None:
    mounts = {mount["name"]: mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    options = dict(one.split("=", 1) for one in CONTAINER["args"] if one.startswith("--"))
    assert options["--api-key-file"].startswith(f"{mounts['keys']}/")
    folders = [one for one in CONTAINER["args"] if not one.startswith("--")]
    assert folders and all(folder.startswith(f"{mounts['models']}/") for folder in folders)
    assert "Secret" not in FOUND, "a key in the repository is no secret"


def test_the_autoscaler_uses_a_metric_that_the_server_has() -> None:
    spec = FOUND["HorizontalPodAutoscaler"]["spec"]
    (metric,) = spec["metrics"]
    client = Front().client
    assert f"\n{metric['pods']['metric']['name']}{{" in client.get("/metrics").text
    queue: FairQueue[Any] = FairQueue(Limits().max_queue_tokens)
    assert 0 < int(metric["pods"]["target"]["averageValue"]) < queue.max_tokens / 2
    assert spec["minReplicas"] == FOUND["Deployment"]["spec"]["replicas"] < spec["maxReplicas"]


def test_no_container_runs_an_image_of_an_unknown_place() -> None:
    assert [image for image in images(FOUND) if "/" in image] == []


def images(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (inner for name, inner in value.items() if name == "image")
        yield from (image for inner in value.values() for image in images(inner))
    elif isinstance(value, list):
        yield from (image for inner in value for image in images(inner))

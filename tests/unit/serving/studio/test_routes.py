"""The routes of the studio over fake models: limits, errors, ids, cancellation."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.unit.serving.fake_backend import FakeBackend
from tests.unit.serving.front import BEARER, KEY, Front
from transduce.serving.app import create_app
from transduce.serving.job import InspectJob, JobError, RecordJob
from transduce.serving.limits import Limits
from transduce.serving.security import ServerSettings
from transduce.serving.service import Service
from transduce.serving.studio.passes import PassCache
from transduce.serving.studio.recording import events

TEXT = {"model": 0, "text": "ein Hund"}


@pytest.fixture
def front() -> Front:
    return Front()


def post(front: Front, path: str, body: Any) -> Any:
    return front.client.post(f"/studio/api/{path}", json=body)


def test_the_studio_can_be_switched_off() -> None:
    app = create_app(Service([FakeBackend()], Limits()), ServerSettings(studio=False))
    assert not any(route.path == "/" or route.path.startswith("/studio") for route in app.routes)  # type: ignore[attr-defined]


def test_a_pass_is_kept_and_its_views_get_what_repeats_it(front: Front) -> None:
    recorded = post(front, "passes", {**TEXT, "forbid": ["dog"], "search": {"beam_size": 2}}).json()
    assert recorded["model"] == 0 and recorded["output"] == "EIN HUND"
    post(front, f"passes/{recorded['id']}/lens", {"top": 3})
    job = front.translator.jobs[-1]
    assert isinstance(job, InspectJob) and (job.view, job.parameters) == ("lens", {"top": 3})
    assert job.recorded == RecordJob(text="ein Hund", forbid=["dog"], search={"beam_size": 2})
    assert (job.source_tokens, job.target_tokens) == ([5, 6, 2], [1, 7, 2])


def test_a_pass_that_is_gone_is_not_found(front: Front) -> None:
    for path, body in (("lens", {}), ("continue", {"tokens": [1]}), ("patch", {"other": "a"})):
        answer = post(front, f"passes/unknown/{path}", body)
        assert answer.status_code == 404 and "translate again" in answer.json()["error"]["message"]
    assert front.client.get("/studio/api/passes/unknown/attention/cross/1").status_code == 404
    assert front.translator.jobs == []


BAD: list[tuple[str, dict[str, Any]]] = [
    ("text", {"model": 0, "text": ""}),
    ("text", {"model": 0, "text": "   \n"}),
    ("text", {"model": 0}),
    ("text", {"model": 0, "text": ["a"]}),
    ("model", {"model": 9, "text": "a"}),
    ("model", {"model": -1, "text": "a"}),
    ("model", {"model": True, "text": "a"}),
    ("model", {"model": "0", "text": "a"}),
    ("search", {**TEXT, "search": {"beam_sise": 3}}),
    ("beam_size", {**TEXT, "search": {"beam_size": 17}}),
    ("max_length", {**TEXT, "search": {"max_length": 1025}}),
    ("search", {**TEXT, "search": {"beam_size": 0}}),
    ("search", {**TEXT, "search": {"n_best": 2}}),
    ("temperature", {**TEXT, "search": {"method": "beam", "temperature": 0.5}}),
    ("search", {**TEXT, "search": {"method": "greedy"}, "force": ["a"]}),
    ("forbid", {**TEXT, "forbid": [""]}),
    ("forbid", {**TEXT, "forbid": ["a"] * 257}),
    ("force", {**TEXT, "force": ["a"] * 65}),
    ("terms", {**TEXT, "terms": {"a": " "}}),
    ("prefix_tokens", {**TEXT, "prefix_tokens": [1] * 1025}),
    ("prefix_tokens", {**TEXT, "prefix_tokens": [-1]}),
    ("checkpoint", {**TEXT, "checkpoint": 0}),
    ("second", {**TEXT, "second": "b"}),
    ("source_language", {**TEXT, "source_language": "xx"}),
    ("folder", {**TEXT, "folder": "/etc"}),
]


@pytest.mark.parametrize(("parameter", "body"), BAD)
def test_a_bad_request_is_rejected_before_any_work(front: Front, parameter: str, body: dict[str, Any]) -> None:
    answer = post(front, "passes", body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"]["parameter"] == parameter
    assert front.translator.jobs == []


@pytest.mark.parametrize(
    ("view", "body", "parameter"),
    [
        ("neuron", {"kind": "other", "layer": 1, "head": 1}, "kind"),
        ("neuron", {"kind": "cross", "layer": 0, "head": 1}, "layer"),
        ("neuron", {"kind": "cross", "layer": 1, "head": 1001}, "head"),
        ("neuron", {"kind": "cross", "layer": 1, "head": 1, "row": 2**63}, "row"),
        ("lens", {"top": 21}, "top"),
        ("attribution", {"method": "x"}, "method"),
        ("beam-tree", {"beam_size": 17}, "beam_size"),
        ("continue", {"tokens": [1] * 1025}, "tokens"),
        ("continue", {}, "tokens"),
        ("intervention", {"heads": [["cross", 1]]}, "heads"),
        ("intervention", {"heads": [["cross", 1, 1]] * 1025}, "heads"),
        ("intervention", {"words": [-1]}, "words"),
        ("patch", {"other": "a", "where": ["nowhere", 1]}, "where"),
        ("patch", {"other": ""}, "other"),
        ("embeddings", {"x": 1}, "x"),
    ],
)
def test_parameters_of_views_are_checked_before_any_work(
    front: Front, view: str, body: dict[str, Any], parameter: str
) -> None:
    id = post(front, "passes", TEXT).json()["id"]
    answer = post(front, f"passes/{id}/{view}", body)
    assert answer.status_code == 422 and answer.json()["error"]["parameter"] == parameter
    assert len(front.translator.jobs) == 1


def test_a_busy_model_is_passed_on_with_a_time_to_try_again(front: Front) -> None:
    front.translator.error = JobError("busy", "too many tokens", retry_after=3.0)
    for path in ("passes", "translate"):
        answer = post(front, path, TEXT)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")


def test_an_error_within_a_stream_is_its_last_event(front: Front) -> None:
    async def pieces() -> Any:
        yield json.dumps({"event": "segments", "before": "", "segments": []})
        raise JobError("deadline", "too late")

    async def collect() -> list[str]:
        model = (0, front.translator)
        return [event async for event in events(pieces(), PassCache(1 << 20), model, RecordJob(text="a"))]

    last = json.loads(asyncio.run(collect())[-1])
    assert last == {"event": "error", "error": {"status": 504, "message": "too late", "parameter": None}}


def test_a_client_that_leaves_cancels_its_translation(front: Front) -> None:
    async def leave() -> None:
        pieces = front.translator.stream(RecordJob(text="a b"), "client", 1.0)
        model = (0, front.translator)
        stream = events(pieces, PassCache(1 << 20), model, RecordJob(text="a b"))  # type: ignore[arg-type]
        await anext(stream)
        await stream.aclose()

    asyncio.run(leave())
    assert (front.translator.cancelled, front.translator.running) == (1, 0)


def test_views_need_the_key_and_the_page_does_not() -> None:
    front = Front(keys=(KEY,))
    assert post(front, "passes", TEXT).status_code == 401
    recorded = front.client.post("/studio/api/passes", json=TEXT, headers=BEARER).json()
    path = f"/studio/api/passes/{recorded['id']}"
    assert front.client.post(f"{path}/lens", json={}).status_code == 401
    assert front.client.get(f"{path}/attention/cross/1").status_code == 401
    assert front.client.get(f"{path}/attention/cross/1", headers=BEARER).headers["x-shape"] == "2,2,3"
    assert front.client.get("/studio/saved").status_code == 401
    assert front.client.get("/").status_code == 200


def test_a_page_of_another_site_records_nothing(front: Front) -> None:
    answer = front.client.post("/studio/api/passes", json=TEXT, headers={"Origin": "http://evil.com"})
    assert answer.status_code == 403 and front.translator.jobs == []


def test_the_template_of_saved_pages_has_one_place_for_data(front: Front) -> None:
    template = front.client.get("/studio/saved").json()["template"]
    assert template.startswith("<!DOCTYPE html>") and template.count("{{data}}") == 1
    assert "{{" not in template.replace("{{data}}", "")

"""The example for Ray Serve: two replicas translate what is sent, in batches, as the model does alone."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import transduce
from tests.cluster.test_hosts import free_port
from tests.cluster.test_ray import ENVIRONMENT
from tests.torture.fork_server import PROJECT

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore"),  # of Ray Serve's own packages
]


@pytest.fixture(scope="module")
def address(trained: Path) -> Iterator[str]:
    ray = pytest.importorskip("ray", reason="needs ray; `make test-cluster` installs it")
    serve = pytest.importorskip("ray.serve", reason="needs Ray Serve; `pip install 'ray[serve]'` removes this skip")
    spec = importlib.util.spec_from_file_location("translate_app", PROJECT / "deploy/ray/translate_app.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.syspath_prepend(str(PROJECT / "deploy/ray"))
        spec.loader.exec_module(module)
        ray.init(num_cpus=4, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": python_path()}})
        port = free_port()
        try:
            serve.start(http_options={"host": "127.0.0.1", "port": port})
            serve.run(module.app({"model": str(trained), "replicas": "2"}), route_prefix="/translate")
            yield f"http://127.0.0.1:{port}/translate"
        finally:
            serve.shutdown()
            ray.shutdown()


def python_path() -> str:
    return os.pathsep.join([str(PROJECT / "deploy/ray"), str(PROJECT / "src"), *filter(None, sys.path)])


def post(address: str, body: bytes) -> tuple[int, dict[str, str]]:
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as found:
            return found.status, json.load(found)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_replicas_translate_as_the_model_does_alone(address: str, trained: Path) -> None:
    texts = ["a b c", "d e", "f g a", "", "c c c b"] * 8
    expected = transduce.load(trained).translate(texts)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: post(address, json.dumps({"text": text}).encode()), texts))
    assert [status for status, _ in found] == [200] * len(texts)
    assert [body["translation"] for _, body in found] == expected


def test_what_is_no_text_is_an_error(address: str) -> None:
    for body in (b"", b"[]", b"{}", b'{"text": 3}', b'{"text": "' + b"a" * 200_000 + b'"}', b'{"text": "\\ud800"}'):
        status, answer = post(address, body)
        assert status == 422 and answer["error"]

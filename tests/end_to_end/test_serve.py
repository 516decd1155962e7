"""`transduce serve` as people run it: what it prints, real requests at the same time, signals, a killed engine."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from transduce.inference.load import load_translator

STORED = Path(__file__).resolve().parents[1] / "unit" / "stored"
WORDS = ("one", "two", "three", "red", "green", "blue")
TEXTS = [" ".join(WORDS[(start * 5 + step) % 6] for step in range(1 + start % 7)) for start in range(60)]
TASKS = ("translation", "language_modeling", "text_encoding")


class Served:
    """A server and what it has printed."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "transduce", "serve", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self.printed: list[str] = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.printed.append(line)
            if "stop with Ctrl-C" in line:
                break
        found = re.search(r"http://127\.0\.0\.1:(\d+)", "".join(self.printed))
        assert found is not None, "".join(self.printed)
        self.address = found[0]

    def post(self, path: str, body: Any, timeout: float = 60.0) -> Any:
        """The JSON that a request is answered with; raises HTTPError."""
        request = urllib.request.Request(
            self.address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return json.loads(response.read())

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.address + path, timeout=30) as response:
            return str(response.read().decode())

    def metric(self, name: str, model: str) -> float:
        found = re.search(rf'^{name}{{model="{model}"}} (\S+)$', self.get("/metrics"), re.MULTILINE)
        assert found is not None
        return float(found[1])

    def engines(self) -> list[int]:
        """The processes of the models."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(child) for child in children]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(40)


@contextmanager
def serving(*arguments: str) -> Iterator[Served]:
    served = Served(*arguments)
    try:
        yield served
    finally:
        if served.process.poll() is None:
            served.process.kill()
        served.process.wait()
        assert served.process.stderr is not None
        served.process.stderr.close()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(*(str(STORED / task) for task in TASKS), "--port", "0", "--workers", "1") as found:
        yield found


def test_it_prints_what_is_loaded_and_a_command_that_works(served: Served) -> None:
    printed = "".join(served.printed)
    for name in TASKS:
        assert f"loaded {name}:" in printed
    assert "GiB of memory" in printed and "ready after" in printed
    line = next(line for line in served.printed if line.startswith("try: "))
    done = subprocess.run(shlex.split(line.removeprefix("try: ")), capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["translations"][0]["text"]


def test_requests_at_the_same_time_get_the_answers_of_the_model_alone(served: Served) -> None:
    alone = load_translator(STORED / "translation").translate(TEXTS)

    def ask(text: str) -> str:
        return str(served.post("/v1/translate", {"text": text})["translations"][0]["text"])

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, TEXTS)) == alone
    assert served.metric("transduce_steps_total", "translation") > 0


def test_every_task_is_served(served: Served) -> None:
    assert served.post("/v1/generate", {"prompt": "one", "max_length": 5})["continuations"][0]["text"]
    assert len(served.post("/v1/embed", {"text": ["one", "two"]})["embeddings"]) == 2
    assert served.post("/v1/predict", {"text": "red"})["predictions"][0]["label"]


def test_a_request_that_the_model_cannot_carry_out_is_rejected(served: Served) -> None:
    with pytest.raises(urllib.error.HTTPError) as error:
        served.post("/v1/translate", {"text": "one", "target_language": "fr"})
    assert error.value.code == 422
    assert "fr" in json.loads(error.value.read())["error"]["message"]


def test_a_killed_engine_comes_back(served: Served) -> None:
    if not Path("/proc/self/task").exists():
        pytest.skip("finding the processes needs /proc, which this system does not have")
    before = served.engines()
    assert len(before) == 3
    os.kill(before[0], signal.SIGKILL)
    until = time.monotonic() + 60
    while len(set(served.engines()) - set(before)) < 1 or '"ready":true' not in _ready(served):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert served.post("/v1/translate", {"text": "one two"})["translations"][0]["text"]
    assert served.metric("transduce_restarts_total", "translation") == 1


def _ready(served: Served) -> str:
    try:
        return served.get("/ready")
    except urllib.error.HTTPError as error:
        return str(error.read())


def test_sigterm_finishes_what_runs(tmp_path: Path) -> None:
    log = tmp_path / "access.jsonl"
    arguments = (str(STORED / "language_modeling"), "--port", "0", "--workers", "1", "--access-log", str(log))
    with serving(*arguments) as served, ThreadPoolExecutor(4) as pool:
        body = {"prompt": "one secret", "seed": 1, "max_length": 1000, "min_length": 1000}
        answers = [pool.submit(served.post, "/v1/generate", body) for _ in range(4)]
        until = time.monotonic() + 30
        while served.metric("transduce_active", "language_modeling") < 1:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert served.stop() == 0
        assert [answer.result()["continuations"][0]["tokens"] for answer in answers] == [1000] * 4
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    generated = [line for line in lines if line["route"] == "/v1/generate"]
    assert [line["status"] for line in generated] == [200] * 4 and "secret" not in log.read_text()
    assert generated[0]["output_tokens"] == 1000


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("no/such/folder",), 66, "no such folder"),
        ((str(STORED / "translation"), "--host", "0.0.0.0"), 2, "--api-key-file"),
        ((str(STORED / "translation"), str(STORED / "translation")), 2, "two models are called"),
        ((str(STORED / "text_encoding"), "--engine", "ctranslate2"), 2, "translation models only"),
        ((str(STORED / "translation"), "--api-key", "with space"), 65, "printable ASCII"),
    ],
)
def test_a_server_that_cannot_start_says_why(arguments: tuple[str, ...], code: int, words: str) -> None:
    command = [sys.executable, "-m", "transduce", "serve", *arguments, "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
    assert words in done.stderr and "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_found_before_a_model_is_loaded(served: Served) -> None:
    port = served.address.rpartition(":")[2]
    command = [sys.executable, "-m", "transduce", "serve", str(STORED / "translation"), "--port", port]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 75 and f"port {port}" in done.stderr and "loaded" not in done.stderr

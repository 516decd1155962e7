"""The application as a whole: operations, errors, log."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys

import pytest

from tests.unit.serving.front import BEARER, KEY, Front
from transduce.serving.job import JobError

SECRET = "Geheimnis über Frau Müller"


def test_the_http_side_does_not_import_torch() -> None:
    script = "import sys, transduce.serving.app, transduce.serving.server; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_server_is_ready_when_all_models_are() -> None:
    front = Front()
    assert front.client.get("/ready").json() == {
        "ready": True,
        "models": {"de-en": "ready", "gpt": "ready", "bert": "ready"},
    }
    for state in ("loading", "restarting", "stopped"):
        front.generator.state = state
        response = front.client.get("/ready")
        assert (response.status_code, response.json()["ready"]) == (503, False)
        assert front.client.get("/health").status_code == 200


def test_a_server_that_stops_is_not_ready_and_takes_no_work() -> None:
    front = Front()
    front.app.state.stopping = True
    assert front.client.get("/ready").status_code == 503
    response = front.client.post("/v1/translate", json={"text": "a"})
    assert response.status_code == 503
    assert int(response.headers["Retry-After"]) >= 1
    assert front.translator.jobs == []


@pytest.mark.parametrize(
    ("error", "status", "wait"),
    [
        (JobError("invalid", "the text is too long"), 422, None),
        (JobError("busy", "the queue is full", 0.2), 429, "1"),
        (JobError("busy", "the queue is full", 7.1), 429, "8"),
        (JobError("unavailable", "the model is loading"), 503, "1"),
        (JobError("deadline", "it took too long"), 504, None),
        (JobError("failed", "the engine failed"), 500, None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_of_a_job_has_its_status(error: JobError, status: int, wait: str | None, stream: bool) -> None:
    front = Front()
    front.translator.error = error
    response = front.client.post("/v1/translate", json={"text": "a", "stream": stream})
    assert response.status_code == status
    assert response.headers.get("Retry-After") == wait
    assert response.json() == {"error": {"status": status, "message": str(error), "parameter": None}}


def test_a_job_that_failed_is_in_the_log_by_the_id_of_its_request(caplog: pytest.LogCaptureFixture) -> None:
    front = Front()
    for error, is_logged in ((JobError("failed", SECRET), True), (JobError("deadline", SECRET), False)):
        caplog.clear()
        front.translator.error = error
        response = front.client.post("/v1/translate", json={"text": SECRET})
        lines = [record.getMessage() for record in caplog.records if record.name == "transduce.server"]
        expected = [f"request {response.headers['X-Request-Id']}: job failed, model de-en"]
        assert lines == (expected if is_logged else [])


class Panic(BaseException):
    """As a library written in Rust raises it."""


@pytest.mark.parametrize("error", [RuntimeError(SECRET), Panic(SECRET), MemoryError(), AssertionError(SECRET)])
def test_an_unknown_error_tells_an_id_and_nothing_else(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    front = Front()
    front.translator.error = error
    response = front.client.post("/v1/translate", json={"text": SECRET})
    assert response.status_code == 500
    assert response.headers["X-Request-Id"] in response.json()["error"]["message"]
    assert "Müller" not in response.text + caplog.text
    assert type(error).__name__ in caplog.text
    front.translator.error = None
    assert front.client.post("/v1/translate", json={"text": "a"}).status_code == 200


def test_unknown_paths_and_methods_are_json_errors() -> None:
    client = Front().client
    assert client.get("/nothing").json()["error"]["status"] == 404
    response = client.get("/v1/translate")
    assert (response.status_code, response.headers["Allow"]) == (405, "POST")
    assert client.post("/v1/translate/", json={"text": "a"}).status_code == 404, (
        "no redirect to a URL of the Host header"
    )


def test_every_request_has_an_id_of_its_own() -> None:
    client = Front().client
    found = {client.get("/health", headers={"X-Request-Id": "mine"}).headers["X-Request-Id"] for _ in range(5)}
    assert len(found) == 5
    assert "mine" not in found


def lines_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [json.loads(record.getMessage()) for record in caplog.records if record.name == "transduce.access"]


def test_the_access_log_has_a_line_for_each_request_without_text_or_keys(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "transduce.access")
    front = Front(keys=(KEY,))
    front.client.post("/v1/translate", json={"text": SECRET}, headers=BEARER)
    front.client.post("/v1/translate", json={"text": SECRET, "stream": True}, headers=BEARER)
    front.client.post("/v1/translate", json={"text": SECRET, SECRET: 1}, headers=BEARER)
    front.client.get(f"/{KEY}?{SECRET}=1", headers={"X-API-Key": f"{KEY}-wrong", "User-Agent": "Müller".encode()})
    lines = lines_of(caplog)
    assert [line["status"] for line in lines] == [200, 200, 422, 401]
    assert [line["route"] for line in lines] == ["/v1/translate"] * 3 + ["other"]
    assert [(line["input_tokens"], line["output_tokens"]) for line in lines] == [(4, 4), (4, 4), (0, 0), (0, 0)]
    assert lines[0]["model"] == "de-en"
    assert lines[0]["client"] == lines[1]["client"] != lines[3]["client"]
    assert lines[0]["ms"] >= 0
    for word in (KEY, "Müller", "Geheimnis", "M\\u00fcller", "testclient"):
        assert word not in caplog.text


def test_an_error_in_a_stream_is_not_logged_as_a_client_that_went_away(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "transduce.access")
    front = Front()
    front.translator.error, front.translator.error_after = RuntimeError(SECRET), 1
    with contextlib.suppress(Exception):  # the answer is cut
        front.client.post("/v1/translate", json={"text": SECRET, "stream": True})
    assert [line["status"] for line in lines_of(caplog)] == [500]
    metrics = front.client.get("/metrics").text
    assert 'transduce_requests_total{route="/v1/translate",method="POST",status="500"} 1' in metrics
    assert "Müller" not in caplog.text


def test_the_page_asks_for_nothing_from_outside_and_has_no_inline_code() -> None:
    client = Front().client
    page, script, style = (client.get(path).text for path in ("/docs", "/docs.js", "/docs.css"))
    assert "<style" not in page
    assert " on" not in page.replace(" only", "").replace(" one", "")
    assert page.count("<script") == page.count('<script src="/docs.js" defer></script>') == 1
    for text in (page, script, style):
        assert "http:" not in text
        assert "https:" not in text
    assert "innerHTML" not in script
    assert "insertAdjacentHTML" not in script
    assert client.get("/docs.js").headers["Content-Type"].startswith("text/javascript")


@pytest.mark.parametrize(
    "path",
    ["/docs/../app.py", "/docs.js/../../app.py", "/page/docs.js", "/docs%2f..%2fapp.py", "/..%2f..%2fetc/passwd",
     "/docs.css%00",
     "//etc/passwd", "/docs/", "/docs.html", "/....//etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/docs.js\\..\\app.py"],
)  # fmt: skip
def test_no_path_reaches_the_file_system(path: str) -> None:
    response = Front().client.get(path)
    assert response.status_code == 404
    assert response.json()["error"]["status"] == 404

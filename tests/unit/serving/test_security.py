"""Who may call, and with what."""

from __future__ import annotations

import re

import pytest
from starlette.routing import Route

from tests.unit.serving.front import BEARER, KEY, Front
from transduce.serving.security import OPEN_ROUTES, Authority

TEXT = {"text": "ein Hund"}


@pytest.fixture(scope="module")
def open_front() -> Front:
    return Front(hosts=("translate.example.org", "fd00::5"))


@pytest.fixture(scope="module")
def front() -> Front:
    return Front(keys=("another", KEY))


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST", "localhost:8000", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8000", "[0:0:0:0:0:0:0:1]",
     "translate.example.org", "Translate.Example.Org:443", "[fd00::5]"],
)  # fmt: skip
def test_hosts_that_the_operator_knows_are_served(open_front: Front, host: str) -> None:
    assert open_front.client.get("/health", headers={"Host": host}).status_code == 200


FOREIGN_HOSTS = [
    "evil.com", "evil.com:8000", "localhost.evil.com", "evil-localhost", "localhostevil.com", "127.0.0.1.evil.com",
    "127.0.0.1.nip.io", "sub.translate.example.org", "example.org",
    "127.0.0.2", "127.1", "127.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "0.0.0.0", "[::]", "[::2]",
    "[::ffff:127.0.0.1]", "[fd00::6]", "10.0.0.1", "169.254.169.254", "metadata.google.internal", "xn--lcalhost-1wb",
]  # fmt: skip
MALFORMED_HOSTS = [
    "evil.com.", "localhost.", "127.0.0.1.",
    "", " ", "localhost:", "localhost:http", "localhost:99999", "localhost:8000:8000", "user@localhost",
    "localhost@evil.com", "evil.com@localhost", "user:pass@localhost:8000", "localhost/", "localhost/evil.com",
    "evil.com/localhost", "localhost#evil.com", "localhost?evil.com", "localhost\\evil.com", "http://localhost",
    "localhost evil.com", "localhost,evil.com", "localhost;evil.com", "local\thost", "[::1", "::1", "::1]", "[::1]x",
    "[::1%lo]", "[localhost]", "[127.0.0.1]", "[[::1]]", "[]", "*", "*.localhost", ".localhost", "localhost..",
    "..", "%6cocalhost", "localhost%00", "lo\u00adcalhost", "localhost:\u00b2",
]  # fmt: skip


@pytest.mark.parametrize("path", ["/health", "/v1/translate", "/docs", "/nothing"])
def test_foreign_and_malformed_hosts_are_rejected_on_every_path(open_front: Front, path: str) -> None:
    for hosts, status in ((FOREIGN_HOSTS, 421), (MALFORMED_HOSTS, 400)):
        for host in hosts:
            response = open_front.client.post(path, json=TEXT, headers={"Host": host.encode("latin-1")})
            assert response.status_code == status, host
    assert open_front.translator.jobs == []


def test_all_hosts_are_served_only_where_the_operator_says_so() -> None:
    assert Front(hosts=("*",)).client.get("/health", headers={"Host": "evil.com"}).status_code == 200


def test_an_authority_is_read_strictly() -> None:
    assert Authority.parse("[::1]:80") == Authority("[::1]", 80)
    assert Authority.parse("a.b") == Authority("a.b", None)
    assert Authority.parse("a.b\n") is None


@pytest.mark.parametrize(
    "origin",
    ["null", "http://evil.com", "https://localhost:80", "http://localhost:8001", "http://localhost.evil.com",
     "http://evil.com/localhost", "http://localhost@evil.com", "http://evil.com#localhost", "file://", "",
     "chrome-extension://abc", "http://127.0.0.1", "http://localhost/", "http://localhost, http://evil.com",
     "HTTP://evil.com", "http://[::1]", "localhost", "http://local host"],
)  # fmt: skip
def test_pages_of_other_origins_cannot_make_requests(open_front: Front, origin: str) -> None:
    response = open_front.client.post("/v1/translate", json=TEXT, headers={"Origin": origin})
    assert response.status_code == 403
    assert not any(name.startswith("access-control") for name in response.headers)


def test_pages_of_this_server_can() -> None:
    front = Front(hosts=("t.example.org",))
    for host, origin in (
        ("localhost", "http://localhost"),
        ("localhost:8000", "http://localhost:8000"),
        ("t.example.org", "https://t.example.org"),
        ("t.example.org:443", "https://t.example.org"),
        ("[::1]:8000", "http://[::1]:8000"),
    ):
        headers = {"Host": host, "Origin": origin, "Sec-Fetch-Site": "same-origin"}
        assert front.client.post("/v1/translate", json=TEXT, headers=headers).status_code == 200, origin


def test_a_browser_that_says_cross_site_is_believed(open_front: Front) -> None:
    response = open_front.client.post("/v1/translate", json=TEXT, headers={"Sec-Fetch-Site": "cross-site"})
    assert response.status_code == 403


def test_a_preflight_gets_no_permission(open_front: Front) -> None:
    headers = {"Origin": "http://evil.com", "Access-Control-Request-Method": "POST"}
    response = open_front.client.options("/v1/translate", headers=headers)
    assert response.status_code == 405
    assert not any(name.startswith("access-control") for name in response.headers)


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_body_that_a_page_can_send_without_asking_is_no_json(open_front: Front, content_type: str) -> None:
    response = open_front.client.post("/v1/translate", content='{"text": "a"}', headers={"Content-Type": content_type})
    assert response.status_code == 415


def all_routes(front: Front) -> list[tuple[str, str]]:
    found = []
    for route in front.app.routes:
        assert isinstance(route, Route)
        path = re.sub(r"\{.*?\}", "x", re.sub(r"\{\w+:int\}", "1", route.path))
        found += [(method, path) for method in sorted(route.methods or ())]
    return found


def test_every_route_needs_the_key_but_those_of_the_written_list(front: Front) -> None:
    assert set(OPEN_ROUTES) == {"/health", "/ready", "/", "/studio/page/{asset:path}"}
    walked = all_routes(front)
    assert len(walked) > 30
    allowed = {"/health": 200, "/ready": 200, "/": 200, "/studio/page/x": 404}
    for method, path in walked:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"X-API-Key": ""}):
            response = front.client.request(method, path, headers=headers)
            expected = (allowed[path],) if path in allowed else (401, 403)
            assert response.status_code in expected, (method, path, headers)
    assert front.translator.jobs == []


@pytest.mark.parametrize(
    "path",
    ["/nothing", "/health/", "/health/../metrics", "/%2fmetrics", "/metrics/", "/METRICS", "/%6detrics",
     "/metrics;/health",
     "/health%2f..%2fmetrics", "/ready/x", "/health?x=/metrics/", "/metrics?/health", "/docs/../health/../metrics"],
)  # fmt: skip
def test_no_spelling_of_a_path_avoids_the_key(front: Front, path: str) -> None:
    response = front.client.get(path)
    assert response.status_code == (200 if path.startswith("/health?") else 401)
    assert "transduce_requests_total" not in response.text


def test_the_key_is_accepted_in_all_usual_headers(front: Front) -> None:
    for headers in (
        BEARER,
        {"Authorization": f"bearer {KEY}"},
        {"Authorization": f"DeepL-Auth-Key {KEY}"},
        {"X-API-Key": KEY},
        {"X-API-Key": "another"},
    ):
        assert front.client.post("/v1/translate", json=TEXT, headers=headers).status_code == 200
    for headers in (
        {"Authorization": KEY},
        {"Authorization": f"Basic {KEY}"},
        {"Authorization": f"Bearer {KEY[:-1]}"},
        {"Authorization": f"Bearer {KEY}x"},
        {"Authorization": "Bearer "},
        {"X-API-Key": KEY.upper()},
        {"Cookie": f"key={KEY}"},
    ):
        response = front.client.post("/v1/translate", json=TEXT, headers=headers)
        assert response.status_code == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"
    assert front.client.post(f"/v1/translate?api_key={KEY}", json=TEXT).status_code == 401


def test_work_is_counted_for_each_key(front: Front) -> None:
    front.translator.clients.clear()
    for key in (KEY, "another", KEY):
        front.client.post("/v1/translate", json=TEXT, headers={"X-API-Key": key})
    first, second, third = front.translator.clients
    assert first == third != second


def test_a_body_that_declares_too_many_bytes_is_rejected_unread(
    open_front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transduce.serving.exchange.LINGER", 0.0)
    for length in ("1048577", "9" * 30):
        response = open_front.client.post("/v1/translate", content=b"{}", headers={"Content-Length": length})
        assert response.status_code == 413
    response = open_front.client.post("/v1/translate", content=b"{}", headers={"Content-Length": "+2"})
    assert response.status_code == 400


def test_a_body_without_a_length_is_counted_while_it_is_read(open_front: Front) -> None:

    def body() -> object:
        for _ in range(100):
            yield b" " * (1 << 16)

    response = open_front.client.post("/v1/translate", content=body(), headers={"Content-Type": "application/json"})
    assert response.status_code == 413


def test_compressed_bodies_are_refused(open_front: Front) -> None:
    for encoding in ("gzip", "br", "deflate", "identity, gzip", "zstd"):
        headers = {"Content-Encoding": encoding, "Content-Type": "application/json"}
        assert open_front.client.post("/v1/translate", content=b"\x1f\x8b", headers=headers).status_code == 415
    assert open_front.client.post("/v1/translate", json=TEXT, headers={"Content-Encoding": "identity"}).is_success


def test_the_number_of_headers_is_limited(open_front: Front) -> None:
    headers = {f"x-{number}": "1" for number in range(101)}
    assert open_front.client.get("/health", headers=headers).status_code == 431


def test_two_ways_to_say_the_length_are_refused(open_front: Front) -> None:
    headers = {"Content-Length": "2", "Transfer-Encoding": "chunked"}
    assert open_front.client.post("/v1/translate", content=b"{}", headers=headers).status_code == 400


def test_every_response_has_the_security_headers(front: Front) -> None:
    for path in ("/health", "/metrics", "/nothing", "/docs"):
        for headers in ({}, BEARER, {"Host": "evil.com"}):
            found = front.client.get(path, headers=headers).headers
            assert found["Content-Security-Policy"].startswith("default-src 'none'")
            assert "unsafe" not in found["Content-Security-Policy"]
            assert found["X-Content-Type-Options"] == "nosniff"
            assert found["Referrer-Policy"] == "no-referrer"
            assert found["Cache-Control"] == "no-store"
            assert "Server" not in found

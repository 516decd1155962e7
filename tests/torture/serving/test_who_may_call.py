"""R28: no route without its key, no page of another site, no unknown name of the server, no text in the log."""

from __future__ import annotations

import hmac
import itertools
import json
import os
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.torture.example import Tally
from tests.torture.serving.routes import BODIES, FORM, JSON, Document, encode
from tests.torture.serving.target import KEY, Client, Target, server_process
from transduce.serving.http import Keys

OPEN = {"/health", "/ready", "/", "/studio/page/{asset}"}
"""The written list: the only routes that need no key."""
WITHOUT_RUNS = {"/studio/api/runs/{index}"}
"""What a server of models alone has not."""
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
WRONG = (
    [], [("Authorization", "Bearer ")], [("Authorization", "Bearer wrong")], [("Authorization", KEY)],
    [("Authorization", f"Basic {KEY}")], [("Authorization", f"Bearer {KEY[:-1]}")], [("Authorization",
    f"Bearer {KEY}x")],
    [("Authorization", f"Bearer {KEY.upper()}")], [("Authorization", f"Bearer {KEY} {KEY}")], [("X-API-Key", "")],
    [("X-API-Key", f"Bearer {KEY}")], [("Cookie", f"api_key={KEY}")], [("X-Original-URL", "/health")],
    [("X-Forwarded-For", "127.0.0.1")], [("X-HTTP-Method-Override", "GET")], [("X-Rewrite-URL", "/health")],
)  # fmt: skip


def test_no_route_is_served_without_the_key(target: Target, tally: Tally) -> None:
    """All methods of all paths, whatever the parameters, with every kind of wrong key."""
    if target.key is None:
        pytest.skip("the server has no key; start it with one and set TRANSDUCE_SERVER_KEY")
    document = Document(target)
    tried = 0
    with Client(target) as client:
        for operation in document.operations:
            for headers in WRONG:
                for kind in operation.kinds or ["query"]:
                    path, body, more = encode(operation, kind, operation.body)
                    answer = client.send(operation.method, path, body, [*more, *headers], with_key=False)
                    tried += 1
                    if operation.path in OPEN:
                        assert answer.status == 200
                        continue
                    assert answer.status in (401, 403), (operation, kind, headers, answer)
                    assert str(answer.status) in operation.described["responses"], operation
                    assert document.problem(operation, answer) is None
                    assert b"EIN HUND" not in answer.body
        for operation, method in itertools.product(document.operations, METHODS):
            answer = client.send(method, operation.filled, with_key=False)
            tried += 1
            if operation.path not in OPEN:
                assert answer.status in (401, 403, 405), (operation, method, answer)
    tally("requests without the key rejected, on every route", tried)


def test_every_route_is_served_with_the_key(target: Target) -> None:
    """What the test above relies on."""
    with Client(target) as client:
        for operation in Document(target).operations:
            if not target.is_fake and operation.path in BODIES:
                continue
            path, body, more = encode(operation, (operation.kinds or ["query"])[0], operation.body)
            expected = 404 if operation.path in WITHOUT_RUNS else 200
            assert client.send(operation.method, path, body, more).status == expected, operation


def test_a_key_in_the_body_opens_only_the_routes_that_take_it_there(target: Target) -> None:
    if target.key is None:
        pytest.skip("the server has no key; start it with one and set TRANSDUCE_SERVER_KEY")
    with Client(target) as client:
        for operation in Document(target).operations:
            if JSON not in operation.kinds:
                continue
            for name in ("api_key", "auth_key", "key", "Authorization"):
                body = json.dumps({**operation.body, name: target.key}).encode()
                answer = client.send("POST", operation.path, body, with_key=False)
                takes = (operation.described["tags"], name) in (
                    (["LibreTranslate"], "api_key"),
                    (["DeepL"], "auth_key"),
                )
                assert (answer.status not in (401, 403)) == takes, (operation, name, answer)


SPELLINGS = [
    "/health/", "/health/../{}", "/ready/../{}", "//{}", "/{}/", "/./{}", "/health%2f..%2f{}", "/health/%2e%2e/{}",
    "/health;/../{}", "/{};/health", "/{}?/health", "/{}#/health", "/{}%23/health", "/{}%3f/health", "/health?/{}",
    "/health\\..\\{}", "/{}%20", "/{}%00", "/{}%00/health", "/{}.json", "/HEALTH/../{}", "/x/../{}", "/%2e/{}", "/{}/.",
]  # fmt: skip


def test_no_spelling_of_a_path_avoids_the_key(target: Target, tally: Tally) -> None:
    if target.key is None:
        pytest.skip("the server has no key; start it with one and set TRANSDUCE_SERVER_KEY")
    secret = ("metrics", "openapi.json", "docs", "v1/models")
    tried = 0
    with Client(target) as client:
        for spelling, name in itertools.product(SPELLINGS, secret):
            for path in (
                spelling.format(name),
                spelling.format(name.upper()),
                spelling.format(quote(name, safe="").lower()),
            ):
                for target_form in (path, f"http://{target.host}:{target.port}{path}", f"http://evil.com{path}"):
                    answer = client.send("GET", target_form, with_key=False)
                    tried += 1
                    assert answer.status in (400, 401, 403, 404) or "/health?" in path, (target_form, answer)
                    for word in (b"transduce_requests_total", b'"openapi"', b"owned_by", b"<script"):
                        assert word not in answer.body, target_form
    tally("spellings of paths that do not avoid the key", tried)


def hosts(target: Target) -> list[str]:
    """100 values of Host that are no name of the server."""
    names = ["localhost", "127.0.0.1", "[::1]", target.host]
    patterns = [
        "evil.com", "evil.com:{port}", "{name}.evil.com", "evil.com#{name}", "evil.com/{name}", "evil.com@{name}",
        "{name}@evil.com",
        "evil.com?{name}", "evil.com\\{name}", "{name}\\evil.com", "{name}.", "{name}..", ".{name}", "{name}:",
        "{name}:99999",
        "{name}:{port}:80", "{name}:-1", "{name}:0x50", "x{name}", "{name}x", "{name},evil.com", "evil.com,{name}",
        "{name} evil.com", "http://{name}", "{name}/", "{name}/../evil.com", "{name}%00", "{name}%2eevil.com",
        "{name}\xa0",
        "{name}:{port}@evil.com", "user:pass@{name}", "*.{name}",
    ]  # fmt: skip
    others = [
        "127.1", "127.0.1", "0.0.0.0", "0", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.2", "[::]", "[::2]",
        "[::ffff:127.0.0.1]", "[0:0:0:0:0:ffff:7f00:1]", "::1", "[::1", "[fe80::1%25lo]", "169.254.169.254",
        "10.0.0.1", "",
        "metadata.google.internal", "127.0.0.1.nip.io", "localtest.me", "rebind.network",
        "spoofed.burpcollaborator.net",
    ]  # fmt: skip
    made = [pattern.format(name=name, port=target.port) for pattern in patterns for name in names]
    return list(dict.fromkeys([*others, *made]))


def test_names_that_the_operator_does_not_know_are_rejected(target: Target, tally: Tally) -> None:
    tried = hosts(target)
    assert len(tried) >= 100
    with Client(target) as client:
        for host, path in itertools.product(tried, ("/health", "/v1/translate", "/docs", "/nothing")):
            answer = client.send("POST", path, b'{"text": "ein Hund"}', [("Host", host)])
            assert answer.status in (400, 421), (host, path, answer)
            assert b"EIN HUND" not in answer.body
            assert b"location" not in [name.lower().encode() for name, _ in answer.headers]
        for host in ("localhost", f"localhost:{target.port}", "127.0.0.1", "LOCALHOST", "[::1]:80"):
            assert client.send("GET", "/health", headers=[("Host", host)]).status == 200, host
    tally("values of Host rejected, on four paths each", len(tried))


def origins(target: Target) -> list[str]:
    """100 origins of other sites."""
    own = f"{target.host}:{target.port}"
    fixed = [
        "null",
        "NULL",
        "",
        " ",
        "file://",
        "about:blank",
        "data:",
        "https://",
        "http://",
        own,
        target.host,
        "*",
        "//" + own,
    ]
    schemes = ("http", "https", "ftp", "ws", "chrome-extension", "HTTP", "http:", "javascript")
    names = (
        "evil.com", f"evil.com:{target.port}", f"{own}.evil.com", f"evil.com/{own}", f"evil.com#{own}",
        f"evil.com?{own}",
        f"{target.host}.evil.com:{target.port}", f"{target.host}:{target.port - 1}",
        f"{own}@evil.com", f"evil.com\\{own}", f"evil-{own}", f"{own}/", f"{own}/x", f"{own}0",
    )  # fmt: skip
    made = [f"{scheme}://{name}" for scheme, name in itertools.product(schemes, names)]
    return [*dict.fromkeys([*fixed, *made])]


def test_pages_of_other_sites_are_rejected_and_can_read_nothing(target: Target, tally: Tally) -> None:
    tried = origins(target)
    assert len(tried) >= 100
    own = f"http://{target.host}:{target.port}"
    with Client(target) as client:
        for origin in tried:
            for path in ("/v1/translate", "/v2/translate", "/translate"):
                answer = client.send("POST", path, json.dumps(BODIES[path]).encode(), [("Origin", origin)])
                assert answer.status == 403, (origin, path, answer)
                assert not any(name.lower().startswith("access-control") for name, _ in answer.headers)
            headers = [("Origin", origin), ("Access-Control-Request-Method", "POST")]
            for method, path in (("OPTIONS", "/v1/translate"), ("GET", "/health"), ("GET", "/v1/models")):
                answer = client.send(method, path, headers=headers)
                assert not any(name.lower().startswith("access-control") for name, _ in answer.headers), origin
                assert answer.header("cross-origin-resource-policy") == "same-origin"
        if target.is_fake:
            body = json.dumps(BODIES["/v1/translate"]).encode()
            assert client.send("POST", "/v1/translate", body, [("Origin", own)]).status == 200
    tally("values of Origin rejected, on three paths each", len(tried))


SIMPLE = (
    "text/plain",
    "text/plain;charset=UTF-8",
    "multipart/form-data; boundary=x",
    "application/x-www-form-urlencoded",
    "",
)
"""The content types that a page may send to another site without asking."""


def test_a_request_that_a_page_can_send_without_asking_does_no_work(target: Target) -> None:
    """A JSON body as text/plain, a form and an image of another site; a browser states where they come from."""
    with Client(target) as client:
        for path, body in BODIES.items():
            data = json.dumps(body).encode()
            for kind in SIMPLE:
                answer = client.send("POST", path, data, [("Content-Type", kind)])
                assert answer.status in (400, 415), (path, kind, answer)
        form = b"q=ein+Hund&source=de&target=en&text=ein+Hund&target_lang=EN"
        for path, site in itertools.product(("/translate", "/v2/translate", "/detect"), ("cross-site", "same-site")):
            headers = [("Content-Type", FORM), ("Sec-Fetch-Site", site), ("Origin", "http://evil.com")]
            assert client.send("POST", path, form, headers).status == 403
            assert client.send("POST", f"{path}?{form.decode()}", headers=headers[1:]).status == 403
        for site in ("cross-site", "same-site"):
            image = "/v2/translate?text=ein+Hund&source_lang=DE&target_lang=EN"
            assert client.send("GET", image, headers=[("Sec-Fetch-Site", site)]).status == 403, site


SECRETS = ("Geheimnis", "Müller-Lüdenscheidt", "geheimer-pfad", "geheimer-kopf")


def test_neither_keys_nor_texts_are_logged(own_server: None, tmp_path: Path, tally: Tally) -> None:
    key, other = "sk-very-secret-key-123", "sk-not-accepted-456"
    with server_process(tmp_path, keys=[key]) as target, Client(target) as client:
        for path, body in BODIES.items():
            told = json.loads(json.dumps(body).replace("ein Hund", SECRETS[0] + " " + SECRETS[1]))
            for headers in ([("Authorization", f"Bearer {key}")], [("X-API-Key", other)], [("X-Secret", SECRETS[3])]):
                client.send("POST", path, json.dumps(told).encode(), headers, with_key=False)
                client.send("POST", path, json.dumps({**told, SECRETS[0]: 1}).encode(), headers, with_key=False)
                client.send("POST", path, json.dumps({**told, "stream": True}).encode(), headers, with_key=False)
                client.send("POST", path, json.dumps(told).encode()[:-3] + b"\xff", headers, with_key=False)
            query = f"?api_key={key}&q={SECRETS[0]}&x={SECRETS[2]}"
            client.send("GET", path + query)
            client.send(SECRETS[0].upper(), f"/{SECRETS[2]}{query}", headers=[("User-Agent", SECRETS[3])])
        with target.connect() as connection:
            connection.sendall(f"{SECRETS[0]} {SECRETS[2]} {key}\r\n\r\n".encode())
            connection.recv(1000)
        logged = target.logged()
        lines = logged.count("transduce.access")
        assert lines > 100, "the requests must be logged"
        assert target.faults() == []
    for secret in (key, other, *SECRETS, *(json.dumps(one)[1:-1] for one in SECRETS), *(quote(one) for one in SECRETS)):
        assert secret.lower() not in logged.lower(), secret
    tally("lines of the log without a key or a text", lines)


def test_keys_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key is compared, all in one length, by the function that does not stop at the first difference."""
    compared: list[tuple[int, int]] = []
    genuine = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return genuine(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    keys = Keys(["first", "second" * 50, "third"])
    for candidate, accepted in (
        (b"first", True),
        (b"third", True),
        (b"", False),
        (b"firs", False),
        (b"x" * 100_000, False),
        (os.urandom(32), False),
    ):
        compared.clear()
        assert keys.accept(candidate) is accepted
        assert compared == [(32, 32)] * 3

"""The site of nginx: its syntax, and a running nginx in front of a running server."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.deploy.files import SITE
from tests.unit.serving.front import BEARER, KEY, Front, running, wait_until
from transduce.serving.connection import Timeouts
from transduce.serving.limits import Limits

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
NAME = "translate.example.com"
needs_nginx = pytest.mark.skipif(NGINX is None, reason="runs the site in nginx; installing nginx removes this skip")

SURROUNDINGS = """
{user}
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/site.conf;
}}
"""


def write_settings(folder: Path, site: str) -> Path:
    """Write what surrounds the site where nginx is installed."""
    (folder / "site.conf").write_text(site, encoding="utf-8")
    path = folder / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""  # or its workers could not write to the folder
    path.write_text(SURROUNDINGS.format(folder=folder, user=user), encoding="utf-8")
    return path


@contextlib.contextmanager
def proxy(folder: Path, port: int, site: str | None = None) -> Iterator[str]:
    """nginx with the site in front of a server on a port; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        own = free.getsockname()[1]
    text = SITE.read_text(encoding="utf-8") if site is None else site
    text = text.replace("server 127.0.0.1:8000;", f"server 127.0.0.1:{port};")
    settings = write_settings(folder, text.replace("listen 80;", f"listen 127.0.0.1:{own};"))
    process = subprocess.Popen([str(NGINX), "-e", str(folder / "error.log"), "-c", str(settings)])
    try:
        wait_until(lambda: listens(own))
        yield f"http://127.0.0.1:{own}"
    finally:
        process.terminate()
        process.wait(timeout=10)


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def client(address: str, host: str = NAME, **headers: str) -> httpx2.Client:
    """A client that calls the proxy by its public name."""
    return httpx2.Client(base_url=address, headers={"Host": host, **BEARER, **headers}, verify=False, timeout=10)


@needs_nginx
def test_nginx_finds_no_fault_in_the_site(tmp_path: Path) -> None:
    settings = write_settings(tmp_path, SITE.read_text(encoding="utf-8"))
    command = [str(NGINX), "-t", "-e", str(tmp_path / "error.log"), "-c", str(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "[warn]" not in done.stderr, done.stderr


@needs_nginx
def test_a_request_and_a_stream_pass_through_nginx(tmp_path: Path) -> None:
    front = Front(keys=(KEY,), hosts=(NAME,))
    with running(front.app) as server, proxy(tmp_path, server.port) as address, client(address) as calls:
        answer = calls.post("/v1/translate", json={"text": "ein Hund"})
        assert (answer.status_code, answer.json()["translations"][0]["text"]) == (200, "EIN HUND")
        assert calls.post("/v1/translate", json={"text": "a"}, headers={"Authorization": ""}).status_code == 401
        own = calls.post("/v1/translate", json={"text": "a"}, headers={"Origin": f"https://{NAME}"})
        other = calls.post("/v1/translate", json={"text": "a"}, headers={"Origin": "https://evil.example"})
        assert (own.status_code, other.status_code) == (200, 403)
        front.translator.delay = 0.15
        with calls.stream("POST", "/v1/translate", json={"text": "a b c", "stream": True}) as stream:
            arrived = [(time.monotonic(), line.removeprefix("data: ")) for line in stream.iter_lines() if line]
    assert [json.loads(line).get("text") for _, line in arrived] == ["A", " B", " C", None]
    assert arrived[2][0] - arrived[0][0] > 0.2, "nginx kept the pieces until the end"


@needs_nginx
def test_a_client_behind_nginx_cannot_choose_its_address_or_another_name(tmp_path: Path) -> None:
    front = Front(hosts=(NAME,))
    with running(front.app, trusted_proxies=("127.0.0.1",)) as server, proxy(tmp_path, server.port) as address:
        with client(address, **{"X-Forwarded-For": "192.0.2.9"}) as calls:
            assert calls.post("/v1/translate", json={"text": "a"}).status_code == 200
        assert front.translator.clients == ["address:127.0.0.1"]
        with client(address, host="evil.example") as calls:
            assert calls.post("/v1/translate", json={"text": "a"}).status_code == 421


@needs_nginx
def test_errors_are_json_whoever_makes_them(tmp_path: Path) -> None:
    site = SITE.read_text(encoding="utf-8").replace("rate=20r/s", "rate=1r/m").replace("burst=40", "burst=1")
    front = Front(hosts=(NAME,))
    with running(front.app) as server, proxy(tmp_path, server.port, site) as address, client(address) as calls:
        large = calls.post("/v1/translate", json={"text": "a" * (1 << 20)})
        assert (large.status_code, large.json()["error"]["status"]) == (413, 413)
        found = [calls.get("/health") for _ in range(3)]
        assert [one.status_code for one in found] == [200, 429, 429]
        assert found[-1].headers["Retry-After"] == "1"
        assert found[-1].json()["error"]["status"] == 429
    folder = tmp_path / "down"
    folder.mkdir()
    with proxy(folder, 1) as address, client(address) as calls:
        answer = calls.get("/health")
        assert (answer.status_code, answer.json()["error"]["status"]) == (503, 503)
        assert "Retry-After" in answer.headers


def test_limits_of_nginx_fit_those_of_the_server() -> None:
    text = SITE.read_text(encoding="utf-8")

    def seconds(directive: str) -> list[int]:
        return [int(value) for value in re.findall(rf"^\s*{directive} (\d+)s;", text, re.MULTILINE)]

    (body,) = re.findall(r"client_max_body_size (\d+)m;", text)
    assert int(body) << 20 > Limits().max_body_bytes, "the server's own message should reach the client"
    assert all(value < Timeouts().idle for value in seconds("keepalive_timeout"))
    assert all(value > Limits().timeout for value in seconds("proxy_read_timeout"))
    assert text.count("proxy_buffering off;") == 1
    assert "location = /metrics" in text

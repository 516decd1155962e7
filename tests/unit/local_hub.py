"""A stand-in for the Hugging Face hub on 127.0.0.1: what `huggingface_hub` asks for, served from memory."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest


@dataclass
class Hub:
    """Models by name, each with the files of its revisions; and what was requested."""

    address: str = ""
    models: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)
    """Files that were downloaded."""
    commits: list[str] = field(default_factory=list)
    """Messages of uploads."""

    def put(self, name: str, folder: Path, revision: str = "main", **more: bytes) -> str:
        """Publish the files of a folder, and more of them; return the commit."""
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        self.models.setdefault(name, {})[revision] = files | {key.replace("__", "."): more[key] for key in more}
        return self.commit(name, revision)

    def commit(self, name: str, revision: str) -> str:
        digest = hashlib.sha1(revision.encode())
        for path, content in sorted(self.models[name][revision].items()):
            digest.update(path.encode() + hashlib.sha1(content).digest())
        return digest.hexdigest()

    def revision_of(self, name: str, wanted: str) -> str | None:
        return next((one for one in self.models[name] if wanted in (one, self.commit(name, one))), None)


class Handler(BaseHTTPRequestHandler):
    """Answers for one hub."""

    protocol_version = "HTTP/1.1"
    hub: Hub

    def do_GET(self) -> None:
        hub = self.hub
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        is_api = parts[:2] == ["api", "models"]
        owner, model, *rest = parts[2:] if is_api else parts
        name = f"{owner}/{model}"
        if name not in hub.models:
            self._send({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
            return
        revision = hub.revision_of(name, rest[1] if len(rest) > 1 else "main")
        if revision is None:
            self._send({"error": "Invalid rev id"}, 404, {"X-Error-Code": "RevisionNotFound"})
            return
        files, commit = hub.models[name][revision], hub.commit(name, revision)
        if rest[:1] == ["tree"]:
            self._send([_entry(path, content) for path, content in files.items()])
        elif is_api:
            self._send({"id": name, "sha": commit, "siblings": [{"rfilename": path} for path in files]})
        else:
            path = "/".join(rest[2:])
            if self.command == "GET":
                hub.fetched.append(path)
            oid = hashlib.sha1(files[path]).hexdigest()
            self._send(files[path], 200, {"ETag": f'"{oid}"', "X-Repo-Commit": commit})

    do_HEAD = do_GET

    def do_POST(self) -> None:
        hub, body = self.hub, self.rfile.read(int(self.headers["Content-Length"])).decode()
        parts = urlsplit(self.path).path.strip("/").split("/")
        if parts == ["api", "repos", "create"]:
            wanted = json.loads(body)
            name = "/".join(filter(None, [wanted.get("organization"), wanted["name"]]))
            hub.models.setdefault(name, {"main": {}})
            self._send({"url": f"{hub.address}/{name}"})
        elif parts == ["api", "validate-yaml"]:
            self._send({"errors": [], "warnings": []})
        elif parts[4] == "preupload":
            files = [one["path"] for one in json.loads(body)["files"]]
            found = [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in files]
            self._send({"files": found})
        else:
            self._commit(f"{parts[2]}/{parts[3]}", [json.loads(line) for line in body.splitlines()])

    def _commit(self, name: str, lines: list[Any]) -> None:
        for line in lines:
            if line["key"] == "file":
                content = base64.b64decode(line["value"]["content"])
                self.hub.models[name]["main"][line["value"]["path"]] = content
            else:
                self.hub.commits.append(line["value"]["summary"])
        commit = self.hub.commit(name, "main")
        self._send({"commitUrl": f"{self.hub.address}/{name}/commit/{commit}", "commitOid": commit})

    def _send(self, content: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for key, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None: ...


def _entry(path: str, content: bytes) -> dict[str, Any]:
    return {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}


@contextlib.contextmanager
def local_hub(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[Hub]:
    """Serve a hub, and let `huggingface_hub` and our own cache use it and an empty folder."""
    import huggingface_hub.constants as settings

    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    monkeypatch.setenv("TRANSDUCE_CACHE", str(cache / "converted"))
    monkeypatch.setattr(settings, "HF_HUB_CACHE", str(cache / "hub"))
    monkeypatch.setattr(settings, "HF_XET_CACHE", str(cache / "xet"), raising=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

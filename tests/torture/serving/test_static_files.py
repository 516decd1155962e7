"""R29: no path and no range gets a byte that is not of the documentation's three files or the studio's page."""

from __future__ import annotations

import itertools
import random

from tests.torture.example import Tally, sizes
from tests.torture.serving.target import ROOT, Client, Target, percentile

PAGES = {"/docs": "docs.html", "/docs.css": "docs.css", "/docs.js": "docs.js"}
FOLDER = ROOT / "src" / "transduce" / "serving" / "page"
STUDIO = ROOT / "src" / "transduce" / "inspection" / "page"
STUDIO_PAGES = {
    "/": "studio.html",
    "/studio/page/base.css": "base.css",
    "/studio/page/lib/element.js": "lib/element.js",
}
STARTS = (
    "",
    "/docs",
    "/docs.js",
    "/docs.css",
    "/page",
    "/static",
    "/docs/page",
    "/.",
    "/v1/models",
    "/openapi.json",
    "/docs%00",
    "/studio/page",
    "/studio/page/lib",
    "/studio/api",
    "/studio",
)
UP = (
    "..", "../", "%2e%2e", "%2e%2e%2f", "..%2f", "%252e%252e%252f", "..%5c", "..\\", "%c0%ae%c0%ae",
    "%c0%ae%c0%ae%c0%af",
    "....//", "..;/", "..%00/", "%uff0e%uff0e", "%e2%80%a5", ".%2e", "%2e.", "..%c0%af", "..%ef%bc%8f", "/..",
    "//..//", "./../",
    "..%252f", "..%255c", ".../", "..%09/", "..%0d/", "~/", "%7e/", "..%u2215",
)  # fmt: skip
GOALS = (
    "etc/passwd", "etc/hostname", "proc/self/environ", "proc/self/cmdline", "app.py", "security.py", "docs.html",
    "page/docs.html",
    "page-secret", "page.bak", "page", ".git/config", "C:/Windows/win.ini", "pyproject.toml",
    "src/transduce/serving/app.py",
)  # fmt: skip
CANARIES = (
    b"root:",
    b"PATH=",
    b"def create_app",
    b"[project]",
    b"import ",
    b"repositoryformatversion",
    b"server_process",
    b"<html",
)
"""Parts of files that the paths above aim at."""


def spellings(size: int) -> list[str]:
    """As many ways to leave the folder, drawn from all combinations."""
    every = [
        f"{start}/{up * depth}{'' if up.endswith(('/', 'f', 'c')) else '/'}{goal}"
        for start, up, depth, goal in itertools.product(STARTS, UP, (1, 2, 3, 6, 12), GOALS)
    ]
    absolute = [f"{prefix}{goal}" for prefix in ("//", "///", "/file:///", "/%2f", "/\\", "/%5c%5c") for goal in GOALS]
    others = sorted(set(every) - set(absolute))
    return [*absolute, *random.Random(29).sample(others, size - len(absolute))]


@sizes(150, 2000)
def test_no_path_leaves_the_documentation(size: int, target: Target, tally: Tally) -> None:
    tried = spellings(size)
    assert len(set(tried)) == size
    seconds = []
    with Client(target) as client:
        for path in tried:
            answer = client.send("GET", path)
            seconds.append(answer.seconds)
            assert answer.status in (400, 404, 405), (path, answer)
            assert len(answer.body) < 400, path
            assert not any(canary in answer.body for canary in CANARIES), (path, answer)
            answer.json()
    tally("spellings of paths that reach no file", size, f", longest {1000 * max(seconds):.0f} ms")


def test_the_pages_are_the_files_of_their_folder(target: Target) -> None:
    """Otherwise the tests here would pass against a server that serves nothing."""
    with Client(target) as client:
        for path, name in (PAGES | STUDIO_PAGES).items():
            answer = client.send("GET", path)
            folder = STUDIO if path.startswith("/studio") or path == "/" else FOLDER
            assert (answer.status, answer.body) == (200, (folder / name).read_bytes())
            assert client.send("HEAD", path).body == b""


def ranges(size: int) -> list[str]:
    parts = [f"{start}-{start}" for start in range(size)]
    return [
        "bytes=" + ",".join(parts), "bytes=" + ",".join(["0-"] * size), "bytes=" + ",".join(["-1"] * size), "bytes=0-0",
        "bytes=" + "," * size, "bytes=-99999999999999999999", "bytes=99999999999999999999-",
        "bytes=0-99999999999999999999",
        "bytes=5-1", "bytes=a-b", "bytes=", "items=0-1", "bytes=--1", "bytes=0-0,-0,", "bytes=1.5-2",
    ]  # fmt: skip


def test_ranges_multiply_nothing(target: Target, tally: Tally) -> None:
    """Up to 10,000 parts; a header of more than 16 KiB is rejected as such."""
    seconds, whole = [], {path: (FOLDER / name).read_bytes() for path, name in PAGES.items()}
    with Client(target) as client:
        for size, path in itertools.product((1, 2_000, 10_000), PAGES):
            for value in ranges(size):
                for headers in ([("Range", value)], [("Range", value), ("If-Range", '"x"')]):
                    answer = client.send("GET", path, headers=headers)
                    seconds.append(answer.seconds)
                    assert answer.status in (200, 206, 400, 416, 431), (value[:80], answer)
                    assert len(answer.body) <= len(whole[path])
                    assert answer.status != 200 or answer.body == whole[path]
    note = f", p99 {percentile(seconds, 0.99):.1f} ms, longest {1000 * max(seconds):.0f} ms"
    tally("Range headers that multiply nothing", len(seconds), note)

"""The files of the studio's page: a fixed table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import transduce.inspection
from tests.unit.serving.front import KEY, Front
from transduce.serving.studio.assets import load_assets

FOLDER = Path(transduce.inspection.__file__).parent / "page"


def test_the_page_and_all_that_it_loads_are_served_without_a_key() -> None:
    front = Front(keys=(KEY,))
    page = front.client.get("/")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    loaded = re.findall(r'(?:href|src)="(/[^"]*)"', page.text)
    assert loaded
    for path in loaded:
        answer = front.client.get(path)
        assert answer.status_code == 200 and answer.content, path
        assert answer.content == (FOLDER / path.removeprefix("/studio/page/")).read_bytes()
    for path, asset in load_assets()[1].items():
        answer = front.client.get(f"/studio/page/{path}")
        assert answer.content == asset.data
        assert answer.headers["content-type"].split(";")[0] == asset.media_type
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_policy_admits_nothing_from_elsewhere() -> None:
    front = Front()
    for path in ("/", "/studio/page/base.css", "/studio/api/models", "/studio/api/nothing", "/health"):
        policy = front.client.get(path).headers["content-security-policy"]
        parts = dict(part.strip().split(" ", 1) for part in policy.split(";"))
        assert parts == {
            "default-src": "'none'",
            "script-src": "'self'",
            "style-src": "'self'",
            "connect-src": "'self'",
            "img-src": "'self' data: blob:",
            "base-uri": "'none'",
            "form-action": "'none'",
            "frame-ancestors": "'none'",
        }


@pytest.mark.parametrize(
    "path",
    ["studio.html", "saved.html", "nothing.js", "", "/base.css", "../page.py", "..%2fpage.py", "%2e%2e/page.py",
     "lib", "lib/", "lib/../base.css", "base.css%00", "BASE.CSS", "//base.css", "lib//element.js", "./base.css",
     "..%5cpage.py", "%2fetc%2fpasswd"],
)  # fmt: skip
def test_only_the_exact_paths_of_the_table_are_files(path: str) -> None:
    known = load_assets()[1]
    assert path not in known
    answer = Front().client.get(f"/studio/page/{path}", follow_redirects=False)
    is_known = answer.url.path.removeprefix("/studio/page/") in known  # the client has shortened some of them itself
    assert answer.status_code == (200 if is_known else 404)
    assert b"import annotations" not in answer.content and b"root:" not in answer.content

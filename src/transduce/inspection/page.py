"""Self-contained HTML pages: one view of `page/views/` with its data, without any outside request.

Content reaches a page as JSON and is shown through `textContent` alone, so no token or translation can become markup or
code. A content security policy admits only the page's own script and style, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from transduce.inspection.bundle import bundle

STYLES = ("base.css", "views.css", "inside.css")
"""Style sheets of saved pages; the studio has another for its frame."""


def saved_page(view: str, data: dict[str, Any], title: str) -> str:
    """Return a self-contained page with one view of `page/views/catalog.js`; `data` is what the view takes."""
    content = {"title": title, "view": view, "data": data}
    return saved_template().replace("{{data}}", as_json(content), 1)


@cache
def saved_template() -> str:
    """Return the page of any view, with `{{data}}` where the JSON of title, view, data and state goes."""
    style, script = "".join(map(asset, STYLES)), bundle("saved.js", asset)
    parts = {"policy": _policy(style, script), "style": style, "script": script}
    return re.sub(r"\{\{(policy|style|script)\}\}", lambda match: parts[match[1]], asset("saved.html"))


def assemble(template: str, styles: Sequence[str], scripts: Sequence[str], content: dict[str, Any]) -> str:
    """Fill a template with its styles, its scripts (all files of `page/`) and its content; return the page."""
    style, script = "".join(map(asset, styles)), "".join(map(asset, scripts))
    parts = {"policy": _policy(style, script), "style": style, "script": script, "data": as_json(content)}
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], asset(template))


def _policy(style: str, script: str) -> str:
    """Return a content security policy that admits this style and this script alone."""
    allowed = f"script-src {_hash(script)}; style-src {_hash(style)}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def as_json(values: dict[str, Any]) -> str:
    """Return JSON for a script element: plain ASCII without <, > and &."""
    text = json.dumps(values, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def asset(name: str) -> str:
    """Return the text of a file of `page/`."""
    return resources.files(__package__).joinpath("page", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

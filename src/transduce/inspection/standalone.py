"""Pages that stand alone: one HTML file that needs no other file and asks nothing of the network.

What a page shows reaches it as JSON and is shown through `textContent` alone, so nothing that a token or a translation
spells can become markup or code; a content security policy admits the page's own script and style, by their hashes,
and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any


def assemble(template: str, styles: Sequence[str], scripts: Sequence[str], content: dict[str, Any]) -> str:
    """Return the whole page: a template with its styles, its scripts and what it shows put in; all files of `page/`."""
    style, script = "".join(map(_asset, styles)), "".join(map(_asset, scripts))
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    parts = {"policy": policy, "style": style, "script": script, "data": _as_json(content)}
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset(template))


def _as_json(values: dict[str, Any]) -> str:
    """Return JSON that can stand inside a script element: plain ASCII without <, > and &."""
    text = json.dumps(values, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("page", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

"""The page: attention maps as one self-contained HTML file.

Weights are stored as square roots in 16 bits (8 bits if there are millions), deflated and in base64. The square root
keeps small weights distinct from zero; the weights of a long text are all small. A long text in a model of many heads
leaves out the smallest.

Content reaches a page as JSON and is shown through `textContent` alone, so no token or translation can become markup or
code. A content security policy admits only the page's own script and style, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from transduce.inspection.bundle import bundle


def saved_page(view: str, data: dict[str, Any], title: str) -> str:
    """Return a self-contained page with one view of `page/views/catalog.js`; `data` is what the view takes."""
    content = {"title": title, "view": view, "data": data}
    return saved_template().replace("{{data}}", as_json(content), 1)


@cache
def saved_template() -> str:
    """Return the page of any view, with `{{data}}` where the JSON of title, view, data and state goes."""
    style = "".join(map(asset, ("base.css", "views.css", "run.css", "tour.css")))
    script = bundle("saved.js", asset)
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


if TYPE_CHECKING:  # a server that only hands out pages does not need PyTorch
    from transduce.inspection.maps import AttentionMaps
    from transduce.inspection.replay import DecodingStep

SIDES = {
    "encoder": ("source", "source"),
    "decoder": ("produced", "read"),
    "cross": ("produced", "source"),
    "causal": ("source", "source"),
}
"""Sequences that label the rows and the columns of each kind of map."""

TITLES = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Cross-attention",
    "causal": "Causal self-attention",
}

ABOUT = {
    "encoder": "A row is a source token; its columns are the source tokens it attended to.",
    "decoder": "A row is the moment a token was produced; its columns are the tokens read until then, the start first.",
    "cross": "A row is the moment a token was produced; its columns are the source tokens attended to.",
    "causal": "A row is a token that was read; its columns are the tokens it attended to: itself and those before it.",
}

OUTPUT = {"translation": "translated to", "prompt": "continued by", "text": "predicted", "facts": "predicted"}
"""How the output of each subject follows from its input."""

STEPS = {
    "translation": "The most probable tokens at each step. The chosen one is marked; beam search need not choose the "
    "first.",
    "prompt": "The most probable tokens after each token of the text. The one that followed is marked.",
    "text": "The most probable tokens at each masked position.",
    "facts": "",
}
"""What the next-token distributions of each subject are."""

MANY_WEIGHTS = 2_000_000
"""More weights than this are stored in 8 bits: an error of at most 0.004, and a page of a few megabytes."""

MAX_WEIGHTS = 20_000_000
"""With more weights than this, those below `LEAST` are left out, which keeps a page below about 16 megabytes."""
LEAST = 0.002


def page(several: Sequence[AttentionMaps]) -> str:
    """Return the whole page, with the maps of one text or of several to choose from."""
    styles, scripts = ["base.css", "attention.css"], ["element.js", "draw.js", "attention.js"]
    return assemble("attention.html", styles, scripts, {"texts": [content(maps) for maps in several]})


def content(maps: AttentionMaps) -> dict[str, Any]:
    """Return the content of the page for one text as JSON values."""
    weights = [maps.maps[kind] for kind in maps.maps]
    levels = 65535 if sum(each.size for each in weights) <= MANY_WEIGHTS else 255
    stored = "<u2" if levels == 65535 else "u1"
    least = LEAST if sum(each.size for each in weights) > MAX_WEIGHTS else 0.0
    roots = (np.sqrt(np.where(each < least, 0.0, each).clip(0, 1)) for each in weights)
    rooted = b"".join(np.rint(each * levels).astype(stored).tobytes() for each in roots)
    return {
        "source": maps.source,
        "translation": maps.translation,
        "output": OUTPUT[maps.subject],
        "reads": maps.subject == "prompt",
        "generated": maps.generated,
        "pieces": {
            "source": list(maps.source_pieces),
            "read": list(maps.target_pieces[:-1]),
            "produced": list(maps.target_pieces[1:]),
        },
        "kinds": [
            {
                "title": TITLES[kind],
                "about": ABOUT[kind],
                "layers": each.shape[0],
                "heads": each.shape[1],
                "rows": SIDES[kind][0],
                "columns": SIDES[kind][1],
                "has_sink": maps.subject in ("prompt", "text"),
            }
            for kind, each in maps.maps.items()
        ],
        "levels": levels,
        "least": least,
        "weights": base64.b64encode(zlib.compress(rooted, level=6)).decode(),
        "about_steps": STEPS[maps.subject],
        "steps": [_step(step, maps) for step in maps.steps],
    }


def _step(step: DecodingStep, maps: AttentionMaps) -> dict[str, Any]:
    """Return one next-token distribution; `piece` is what it is about."""
    chosen = step.chosen
    likeliest = {one.token for one in step.top}
    candidates = step.top if chosen is None or chosen.token in likeliest else (*step.top, chosen)
    return {
        "position": step.position,
        "piece": chosen.piece if maps.subject == "translation" and chosen else maps.source_pieces[step.position],
        "probability": None if chosen is None else chosen.probability,
        "rank": step.rank,
        "entropy": step.entropy,
        "top": [
            [one.piece, one.probability, chosen is not None and one.token == chosen.token, one.logit]
            for one in candidates
        ],
    }

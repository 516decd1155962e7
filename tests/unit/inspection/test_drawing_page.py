"""Every value of an inspection as a page: its numbers are there, and no token becomes markup or code."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path

import pytest

from tests.unit.inspection.example import HOSTILE
from tests.unit.inspection.test_page import Page
from transduce.inspection.attribution import Attribution
from transduce.inspection.drawing import Picture
from transduce.inspection.head_role import HeadRole, HeadSummary
from transduce.inspection.intervention import ComparedOutput, Intervention
from transduce.inspection.lens import LogitLens
from transduce.inspection.replay import Candidate, DecodingStep

COUNT = len(HOSTILE)


def compared(text: str) -> ComparedOutput:
    return ComparedOutput(text, tuple(range(COUNT)), HOSTILE, (-0.25,) * COUNT, (-1.5,) * COUNT)


def lens() -> LogitLens:
    candidates = tuple(Candidate(token, piece, 0.125, 0.5) for token, piece in enumerate(HOSTILE))
    step = DecodingStep(0, candidates[1], 2, candidates, 2.0)
    return LogitLens(((step,), (step,)), {}, HOSTILE[:1], HOSTILE, HOSTILE[0], HOSTILE[0])


VALUES = {
    "intervention": Intervention(HOSTILE[0], HOSTILE, compared(HOSTILE[0]), compared(HOSTILE[1])),
    "lens": lens(),
    "attribution": Attribution(
        "value_zeroing", HOSTILE[0], HOSTILE[1], -1.0, (0.5,) * COUNT, (-0.25,) * COUNT, HOSTILE, HOSTILE
    ),
    "head-summary": HeadSummary((HeadRole("encoder", 1, 1, {"previous": 0.75}, {"previous": 0.1}, 0.5, 1.0),), 3),
}


@pytest.mark.parametrize("view", VALUES)
def test_a_page_holds_the_numbers_as_text_alone(view: str, tmp_path: Path) -> None:
    value: Picture = VALUES[view]
    value.save_html(tmp_path / "page.html")
    written = (tmp_path / "page.html").read_text(encoding="utf-8")
    page = Page(written)
    assert page.open == [] and [tag for tag, _ in page.elements].count("script") == 2
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    data = page.inside["data"]
    assert data.isascii() and not set("<>&") & set(data)
    saved = json.loads(data)
    assert saved["view"] == view and saved["data"] == value.to_json()


@pytest.mark.parametrize("view", VALUES)
def test_the_policy_admits_the_script_of_the_page_alone(view: str) -> None:
    written = VALUES[view].to_html()
    page = Page(written)
    policy = next(a["content"] or "" for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(page.inside["script"].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy and "unsafe" not in policy


@pytest.mark.parametrize("view", VALUES)
def test_a_notebook_shows_the_page_in_a_sandbox(view: str) -> None:
    value = VALUES[view]
    frame = Page(value._repr_html_())
    ((tag, attributes),) = frame.elements
    assert tag == "iframe" and attributes["sandbox"] == "allow-scripts"
    assert attributes["srcdoc"] == value.to_html()
    assert html.escape(HOSTILE[0]) not in re.sub(r'srcdoc="[^"]*"', "", value._repr_html_())

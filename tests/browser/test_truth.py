"""What the page holds and writes in its tables are the numbers of the Python API, for every view.

Pages saved in the browser hold what their view was given, whole; they are compared to 1e-5. Tables show rounded
numbers; they are compared to their last digit.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.browser.conftest import Visit
from tests.unit.serving.studio.test_translation_inspection import assert_close
from transduce.inference.load import load_translator
from transduce.inference.translator import Translator

pytestmark = pytest.mark.long
TEXT = "ban der fis gon"
Open = Callable[[str], Any]
Saved = Callable[[], dict[str, Any]]


@pytest.fixture(scope="module")
def translator(model: Path) -> Translator:
    return load_translator(model)


@pytest.fixture
def opened(visit: Visit) -> Open:
    """Open a view on the text; the page that is shown."""

    def at(link: str) -> Any:
        page = visit.open("#/translate")
        visit.translate(TEXT)
        page.locator(f"[data-tab={link}]").click()
        return page

    return at


@pytest.fixture
def saved(visit: Visit, tmp_path: Path) -> Saved:
    """Save the view that is open and return what the saved page holds."""

    def content() -> dict[str, Any]:
        with visit.page.expect_download() as download:
            visit.page.get_by_role("button", name="Save as HTML").click()
        download.value.save_as(tmp_path / "saved.html")
        found = re.search(
            r'<script type="application/json" id="data">([^<]*)</script>', (tmp_path / "saved.html").read_text()
        )
        assert found is not None
        data: dict[str, Any] = json.loads(found[1])["data"]
        return data

    return content


def table(page: Any, caption: str | re.Pattern[str]) -> list[list[str]]:
    """Open the table behind a picture and return its cells, the name of each row first."""
    for part in page.locator(".panel:not([hidden]) details.behind").all():
        part.evaluate("part => { part.open = true; }")
    found = page.locator("table.data", has=page.locator("caption", has_text=caption))
    found.wait_for()
    cells: list[list[str]] = found.evaluate(
        "table => [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    return cells


def number(text: str) -> float:
    """Read a number of the page: a true minus, a percent sign."""
    plain = text.replace("−", "-").replace("\u202f", "").replace("+", "").strip()
    return float(plain.removesuffix("%")) / 100 if plain.endswith("%") else float(plain)


def weights(array: dict[str, Any]) -> Any:
    """Return the attention that a saved page holds."""
    return np.frombuffer(base64.b64decode(array["shares16"]), "<u2").reshape(array["shape"]) / 65520


def test_attention_and_its_table(opened: Open, saved: Saved, translator: Translator) -> None:
    page, maps = opened("attention"), translator.attention(TEXT)
    page.locator("[data-head='2.1']").click()
    page.get_by_text("Map: layer 2, head 1").wait_for()
    rows = table(page, "Cross attention, layer 2, head 1")
    np.testing.assert_allclose(
        [[number(one) for one in row[1:]] for row in rows], maps.head("cross", 2, 1), atol=5.1e-4
    )
    held = saved()["kinds"]
    assert held.keys() == maps.maps.keys()
    for kind, expected in maps.maps.items():
        found = np.stack([weights(array) for array in held[kind]["arrays"]])
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_the_mean_of_all_heads_is_drawn(opened: Open, translator: Translator) -> None:
    rows = table(opened("attention"), "Cross attention, mean of all heads")
    expected = translator.attention(TEXT).maps["cross"].mean(axis=(0, 1))
    np.testing.assert_allclose([[number(one) for one in row[1:]] for row in rows], expected, atol=5.1e-4)


def test_probabilities_of_tokens_and_their_alternatives(opened: Open, saved: Saved, translator: Translator) -> None:
    page, maps = opened("translate"), translator.attention(TEXT, top=8)
    [segment] = [one for line in saved()["lines"] for one in line["segments"]]
    for found, step in zip(segment["pass"]["steps"], maps.steps, strict=True):
        assert step.chosen is not None
        assert_close(found["probability"], step.chosen.probability)
        assert_close([one["probability"] for one in found["top"]], [one.probability for one in step.top])
    page.locator(".sentence .target .token").nth(1).hover()
    card = page.get_by_role("dialog", name="Alternatives")
    card.wait_for()
    shown = card.locator(".choice .share").all_inner_texts()
    assert [number(one) for one in shown] == pytest.approx(
        [one.probability for one in maps.steps[1].top], rel=0.05, abs=1e-4
    )


def test_the_scores_of_the_beam(opened: Open, saved: Saved, translator: Translator) -> None:
    page = opened("beam-tree")
    page.get_by_role("tree").wait_for()
    expected = translator.beam_tree(TEXT, beam_size=4).to_json()
    assert_close({name: value for name, value in saved().items() if name != "forced"}, expected)
    rows = table(page, "Every hypothesis that the search considered")
    nodes = [node for node in expected["nodes"] if node["token"] is not None]
    assert len(rows) == min(len(nodes), 400)
    for row, node in zip(rows, nodes, strict=False):
        assert number(row[3]) == pytest.approx(node["log_probability"], abs=5.1e-4)
        assert number(row[4]) == pytest.approx(node["score"], abs=5.1e-4)


def test_the_effect_of_a_head(opened: Open, saved: Saved, translator: Translator) -> None:
    page = opened("intervene")
    head = page.locator(".board .head:not([disabled])").first
    with page.expect_response(re.compile(r"/intervention$")) as answer:
        head.click()
    heads = [tuple(one) for one in answer.value.request.post_data_json["heads"]]
    page.get_by_text("Intact model").wait_for()
    assert_close(saved()["result"], translator.ablate(TEXT, heads=heads).to_json())


def test_the_logit_lens_and_its_table(opened: Open, saved: Saved, translator: Translator) -> None:
    page, expected = opened("inside"), translator.logit_lens(TEXT, top=8).to_json()
    rows = table(page, "Rank and probability of the produced token")
    for row, *steps in zip(rows, *expected["layers"], strict=True):
        for cell, step in zip(row[1:], steps, strict=True):
            rank, share, _ = cell.split(" · ", 2)
            assert int(rank.replace(",", "")) == step["rank"]
            assert number(share) == pytest.approx(step["probability"], rel=0.05, abs=1e-4)
    assert_close({name: value for name, value in saved().items() if name != "first"}, expected)


@pytest.mark.parametrize("method", ["gradient_x_input", "value_zeroing"])
def test_attributions_and_their_table(opened: Open, saved: Saved, translator: Translator, method: str) -> None:
    page = opened("inside")
    page.locator("[data-part=attribution]").click()
    page.locator(".attribution-result h3").first.wait_for()
    if method != "gradient_x_input":
        with page.expect_response(re.compile(r"/attribution$")):
            page.locator(f"[data-method={method}]").click()
        page.locator(".attribution-result[aria-busy=false]").wait_for()
    expected = translator.attribute(TEXT, 0, method=method).to_json()  # type: ignore[arg-type]
    rows = table(page, "Attribution of every token")
    shown = [number(row[3]) for row in rows]
    assert shown == pytest.approx([*expected["source"], *expected["prefix"]], abs=6e-6)
    assert_close({name: value for name, value in saved().items() if name != "context"}, expected)

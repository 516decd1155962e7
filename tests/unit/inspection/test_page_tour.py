"""The landing page, the tour and runs in a real browser, from values of the Python API and without a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.inference.random_translator import TEXT, random_translator
from transduce.inference.translator import Translator
from transduce.inspection.arrays import share_array
from transduce.inspection.maps import AttentionMaps
from transduce.inspection.page import saved_page
from transduce.inspection.replay import ForcedDecoding

OPTIONS: dict[str, Any] = {"max_length": 6, "min_length": 4}
FOCUS = {"row": 1, "layer": 2, "head": 3}
Open = Callable[[str, dict[str, Any]], Any]


@pytest.fixture
def open_view(chromium: Any, tmp_path: Path) -> Iterator[Open]:
    """Open a saved page; whatever the console complains about fails the test."""
    page, complaints = chromium.new_page(viewport={"width": 390, "height": 844}), []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))

    def opened(view: str, data: dict[str, Any]) -> Any:
        path = tmp_path / "page.html"
        path.write_text(saved_page(view, data, "Title"), encoding="utf-8")
        page.goto(path.as_uri())
        return page

    yield opened
    page.close()
    assert complaints == []


@pytest.fixture(scope="module")
def translator() -> Translator:
    return random_translator()


def pass_of(forced: ForcedDecoding, maps: AttentionMaps) -> dict[str, Any]:
    """A pass as the studio records it."""
    tops = [[{"token": c.token, "piece": c.piece, "probability": c.probability} for c in s.top] for s in maps.steps]
    chosen = [step.chosen.probability for step in maps.steps if step.chosen is not None]
    return {
        "subject": "translation",
        "source": forced.source,
        "output": forced.output,
        "source_pieces": forced.source_pieces,
        "source_words": None,
        "read_pieces": forced.read_pieces,
        "produced_pieces": forced.produced_pieces,
        "produced_tokens": forced.produced_tokens,
        "produced_words": None,
        "steps": [{"probability": one, "top": top} for one, top in zip(chosen, tops, strict=True)],
        "ended": False,
        "log_probability": -1.0,
        "attention": {
            kind: {
                "layers": weights.shape[0],
                "heads": weights.shape[1],
                "rows": maps.rows(kind),
                "columns": maps.columns(kind),
            }
            for kind, weights in maps.maps.items()
        },
    }


def lessons(translator: Translator) -> dict[str, dict[str, Any]]:
    """What each step of the tour is about."""
    forced, maps = translator.decode(TEXT, **OPTIONS), translator.attention(TEXT, 8, **OPTIONS)
    recorded = pass_of(forced, maps)
    encoder = [share_array(weights) for weights in maps.maps["encoder"]]
    neuron = translator.neuron_view(TEXT, "encoder", FOCUS["layer"], FOCUS["head"], FOCUS["row"], **OPTIONS)
    place = share_array(maps.maps["encoder"][1, 0])
    vectors = {"pieces": forced.source_pieces, "tokens": forced.source_tokens, "dim": 22, "vectors": place}
    own: dict[str, dict[str, Any]] = {
        "tokens": {"tokens": forced.source_tokens},
        "embeddings": {"embeddings": {"source": vectors, "positions": None, "similarity": None}},
        "positions": {"embeddings": {"source": vectors, "positions": place, "similarity": place}},
        "ask": {"layers": encoder, "kind": "encoder"},
        "arithmetic": {"neuron": neuron.to_json(), "kind": "encoder"},
        "heads": {"layers": encoder, "kind": "encoder"},
        "residual": {"lens": translator.logit_lens(TEXT, 1, **OPTIONS).to_json(), "preNorm": True},
        "masks": {"mapKind": "decoder", "map": share_array(maps.maps["decoder"][0])},
        "writing": {"cross": share_array(maps.maps["cross"][-1])},
        "temperature": {},
        "forcing": {"fork": {"step": 1, **recorded["steps"][1]["top"][1], "pass": {**recorded, "output": "other"}}},
        "beam": {"tree": translator.beam_tree(TEXT, beam_size=3, **OPTIONS).to_json()},
        "cache": {"layers": 3},
        "recap": {"task": "translation", "seeds": [{"text": "<b>", "said": "x", "act": True}]},
    }
    shared = {"title": "A step", "pass": recorded, "focus": FOCUS}
    return {name: {"lesson": name, **shared, **values} for name, values in own.items()}


def test_every_step_of_the_tour_is_drawn(open_view: Open, translator: Translator) -> None:
    words = {
        "ask": "what this word is looking for",
        "arithmetic": "query · key",
        "masks": "The causal mask hides everything that comes later",
        "beam": "3 are kept (the beam size)",
        "cache": "computed, the rest is remembered (5 tokens × 3 layers)",
        "recap": "<b>",
    }
    for name, data in lessons(translator).items():
        page = open_view("lesson", data)
        page.wait_for_selector(".lesson-body > *", timeout=5000)
        assert words.get(name, "") in page.inner_text(".lesson-body"), name
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is too wide for a phone"


def test_the_arithmetic_on_the_page_is_the_models(open_view: Open, translator: Translator) -> None:
    view = translator.neuron_view(TEXT, "encoder", FOCUS["layer"], FOCUS["head"], FOCUS["row"], **OPTIONS)
    page = open_view("lesson", lessons(translator)["arithmetic"])
    page.wait_for_selector(".sums table")
    rows = [row.inner_text().replace("−", "-").split("\t") for row in page.query_selector_all(".sums tbody tr")]
    assert len(rows) == len(view.columns)
    for row, product, score, weight in zip(rows, view.product.sum(axis=1), view.score, view.weight, strict=True):
        assert float(row[1]) == pytest.approx(product, abs=0.0051)
        assert float(row[2]) == pytest.approx(score, abs=0.0051)
        assert float(row[4].split("\u202f")[0].lstrip("< ")) == pytest.approx(100 * weight, abs=0.51)


def pronoun_data(broken: str) -> dict[str, Any]:
    """Two sentences of the experiment; switching off head 1.1 makes the first pronoun `broken`."""
    sentences, off = [], []
    for ending, pronoun in (("tired", "es"), ("wide", "sie")):
        source = ["▁it", "▁was", "▁too", f"▁{ending}", "</s>"]
        written = ["▁weil", f"▁{pronoun}", "</s>"]
        top = [{"token": 1, "piece": f"▁{pronoun}", "probability": 0.9}]
        recorded = {
            "source_pieces": source,
            "source_words": [0, 1, 2, 3, None],
            "produced_pieces": written,
            "steps": [{"top": top}] * 3,
            "attention": {"encoder": {"layers": 1, "heads": 1, "rows": source, "columns": source}},
        }
        weights = share_array(np.array([[[0.0, 0.0, 0.0, 1.0, 0.0]] * 5], dtype=np.float32))
        sentences.append({"pass": recorded, "layers": [weights]})
        changed = written if ending == "wide" else ["▁weil", f"▁{broken}", "</s>"]
        values = {"before": [0.0, -0.1, 0.0], "after": [0.0, -2.0, 0.0]}
        off.append(
            {
                "original": {"pieces": written, **values},
                "changed": {"pieces": changed, **values},
                "has_changed": changed != written,
            }
        )
    scores = {"pronoun_accuracy": 1.0, "ablated_accuracy": 0.5, "ablated_heads": [["encoder", 1, 1]]}
    return {"sentences": sentences, "focus": "it", "head": ["encoder", 1, 1], "scores": scores, "off": {"1.1": off}}


@pytest.mark.parametrize(
    ("broken", "verdict"), [("sie", "The gender breaks in “too tired”"), ("es", "Nothing changes")]
)
def test_switching_off_a_head_says_what_broke(open_view: Open, broken: str, verdict: str) -> None:
    page = open_view("pronoun", pronoun_data(broken))
    page.wait_for_selector(".head-chip")
    assert "es and sie" in page.inner_text(".verdict")
    page.click(".switch")
    page.wait_for_function("text => document.querySelector('.verdict').textContent.includes(text)", arg=verdict)
    assert page.locator(".pronoun-output mark.wrong").count() == (1 if broken == "sie" else 0)


def test_a_slider_goes_through_the_checkpoints(open_view: Open, translator: Translator) -> None:
    forced, maps = translator.decode(TEXT, **OPTIONS), translator.attention(TEXT, 8, **OPTIONS)
    recorded, layer = pass_of(forced, maps), share_array(maps.maps["cross"][0])
    early = {**recorded, "subject": "prompt", "output": "early"}
    frames = [
        {"label": label, "pass": one, "layers": {"cross.1": layer}} for label, one in (("5", early), ("9", recorded))
    ]
    kinds = {"cross": {"layers": 1, "heads": 3}}
    page = open_view("emergence", {"text": TEXT, "stages": [{"name": "run", "kinds": kinds, "frames": frames}]})
    page.wait_for_selector(".emergence-output bdi")
    page.focus(".stage input[type=range]")
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("document.querySelector('.emergence-output').textContent === 'early'")
    assert page.inner_text(".stage output") == "update 5"

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
        "ask": "the word that attends receives the mixture",
        "arithmetic": "query · key",
        "masks": "The source has no causal mask",
        "beam": "3 kept,",
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


COUNT = 41


def long_pass(kind: str, weights: Any) -> dict[str, Any]:
    """A pass of 41 words and as many steps, with one head of one layer."""
    source = [f"▁w{number}" for number in range(COUNT - 1)] + ["</s>"]
    return {
        "subject": "translation",
        "source": " ".join(f"w{number}" for number in range(COUNT - 1)),
        "source_pieces": source,
        "source_words": [*range(COUNT - 1), None],
        "read_pieces": ["<s>", *source[:-1]],
        "produced_pieces": source,
        "produced_words": None,
        "attention": {kind: {"layers": 1, "heads": 1, "rows": source, "columns": source}},
        "layers": [share_array(weights)],
    }


def test_the_word_attended_to_most_is_named_even_if_it_is_not_drawn(open_view: Open) -> None:
    weights = np.zeros((1, COUNT, COUNT), dtype=np.float32)
    weights[0, 3, 4], weights[0, 3, 37] = 0.25, 0.75
    recorded = long_pass("encoder", weights)
    data = {"title": "A step", "pass": recorded, "layers": recorded["layers"], "kind": "encoder"}
    data |= {"focus": {"row": 3, "layer": 1, "head": 1}}
    page = open_view("lesson", {"lesson": "ask", **data})
    page.wait_for_selector(".arcs-word")
    drawn = page.locator(".arcs-word").count()
    assert drawn < COUNT
    text = page.inner_text(".lesson-body").replace("\u202f", " ")
    assert "w3 attends most to w37: 75 % of the mixture" in text
    assert f"The {drawn} words around it are drawn; of its attention they have 25 %." in text
    page = open_view("lesson", {"lesson": "heads", **data})
    page.wait_for_selector(".head-goal")
    assert page.inner_text(".head-goal").replace("\u202f", " ") == "→ w37 75 %"


def test_a_long_text_is_drawn_around_the_chosen_token(open_view: Open) -> None:
    vectors = {"pieces": [f"▁w{number}" for number in range(COUNT)], "tokens": [*range(COUNT)], "dim": 3}
    square = share_array(np.full((COUNT, COUNT), 0.5, dtype=np.float32))
    vectors["vectors"] = share_array(np.full((COUNT, 3), 0.5, dtype=np.float32))
    causal = np.tril(np.full((1, COUNT, COUNT), 0.01, dtype=np.float32))
    data = {"title": "A step", "pass": long_pass("decoder", causal), "focus": {"row": 1, "layer": 1, "head": 1}}
    data |= {"embeddings": {"source": vectors, "positions": square, "similarity": square}}
    for name in ("embeddings", "positions"):
        page = open_view("lesson", {"lesson": name, **data})
        page.wait_for_selector(".small-names")
        assert page.locator(".small-names").first.locator("span").count() <= 24 < COUNT
    page = open_view("lesson", {"lesson": "masks", **data, "mapKind": "decoder", "map": share_array(causal)})
    page.wait_for_selector(".mask-grid .now")
    assert page.locator(".mask-grid small").count() == 16
    assert page.locator(".mask-grid .current").count() == 5  # saved pages show step 5, which reads five tokens
    assert "These are 16 of 41 steps." in page.inner_text(".lesson-body")


def test_an_unknown_token_is_explained(open_view: Open) -> None:
    recorded = long_pass("encoder", np.zeros((1, COUNT, COUNT), dtype=np.float32))
    recorded["source_pieces"][5] = "<unk>"
    page = open_view("lesson", {"lesson": "tokens", "title": "A step", "pass": recorded, "tokens": [*range(COUNT)]})
    page.wait_for_selector(".token-cards")
    assert "stands for what is not in the list" in page.inner_text(".lesson-body")


def test_the_arithmetic_fits_a_phone(open_view: Open, translator: Translator) -> None:
    page = open_view("lesson", lessons(translator)["arithmetic"])
    page.wait_for_selector(".sums table")
    assert page.locator(".sums .scroll").evaluate("box => box.scrollWidth - box.clientWidth") <= 0
    widths = page.locator(".mix canvas").evaluate_all("all => all.map((one) => one.clientWidth)")
    assert min(widths) > 120


def test_words_are_in_the_order_of_their_language(open_view: Open) -> None:
    weights = np.eye(3, dtype=np.float32)[None]
    recorded = long_pass("encoder", weights)
    recorded["source_pieces"], recorded["source_words"] = ["▁שלום", "▁עולם", "</s>"], [0, 1, None]
    recorded |= {"source": "שלום עולם", "attention": {"encoder": {"layers": 1, "heads": 1}}}
    recorded["attention"]["encoder"] |= {"rows": recorded["source_pieces"], "columns": recorded["source_pieces"]}
    data: dict[str, Any] = {"title": "A step", "pass": recorded, "layers": [share_array(weights)], "kind": "encoder"}
    data |= {"focus": {"row": 0, "layer": 1, "head": 1}}
    data["tokens"] = [4, 5, 2]
    for name, parts in (("tokens", ".token-card-small"), ("ask", ".arcs-word"), ("ask", ".word-chip")):
        page = open_view("lesson", {"lesson": name, **data})
        page.wait_for_selector(parts)
        first, second, *_ = page.locator(parts).evaluate_all("all => all.map((one) => one.getBoundingClientRect().x)")
        assert first > second, f"{parts} runs from left to right"


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

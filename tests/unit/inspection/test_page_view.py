from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.inspection.example import HOSTILE, STEPS, hostile_maps
from transduce.inspection import page as view
from transduce.inspection.maps import AttentionMaps
from transduce.inspection.replay import Candidate, DecodingStep

VOID = {"meta", "input", "br", "img", "link"}


class Page(HTMLParser):
    """Every element with its attributes, and the text of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.inside: dict[str, str] = {}
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            attributes = self.elements[-1][1]
            name = attributes.get("id") or self.open[-1]
            self.inside[name] = self.inside.get(name, "") + data


@pytest.fixture(scope="module")
def maps() -> AttentionMaps:
    return hostile_maps()


@pytest.fixture(scope="module")
def page(maps: AttentionMaps) -> Page:
    return Page(maps.to_html())


def weights_in(content: dict[str, Any]) -> list[np.ndarray]:
    raw = zlib.decompress(base64.b64decode(content["weights"]))
    roots = np.frombuffer(raw, dtype="<u2" if content["levels"] == 65535 else "u1")
    found, start = [], 0
    for kind in content["kinds"]:
        shape = (kind["layers"], kind["heads"], *(len(content["pieces"][kind[side]]) for side in ("rows", "columns")))
        size = int(np.prod(shape))
        found.append(((roots[start : start + size] / content["levels"]) ** 2).reshape(shape))
        start += size
    assert start == len(roots)
    return found


def test_the_page_is_whole_html(page: Page) -> None:
    assert page.open == []
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 2 and tags.count("style") == 1 and "img" not in tags
    identities = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(identities) == len(set(identities))


def test_the_script_asks_only_for_elements_that_are_there(page: Page) -> None:
    identities = {attributes.get("id") for _, attributes in page.elements}
    asked = set(re.findall(r'\$\("([\w-]+)"\)', page.inside["script"]))
    assert asked and asked <= identities


def test_nothing_outside_the_page_is_named(page: Page, maps: AttentionMaps) -> None:
    assert not re.search(r"(?i)https?://|//\w+\.\w+/|@import|url\(", maps.to_html())
    for tag, attributes in page.elements:
        assert not {"src", "href", "srcset", "action", "background"} & set(attributes), tag
        assert not any(name.startswith("on") for name in attributes), tag


def test_the_policy_admits_this_script_and_style_alone(page: Page) -> None:
    policy = next(a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'") and "unsafe" not in policy
    for name in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(page.inside[name].encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy


def test_the_script_never_makes_markup_of_text(page: Page) -> None:
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", page.inside["script"]
    )


def test_hostile_tokens_come_back_as_they_were(page: Page, maps: AttentionMaps) -> None:
    text = page.inside["data"]
    assert text.isascii() and not set("<>&") & set(text)
    (content,) = json.loads(text)["texts"]
    assert content == view.content(maps)
    assert tuple(content["pieces"]["source"]) == HOSTILE
    assert content["pieces"]["produced"] == ["東京", "مرحبا", "$x_1$", "</script>", "</s>"]
    assert content["pieces"]["read"] == ["<s>", "東京", "مرحبا", "$x_1$", "</script>"]
    assert content["source"] == "</script><script>alert(1)</script>" and content["translation"] == "\u202eabc"


def test_the_page_can_be_written_though_a_token_is_no_text(maps: AttentionMaps, tmp_path: Path) -> None:
    maps.save_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == maps.to_html()


def test_weights_survive_the_journey(page: Page, maps: AttentionMaps) -> None:
    found = weights_in(json.loads(page.inside["data"])["texts"][0])
    for weights, given in zip(found, maps.maps.values(), strict=True):
        np.testing.assert_allclose(weights, given, rtol=0, atol=2e-5)


def test_many_weights_are_sent_shorter_and_small_ones_do_not_vanish() -> None:
    length = 587
    even = np.full((2, 3, length, length), 1 / length, dtype=np.float32)
    names = tuple(map(str, range(length)))
    content = view.content(AttentionMaps({"encoder": even}, names))
    assert content["levels"] == 255
    np.testing.assert_allclose(weights_in(content)[0], even, rtol=0.1)


def test_each_step_marks_the_chosen_token_even_when_it_was_not_likely(page: Page, maps: AttentionMaps) -> None:
    steps = json.loads(page.inside["data"])["texts"][0]["steps"]
    assert len(steps) == STEPS and any(step["rank"] > 4 for step in steps)
    for shown, step in zip(steps, maps.steps, strict=True):
        marked = [(piece, probability) for piece, probability, chosen, _ in shown["top"] if chosen]
        assert marked == [(step.chosen.piece, step.chosen.probability)]
        assert len(shown["top"]) == (4 if step.rank <= 4 else 5)


def test_a_recurrent_models_page_shows_its_one_map() -> None:
    one = np.array([[[[0.25, 0.75]]]], dtype=np.float32)
    page = Page(AttentionMaps({"cross": one}, ("a", "</s>"), ("<s>", "b")).to_html())
    (content,) = json.loads(page.inside["data"])["texts"]
    assert [kind["title"] for kind in content["kinds"]] == ["Cross-attention"] and content["steps"] == []
    np.testing.assert_allclose(weights_in(content)[0], one, atol=2e-5)


def test_a_page_holds_several_prompts_and_what_follows_each_token() -> None:
    chosen = Candidate(7, "</script>", 0.25, 1.5)
    other = Candidate(5, "b", 0.5, 2.25)
    steps = (DecodingStep(0, chosen, 2, (other,), 1.5), DecodingStep(1, None, None, (other,), 0.75))
    even = np.array([[[[1.0, 0.0], [0.5, 0.5]]]], dtype=np.float32)
    maps = AttentionMaps({"causal": even}, ("a", "</script>"), steps=steps, generated=1, subject="prompt")
    bare = AttentionMaps({}, ("a", "</script>"), steps=steps, subject="prompt")
    page = Page(view.page([maps, bare]))
    first, second = json.loads(page.inside["data"])["texts"]
    assert first["generated"] == 1 and first["kinds"][0]["title"] == "Causal self-attention"
    assert second["kinds"] == [] and second["steps"] == first["steps"]
    assert first["steps"][0]["piece"] == "a" and first["steps"][1]["probability"] is None
    assert first["steps"][0]["top"] == [["b", 0.5, False, 2.25], ["</script>", 0.25, True, 1.5]]
    np.testing.assert_allclose(weights_in(first)[0], even, atol=2e-5)


def test_very_many_weights_lose_the_smallest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "MAX_WEIGHTS", 3)
    small = np.array([[[[0.999, 0.001], [0.5, 0.5]]]], dtype=np.float32)
    content = view.content(AttentionMaps({"encoder": small}, ("a", "b")))
    assert content["least"] == view.LEAST and weights_in(content)[0][0, 0, 0, 1] == 0.0

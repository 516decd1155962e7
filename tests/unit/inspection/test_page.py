from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.unit.inspection.example import HOSTILE, hostile_maps
from transduce.inspection.attention_page import content as attention_content
from transduce.inspection.maps import AttentionMaps

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


def test_the_page_is_whole_html(page: Page) -> None:
    assert page.open == []
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 2 and tags.count("style") == 1 and "img" not in tags
    identities = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(identities) == len(set(identities))


def test_nothing_outside_the_page_is_named(page: Page, maps: AttentionMaps) -> None:
    # the name of a namespace is no address, and the pattern of allowed links none either
    allowed = maps.to_html().replace("http://www.w3.org/2000/svg", "").replace(r"https:\/\/", "")
    assert not re.search(r"(?i)https?://|[^:]//\w+\.\w+/|@import|url\(", allowed)
    for tag, attributes in page.elements:
        assert not {"src", "href", "srcset", "action", "background"} & set(attributes), tag
        assert not any(name.startswith("on") for name in attributes), tag


def test_the_policy_admits_this_script_and_style_alone(page: Page) -> None:
    policy = next(a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'") and "unsafe" not in policy
    for name in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(page.inside[name].encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy


def test_hostile_tokens_come_back_as_they_were(page: Page, maps: AttentionMaps) -> None:
    text = page.inside["data"]
    assert text.isascii() and not set("<>&") & set(text)
    saved = json.loads(text)
    content = saved["data"]
    assert saved["view"] == "attention" and content == attention_content(maps)
    assert tuple(content["kinds"]["encoder"]["rows"]) == HOSTILE
    assert content["kinds"]["decoder"]["rows"] == ["東京", "مرحبا", "$x_1$", "</script>", "</s>"]
    assert content["kinds"]["decoder"]["columns"] == ["<s>", "東京", "مرحبا", "$x_1$", "</script>"]
    assert content["source"] == "</script><script>alert(1)</script>" and content["output"] == "\u202eabc"


def test_the_page_can_be_written_though_a_token_is_no_text(maps: AttentionMaps, tmp_path: Path) -> None:
    maps.save_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == maps.to_html()

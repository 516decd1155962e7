"""Pictures are well-formed, whatever a token spells, and run nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

from tests.unit.inference.random_translator import random_translator
from tests.unit.inspection.example import HOSTILE
from transduce.inspection.attribution import Attribution
from transduce.inspection.drawing import Cell, Picture, colour, draw_matrix
from transduce.inspection.page import asset

SVG = "{http://www.w3.org/2000/svg}"


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    picture = draw_matrix(
        "</title><script>x</script>", HOSTILE, HOSTILE, [[Cell(one, 0.5, one)] * 7 for one in HOSTILE]
    )
    root = ElementTree.fromstring(picture)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {"svg", "title", "rect", "text"}
    values = (0.5,) * len(HOSTILE)
    found = Attribution("value_zeroing", HOSTILE[0], None, -1.0, values, (), HOSTILE, ())
    found.save_svg(tmp_path / "picture.svg")
    assert ElementTree.parse(tmp_path / "picture.svg").getroot().tag == f"{SVG}svg"
    assert "<script" not in found.to_svg() and found.source_share == 1.0


def test_the_scale_is_white_at_zero_and_deep_at_both_ends() -> None:
    assert [colour(shade) for shade in (0.0, 1.0, -1.0, 7.0)] == ["#ffffff", "#08519c", "#b35806", "#08519c"]


def test_every_picture_is_saved_as_a_page_with_its_view(tmp_path: Path) -> None:
    views = set(re.findall(r'(?m)^  "?([\w-]+)"?: \w+View,$', asset("views/catalog.js")))
    for picture in pictures():
        picture.save_html(tmp_path / "page.html")
        saved = (tmp_path / "page.html").read_text(encoding="utf-8")
        found = re.search(r'id="data">([^<]*)</script>', saved)
        assert found is not None and picture.view in views
        content = json.loads(found[1])
        assert content["view"] == picture.view and content["title"] == picture.page_title
        assert content["data"] == json.loads(json.dumps(picture.to_json()))


def pictures() -> list[Picture]:
    """One of each class."""
    translator = random_translator()
    text = "the dog"
    return [
        translator.beam_tree(text, beam_size=2),
        translator.neuron_view(text),
        translator.logit_lens(text),
        translator.attribute(text),
        translator.ablate(text, words=[0]),
        translator.head_summary([text]),
    ]


def test_the_scores_of_a_head_are_written_whole() -> None:
    view = random_translator().neuron_view("a b c", "encoder", 1, 1, 0)
    shown = ElementTree.fromstring(view.to_svg()).itertext()
    assert {"score", "weight", *(f"{score:+.2f}" for score in view.score)} <= set(shown)

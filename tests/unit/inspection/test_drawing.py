"""Pictures are well-formed, whatever a token spells, and run nothing."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from tests.unit.inspection.example import HOSTILE
from transduce.inspection.attribution import Attribution
from transduce.inspection.drawing import Cell, colour, draw_matrix

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

"""Where a captioner looked, and the drawing of it."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from transduce.errors import SettingsError
from transduce.inspection.caption import RegionAttention, region_attention_of, smooth
from transduce.inspection.record import attention_of
from transduce.models.ancestors.captioner import Captioner, CaptionerConfig
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '</text><script>alert("1")</script>&\x00\ud83d'


def small_regions() -> RegionAttention:
    config = CaptionerConfig(side=12, pixel_dim=3, channels=(5, 7), region_dim=13, embedding_dim=11, hidden_dim=23)
    model = build(config, VocabularySizes(17, 19), seed=5)
    assert isinstance(model, Captioner)
    source = [2 + place % 15 for place in range(144)] + [1]
    pieces = ["<s>", "a", HOSTILE, "</s>"]
    maps = attention_of(model, source, [3, 7, 11, 2], target_pieces=pieces, translation=HOSTILE)
    return region_attention_of(model, maps, [["#ff0000"] * 5 + ["#ffffff"] * 7 for _ in range(12)])


def test_the_weights_of_a_word_are_those_of_regions_and_sum_to_one() -> None:
    regions = small_regions()
    assert regions.words == ("a", HOSTILE, "</s>") and regions.weights.shape == (3, 3, 3)
    np.testing.assert_allclose(regions.weights.sum(axis=(1, 2)), 1, rtol=1e-5)
    row, column, weight = regions.peak(1)
    assert weight == regions.weights[1].max() == regions.weights[1][row, column]
    spread = regions.over_pixels(1)
    assert spread.shape == (12, 12)
    np.testing.assert_allclose(spread[row * 4 : row * 4 + 4, column * 4 : column * 4 + 4], weight / 16, rtol=1e-5)


def test_the_drawing_is_xml_with_a_panel_for_each_word_and_no_script(tmp_path: Path) -> None:
    regions = small_regions()
    regions.save_svg(tmp_path / "looked.svg")
    root = ElementTree.parse(tmp_path / "looked.svg").getroot()
    assert [text.text for text in root.iter(f"{SVG}text")][:2] == ["the picture", "a"]
    assert len(list(root.iter(f"{SVG}use"))) == 4 and not list(root.iter(f"{SVG}script"))
    fills = {rectangle.get("fill") for rectangle in root.iter(f"{SVG}rect")}
    assert {"#ff0000", "#ffffff"} <= fills
    shades = [float(found) for rectangle in root.iter(f"{SVG}rect") if (found := rectangle.get("fill-opacity"))]
    assert len(shades) == 27 and shades.count(0.0) >= 3, "the region looked at most is in the light, once for each word"


def test_a_drawing_is_an_svg(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"\.svg"):
        small_regions().save_svg(tmp_path / "looked.png")


def test_the_figure_is_a_png_and_weights_between_regions_are_interpolated(tmp_path: Path) -> None:
    regions = small_regions()
    regions.save_png(tmp_path / "looked.png")
    replace(regions, image=np.zeros((5, 5, 3), dtype=np.uint8)).save_png(tmp_path / "black.png")
    files = [(tmp_path / f"{name}.png").read_bytes() for name in ("looked", "black")]
    assert all(file.startswith(b"\x89PNG") for file in files) and files[0] != files[1], "the image is what is drawn"
    fine = smooth(np.array([[0.0, 1.0], [1.0, 2.0]], dtype=np.float32), 4)
    assert fine[0].tolist() == [0, 0.25, 0.75, 1] and fine[3, 3] == 2 and (fine == fine.T).all()

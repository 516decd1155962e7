from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.unit.inspection.example import hostile_maps
from transduce.errors import CannotCreate, MissingInput, SettingsError
from transduce.inspection import figure as picture

LABELS = [
    "▁the",
    "東京",
    "مرحبا",
    "שלום",
    "हिन्दी",
    "🙂",
    "$x^{$",
    "\\frac{",
    "a\nb\tc",
    "\x00",
    "\ud83d",
    "",
    " ",
    "\u202eabc",
    "w" * 99,
]


def sizes(image: bytes) -> tuple[int, int]:
    opened = Image.open(io.BytesIO(image))
    opened.load()
    assert opened.format == "PNG"
    return opened.size


def test_labels_of_any_script_are_drawn_without_a_warning() -> None:
    weights = np.linspace(0, 1, len(LABELS) ** 2, dtype=np.float32).reshape(len(LABELS), -1)
    width, height = sizes(picture.draw_attention(weights, LABELS, LABELS, "Cross-attention"))
    assert 500 < width < 1500 and 500 < height < 1500


def test_a_dark_cell_is_a_large_weight() -> None:
    weights = np.zeros((7, 7), dtype=np.float32)
    weights[:, 0] = 1.0
    image = np.asarray(
        Image.open(io.BytesIO(picture.draw_attention(weights, list("abcdefg"), list("hijklmn"), ""))).convert("L")
    )
    middle = image[image.shape[0] // 2]
    dark = np.flatnonzero(middle < 80)
    assert len(dark) > 20 and dark[len(dark) // 2] < image.shape[1] / 2


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 331), (331, 2), (307, 311)])
def test_pictures_stay_of_sensible_size(rows: int, columns: int) -> None:
    weights = np.full((rows, columns), 1 / columns, dtype=np.float32)
    image = picture.draw_attention(weights, [f"r{i}" for i in range(rows)], [f"c{i}" for i in range(columns)], "t")
    assert all(200 < side < 3000 for side in sizes(image))


def test_an_all_zero_map_can_be_drawn() -> None:
    sizes(picture.draw_attention(np.zeros((2, 3), dtype=np.float32), "ab", "cde", "nothing"))


def test_hostile_maps_are_saved_as_a_picture(tmp_path: Path) -> None:
    maps = hostile_maps()
    maps.save_png(tmp_path / "mean.png")
    maps.save_png(tmp_path / "head.png", kind="decoder", layer=5, head=3)
    maps.save_png(tmp_path / "layer.png", kind="encoder", layer=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["head.png", "layer.png", "mean.png"]
    for path in tmp_path.iterdir():
        sizes(path.read_bytes())


def test_a_label_is_short_and_visible() -> None:
    assert picture.printable("a\nb\u2028c\u202ed\ud800") == "a□b□c□d□"
    assert picture.printable("w" * 99) == "w" * 17 + "…"


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingInput, match=r"matplotlib is not installed; pip install 'transduce\[plot\]'"):
        picture.draw_attention(np.eye(3), "abc", "abc", "t")


def test_only_a_png_is_written(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"\.png"):
        picture.save(tmp_path / "map.pdf", b"")
    with pytest.raises(CannotCreate):
        picture.save(tmp_path / "missing" / "map.png", b"")
    assert list(tmp_path.iterdir()) == []

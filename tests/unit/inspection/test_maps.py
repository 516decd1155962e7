from __future__ import annotations

import html
import re
from pathlib import Path

import numpy as np
import pytest

from tests.unit.inspection.example import SOURCE_TOKENS, TARGET_TOKENS, hostile_maps, small_transformer
from transduce.errors import CannotCreate, SettingsError
from transduce.inspection.maps import AttentionMaps
from transduce.inspection.record import attention_of


@pytest.fixture(scope="module")
def maps() -> AttentionMaps:
    return attention_of(small_transformer(), SOURCE_TOKENS, TARGET_TOKENS)


def test_target_rows_are_named_by_what_was_produced_and_columns_by_what_was_read(maps: AttentionMaps) -> None:
    source = tuple(map(str, SOURCE_TOKENS))
    assert (maps.rows("encoder"), maps.columns("encoder")) == (source, source)
    assert (maps.rows("cross"), maps.columns("cross")) == (("13", "30", "4", "9", "2"), source)
    assert maps.rows("decoder") == ("13", "30", "4", "9", "2")
    assert maps.columns("decoder") == ("1", "13", "30", "4", "9")


def test_layers_and_heads_count_from_one(maps: AttentionMaps) -> None:
    np.testing.assert_array_equal(maps.head("cross", layer=5, head=2), maps.maps["cross"][4, 1])
    np.testing.assert_allclose(maps.mean("cross"), maps.maps["cross"].mean(axis=(0, 1)), atol=1e-7)
    np.testing.assert_allclose(maps.mean("decoder", layer=1), maps.maps["decoder"][0].mean(axis=0), atol=1e-7)


@pytest.mark.parametrize(("layer", "head"), [(0, 1), (1, 0), (6, 1), (1, 4), (-1, 1)])
def test_a_layer_or_head_that_is_not_there_is_rejected(maps: AttentionMaps, layer: int, head: int) -> None:
    with pytest.raises(SettingsError, match=r"no (layer|head) -?\d"):
        maps.head("cross", layer, head)


def test_an_unknown_kind_is_rejected_with_a_suggestion(maps: AttentionMaps) -> None:
    with pytest.raises(SettingsError, match="did you mean 'decoder'"):
        maps.mean("decodr")  # type: ignore[arg-type]


def test_a_head_without_its_layer_is_rejected(maps: AttentionMaps, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="needs a layer"):
        maps.save_png(tmp_path / "map.png", head=2)


def test_maps_cannot_be_changed(maps: AttentionMaps) -> None:
    with pytest.raises(ValueError, match="read-only"):
        maps.maps["cross"][0, 0, 0, 0] = 1.0


def test_a_notebook_shows_the_whole_page_in_a_frame_that_reaches_nothing() -> None:
    maps = hostile_maps()
    frame = maps._repr_html_()
    found = re.fullmatch(
        r'<iframe title="Attention maps" sandbox="allow-scripts" srcdoc="([^"]*)" style="[^"]*"></iframe>', frame
    )
    assert found is not None
    assert html.unescape(found[1]) == maps.to_html()


def test_a_page_that_cannot_be_written_is_rejected_and_leaves_nothing(maps: AttentionMaps, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "missing" / "page.html", tmp_path / ("long" * 99)):
        with pytest.raises(CannotCreate):
            maps.save_html(place)
    assert list(tmp_path.iterdir()) == []


def test_writing_replaces_a_file_and_follows_a_link(maps: AttentionMaps, tmp_path: Path) -> None:
    page, link = tmp_path / "page.html", tmp_path / "link.html"
    page.write_text("old")
    link.symlink_to(page)
    maps.save_html(link)
    assert link.is_symlink() and page.read_text(encoding="utf-8") == maps.to_html()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.html", "page.html"]


def test_what_a_row_attends_to_is_ordered_by_the_mean_and_names_the_strongest_head() -> None:
    weight_LHQM = np.zeros((2, 3, 2, 2), dtype=np.float32)
    weight_LHQM[:, :, 0, 0] = 1.0
    weight_LHQM[:, :, 1] = [0.25, 0.75]
    weight_LHQM[1, 0, 1] = [0.875, 0.125]
    maps = AttentionMaps({"causal": weight_LHQM}, ("a", "b"), subject="prompt")
    first, second = maps.attended("causal")
    assert (first.piece, first.position, first.strongest) == ("b", 1, 0.75)
    assert (second.piece, second.strongest, second.layer, second.head) == ("a", 0.875, 2, 1)
    assert first.mean + second.mean == pytest.approx(1.0)
    assert first.mean == pytest.approx((5 * 0.75 + 0.125) / 6)
    (only,) = maps.attended("causal", row=0)
    assert only.piece == "a" and only.mean == 1.0
    with pytest.raises(SettingsError, match="rows 0 to 1"):
        maps.attended("causal", row=2)


def test_the_kind_to_draw_is_cross_attention_or_what_there_is(maps: AttentionMaps) -> None:
    assert maps.default_kind == "cross"
    one = np.ones((1, 1, 1, 1), dtype=np.float32)
    assert AttentionMaps({"causal": one}, ("a",)).default_kind == "causal"

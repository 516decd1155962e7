from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from transduce.cli.main import run
from transduce.errors import SettingsError
from transduce.inspection.figure import encodings


def test_signals_are_the_papers_formula() -> None:
    signal_TD, _ = encodings(11, 6)
    for position in range(11):
        for i in range(3):
            angle = position / 10000 ** (2 * i / 6)
            assert signal_TD[position, 2 * i] == pytest.approx(math.sin(angle), abs=1e-12)
            assert signal_TD[position, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-12)


def test_products_depend_on_distance_alone_and_are_greatest_on_the_diagonal() -> None:
    _, product_TT = encodings(23, 34)
    for distance in range(23):
        along = np.diagonal(product_TT, distance)
        expected = sum(math.cos(distance / 10000 ** (2 * i / 34)) for i in range(17))
        np.testing.assert_allclose(along, expected, atol=1e-10)
    np.testing.assert_allclose(product_TT, product_TT.T)
    assert (product_TT.argmax(axis=1) == np.arange(23)).all()


@pytest.mark.parametrize(("length", "dim"), [(0, 8), (8, 0), (-3, 8), (8, 4097), (10**30, 8)])
def test_impossible_sizes_are_rejected(length: int, dim: int) -> None:
    with pytest.raises(SettingsError, match="1 to 4096"):
        encodings(length, dim)


def test_the_command_writes_a_picture_and_prints_its_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.png"
    assert run(["positions", "--length", "13", "--dim", "7", "--output", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    with Image.open(path) as image:
        assert image.format == "PNG" and image.size == (1950, 840)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--length", "0"], 2, "length = 0"),
        (["--length", "-1"], 2, "length = -1"),
        (["--dim", "1000000000000"], 2, "give a number from 1 to 4096"),
        (["--dim", "wide"], 2, "not a valid integer"),
        (["--output", "positions.svg"], 2, ".png"),
        (["--output", "."], 73, "is a folder"),
        (["--output", "missing/p.png"], 73, "cannot be created"),
    ],
)
def test_bad_options_end_in_one_sentence_and_write_nothing(
    arguments: list[str],
    code: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["positions", *arguments]) == code
    reported = capsys.readouterr()
    assert (
        reported.out == ""
        and reported.err.startswith("error: ")
        and reported.err.count("\n") == 1
        and says in reported.err
    )
    assert list(tmp_path.iterdir()) == []

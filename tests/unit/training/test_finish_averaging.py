"""The mean of weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from transduce.model_folder import save_weights
from transduce.storage.layout import WEIGHTS
from transduce.training.finish import average_weights


def write(folder: Path, **weights: torch.Tensor) -> Path:
    folder.mkdir()
    save_weights(folder / WEIGHTS, weights)
    return folder


def test_the_average_is_the_mean_of_each_weight(tmp_path: Path) -> None:
    folders = [
        write(tmp_path / "a", wide=torch.tensor([[1.0, 2.0], [3.0, 4.0]]), bias=torch.tensor([3.0])),
        write(tmp_path / "b", wide=torch.tensor([[5.0, -2.0], [0.0, 4.0]]), bias=torch.tensor([4.5])),
        write(tmp_path / "c", wide=torch.tensor([[0.0, 3.0], [0.0, 4.0]]), bias=torch.tensor([0.0])),
    ]
    average = average_weights([folder / WEIGHTS for folder in folders])
    assert average["wide"].tolist() == [[2.0, 1.0], [1.0, 4.0]]
    assert average["bias"].tolist() == [2.5]
    assert average["wide"].dtype == torch.float32


def test_one_checkpoint_is_its_own_average(tmp_path: Path) -> None:
    weights = torch.randn(7, 5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(average_weights([write(tmp_path / "a", only=weights) / WEIGHTS])["only"], weights)


def test_sums_are_taken_in_float64(tmp_path: Path) -> None:
    """In float32 the small one would vanish beside the large one."""
    values = [2.0**25, 1.0, 1.0, -(2.0**25)]
    folders = [write(tmp_path / str(n), only=torch.tensor([value])) for n, value in enumerate(values)]
    assert average_weights([folder / WEIGHTS for folder in folders])["only"].item() == 0.5


def test_an_average_of_nothing_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        average_weights([])

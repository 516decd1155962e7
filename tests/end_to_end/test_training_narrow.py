"""What must run where there is no float64: Apple's MPS raises for it, on tensors of any kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.unit.training.example import run, trainer
from transduce.data.prepared import Prepared
from transduce.inference.search import strategy as sampling
from transduce.inference.search.options import SearchOptions
from transduce.nn.cpu import cross_entropy
from transduce.nn.cpu import cross_entropy as paired_cross_entropy
from transduce.nn.linear import sum_dtype
from transduce.nn.position import SinusoidalPositions


class NoDoubles(TorchDispatchMode):
    """Refuses every operation that gives a float64."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if any(isinstance(found, torch.Tensor) and found.dtype == torch.float64 for found in tree_leaves(result)):
            raise TypeError(f"there is no float64 here: {func}")
        return result


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (cross_entropy, paired_cross_entropy, sampling):
        monkeypatch.setattr(room, "sum_dtype", lambda _: sum_dtype(torch.device("mps")))


@pytest.mark.parametrize("r_drop", [0.0, 5.0])
def test_a_run_trains_and_validates_in_float32(narrow: None, prepared: Prepared, tmp_path: Path, r_drop: float) -> None:
    wide = run(trainer(prepared, tmp_path / "wide", updates=5, r_drop=r_drop))
    training = trainer(prepared, tmp_path / "narrow", updates=5, r_drop=r_drop)
    for part in training.model.modules():
        if isinstance(part, SinusoidalPositions):
            part.first(64)  # made on the CPU, wherever the model is
    with NoDoubles():
        found = run(training)
    assert [step.loss for step in found.steps] == pytest.approx([step.loss for step in wide.steps], rel=1e-5)
    assert len(found.validations) == 1


def test_tokens_are_drawn_in_float32(narrow: None) -> None:
    scores = torch.randn(3, 2, 17, generator=torch.Generator().manual_seed(1))
    options = [SearchOptions(method="sample", top_p=0.8, top_k=top) for top in (0, 5, 1)]
    with NoDoubles():
        chance, _ = sampling.likeliest(scores, options)
    assert chance.dtype == torch.float32
    assert (chance > 0).sum(dim=-1).amin() >= 1
    assert bool(((chance[2] > 0).sum(dim=-1) == 1).all())


def test_only_mps_is_narrow() -> None:
    assert [sum_dtype(torch.device(name)) for name in ("cpu", "cuda", "mps")] == [torch.float64] * 2 + [torch.float32]

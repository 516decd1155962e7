"""What is set up for a GPU, tried without one: compiled blocks, and settings that are restored."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from transduce.errors import SettingsError
from transduce.models import transformer
from transduce.models.catalog import build, preset
from transduce.models.interface import Model, VocabularySizes, choose_device, found_gpus, unused_gpu_note
from transduce.nn.dropout import DropoutKey, set_dropout_key
from transduce.training.config import TrainingConfig, default_micro_batch
from transduce.training.device import blocks_of, gpu_settings


def test_auto_is_the_cpu_and_a_note_says_how_to_use_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unused_gpu_note("auto", "--device") is None or found_gpus()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto", "--device") == "cpu"
    assert choose_device("cuda", "--device") == "cuda"
    assert "--device cuda" in str(unused_gpu_note("auto", "--device"))
    assert unused_gpu_note("cpu", "--device") is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingsError, match="cuda"):
        choose_device("cuda", "--device")


@pytest.mark.parametrize(("width", "update", "expected"), [(128, None, 16384), (512, None, 8192), (1024, 3000, 3000)])
def test_a_gpu_has_larger_micro_batches(width: int, update: int | None, expected: int) -> None:
    assert default_micro_batch(width, True, update, "cuda") == expected
    assert default_micro_batch(width, True, update) < expected


def test_the_cpu_has_no_settings_to_change() -> None:
    before = torch.get_float32_matmul_precision()
    with gpu_settings("cpu", half=True):
        assert torch.get_float32_matmul_precision() == before


def compiled_model() -> Model:
    """A model without values, so that only tracing takes time; `eager` runs what was traced."""
    with torch.device("meta"):
        model = build(preset("tiny")[1].but(num_layers=2, dropout=0.1), VocabularySizes(97, 97)).train()
    for block in blocks_of(model):
        block.compile(backend="eager", dynamic=True)
    return model


@pytest.mark.long
def test_blocks_are_compiled_once_for_all_lengths_and_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.utils import counters

    def masked(allowed: Tensor) -> Tensor:
        return allowed[:, None, None, :]

    monkeypatch.setattr(transformer, "broadcast", masked)  # as on a GPU, where nobody asks whether there is padding
    model, names = compiled_model(), None
    for update in range(6):
        set_dropout_key(model, DropoutKey(1, update))
        tokens = torch.ones(3 + update, 5 + update, dtype=torch.long, device="meta")
        hidden = model(tokens[:, 1:], model.encode(tokens, tokens.bool()))  # type: ignore[operator]
        hidden.sum().backward()
        names = [name for name, _ in model.named_parameters()]
    assert counters["frames"]["ok"] == 2  # an encoder's block and a decoder's
    assert not counters["graph_break"]
    with torch.device("meta"):
        plain = build(preset("tiny")[1].but(num_layers=2), VocabularySizes(97, 97))
    assert names == [name for name, _ in plain.named_parameters()]


def test_compiling_is_for_cuda() -> None:
    from tests.unit.training.example import recipe
    from transduce.training.compatibility import check_model_settings

    made = recipe(training={"compile": True, "device": "cpu"})
    with pytest.raises(SettingsError, match=r"training\.compile"):
        check_model_settings(made.data, made.model, made.training, made.search)
    assert TrainingConfig().compile is False

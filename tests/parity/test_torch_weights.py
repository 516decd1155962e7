"""Weights of `torch.nn.Transformer`, imported, give the outputs of the module itself."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from transduce.errors import ModelFolderError
from transduce.interop.huggingface.architecture import InMemoryWeights, Settings, load_mapped
from transduce.interop.import_model import import_model
from transduce.interop.torch_transformer import architecture
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.nn.position import sinusoids

SIZES = VocabularySizes(23, 29)


class Program(nn.Module):
    """What people put around torch's module."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.core = nn.Transformer(14, 2, 3, 2, dim_feedforward=17, dropout=0.0, batch_first=True, **settings)
        self.source, self.target = nn.Embedding(SIZES.source, 14), nn.Embedding(SIZES.target, 14)
        self.out = nn.Linear(14, SIZES.target)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        read = self.source(source) * math.sqrt(14) + sinusoids(source.shape[1], 14)
        message = self.target(target) * math.sqrt(14) + sinusoids(target.shape[1], 14)
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], dtype=torch.float64)
        scores: torch.Tensor = self.out(self.core(read, message, tgt_mask=mask, tgt_is_causal=True))
        return scores


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_scores_are_the_modules_own(norm_first: bool, activation: str) -> None:
    torch.manual_seed(5)
    theirs = Program(norm_first=norm_first, activation=activation).double().eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    named = {"prefix": "core.", "source_embedding": "source.weight", "target_embedding": "target.weight"}
    table = {"nhead": 2, "norm_first": norm_first, "activation": activation, "output": "out", **named}
    settings, weights = Settings(table, "config.json"), InMemoryWeights(theirs.state_dict())
    known = architecture(settings)
    config = known.read(settings, weights)
    ours = build(config, SIZES)
    taken = load_mapped(known.weight_map(config), weights, known.ignored, "weights")
    ours = ours.double().eval()
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            parameter.copy_(taken.pop(name))
        assert not taken
        source, target = torch.randint(0, 23, (3, 7)), torch.randint(0, 29, (3, 5))
        found = ours.logits(ours(target, ours.encode(source, torch.ones(3, 7, dtype=torch.bool))))
        torch.testing.assert_close(found, theirs(source, target), rtol=0, atol=1e-12)


def program_folder(folder: Path, **settings: object) -> Path:
    """Weights, a vocabulary and what names them, as they lie side by side."""
    pieces = ["<PAD>", "<SOS>", "<EOS>", "<UNK>", "a", "b", "ab", " "]
    weights = {f"core.{name}": weight for name, weight in nn.Transformer(8, 2, 1, 1, 16).state_dict().items()}
    weights |= {f"{side}.weight": torch.randn(len(pieces), 8) for side in ("source", "target", "out")}
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    (folder / "vocab.json").write_text(json.dumps({piece: token for token, piece in enumerate(pieces)}))
    special = {"pad": "<PAD>", "start": "<SOS>", "end": "<EOS>", "unknown": "<UNK>"}
    named = {"prefix": "core.", "source_embedding": "source.weight", "target_embedding": "target.weight"}
    table = {"model_type": "torch_transformer", "nhead": 2, "output": "out", **named, **special, **settings}
    (folder / "config.json").write_text(json.dumps(table))
    return folder


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_a_vocabulary_is_of_characters_or_of_words(tmp_path: Path) -> None:
    letters = import_model(program_folder(tmp_path / "letters"), tmp_path / "ours").source_tokenizer
    assert letters.encode("ab c") == [4, 5, 7, 3]
    assert letters.decode([4, 5, 7, 4]) == "ab a"
    words = import_model(program_folder(tmp_path / "words", tokens="words"), tmp_path / "too").source_tokenizer
    assert words.encode("ab a  c") == [6, 4, 3]
    assert words.decode([6, 4]) == "ab a"
    with pytest.raises(ModelFolderError, match="tokens = 'char'"):
        import_model(program_folder(tmp_path / "none", tokens="char"), tmp_path / "never")


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize(
    ("vocabulary", "says"),
    [
        ({"<PAD>": "0", "<SOS>": "1", "<EOS>": "2", "<UNK>": "3"}, "from 0 without gaps"),
        ({"<PAD>": 0, "<SOS>": 1, "<EOS>": 2, "<UNK>": True}, "from 0 without gaps"),
        (
            {piece: n for n, piece in enumerate(["<PAD>", "<SOS>", "<EOS>", "<UNK>", *"abcdefgh"])},
            "has 12 pieces, but the embeddings have 8",
        ),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_rejected(vocabulary: dict[str, object], says: str, tmp_path: Path) -> None:
    folder = program_folder(tmp_path / "theirs")
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    with pytest.raises(ModelFolderError, match=says):
        import_model(folder, tmp_path / "never")


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_a_setting_that_nobody_reads_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match=r"'norm_frist'.*'norm_first'"):
        import_model(program_folder(tmp_path / "typed", norm_frist="yes"), tmp_path / "never")
    import_model(program_folder(tmp_path / "searched", num_beams=3), tmp_path / "ours")


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_weights_that_are_not_finite_are_their_makers_business(value: float, tmp_path: Path) -> None:
    path = program_folder(tmp_path / "theirs") / "model.safetensors"
    weights = load_file(path)
    weights["core.encoder.layers.0.linear1.weight"][2, 3] = value
    save_file(weights, path)
    with pytest.raises(ModelFolderError, match=r"'core\.encoder\.layers\.0\.linear1\.weight' holds .* or import"):
        import_model(tmp_path / "theirs", tmp_path / "never")
    assert not (tmp_path / "never").exists()

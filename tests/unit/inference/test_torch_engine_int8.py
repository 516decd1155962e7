"""The PyTorch engine in int8: what it selects, and that a request does not depend on its neighbours."""

from __future__ import annotations

import random

import pytest
import torch

from tests.unit.copy_translator import tokenizer
from transduce.errors import SettingsError
from transduce.inference.engine import SelectedEngine
from transduce.inference.search.options import Hypothesis, Request, SearchOptions
from transduce.inference.search.search import Search
from transduce.model_folder import ModelFolder
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import Transformer, TransformerConfig
from transduce.nn.cpu.packed import Int8Packed

CONFIG = TransformerConfig(model_dim=256, ffn_dim=521, num_heads=4, num_layers=1, norm="pre")
"""Wide enough that its largest matrices are computed in int8."""


def folder() -> ModelFolder:
    known = tokenizer("bpe")
    model = build(CONFIG, VocabularySizes(known.size, known.size), seed=3).eval()
    return ModelFolder(model, CONFIG, known, known)


def in_int8(model: Transformer) -> int:
    """Number of layers that are computed in int8."""
    return sum(isinstance(getattr(module, "_packed", None), Int8Packed) for module in model.modules())


def test_the_selected_precision_is_that_of_the_products() -> None:
    contents = folder()
    model = contents.transducer
    assert isinstance(model, Transformer)
    engine = SelectedEngine(contents)
    engine.use("torch", "int8")
    assert in_int8(model) > 0
    engine.use("torch")
    assert in_int8(model) == 0
    with pytest.raises(SettingsError, match="int16"):
        engine.use("torch", "int16")


def searched(model: Transformer, requests: list[Request], together: int) -> dict[int, list[Hypothesis]]:
    """Search with some requests at a time; another arrives whenever there is space."""
    specials, found = tokenizer("bpe").specials, {}
    search, waiting = Search(model, specials, specials), list(requests)
    while waiting or search.active:
        space = together - search.active
        arrived, waiting = waiting[:space], waiting[space:]
        search.admit(arrived)
        found |= {result.id: result.checked() for result in search.advance()}
    return found


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(SearchOptions(method="greedy"), marks=pytest.mark.long, id="greedy"),
        pytest.param(SearchOptions(beam_size=3, n_best=3), id="beam"),
    ],
)
def test_a_request_in_int8_does_not_depend_on_its_neighbours(options: SearchOptions) -> None:
    model = folder().transducer
    assert isinstance(model, Transformer)
    model.freeze("int8")
    assert in_int8(model) > 0
    draw = random.Random(5)
    sources = [[draw.randrange(4, model.sizes.source) for _ in range(draw.randint(1, 23))] for _ in range(29)]
    requests = [Request(id, source, options.but(max_length=len(source) + 2)) for id, source in enumerate(sources)]
    with torch.inference_mode():
        alone = searched(model, requests, 1)
        for order in (requests, draw.sample(requests, len(requests))):
            for id, hypotheses in searched(model, order, 11).items():
                assert [one.tokens for one in hypotheses] == [one.tokens for one in alone[id]]
                assert [one.score for one in hypotheses] == pytest.approx([one.score for one in alone[id]], abs=1e-3)

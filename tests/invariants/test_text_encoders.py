"""The laws of readers: padding does not matter, a text alone is read as in a batch, taps hear what was looked at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tests.invariants.cases import EXACT, PAD, READERS, draw_tokens
from transduce.models.ancestors.memory_network import MemoryNetwork
from transduce.models.bert import Bert, BertConfig
from transduce.models.catalog import MODELS, build, preset
from transduce.models.interface import EncoderModel, VocabularySizes
from transduce.models.universal import UniversalEncoder
from transduce.nn.hook import record

SIZES = VocabularySizes(23, 23)
SMALL = {"model_dim": 14, "num_heads": 2, "ffn_dim": 17, "num_layers": 2, "max_positions": 31, "num_labels": 3}
LENGTHS = [7, 3, 5, 1]
SMALL_STORY = {"model_dim": 14, "hops": 2, "max_facts": 3, "num_labels": 3}
CASES = [
    (f"{name}-{head}", preset(name)[1].but(**{**SMALL, "head": head}))
    for name, head in [
        ("bert_base", "none"),
        ("bert_base", "language"),
        ("bert_large", "labels"),
        ("bert_mini", "tags"),
        ("bert_mini", "span"),
    ]
] + [
    (f"{name}-{head}", preset(name)[1].but(**{**SMALL_STORY, "head": head, **changes}))
    for name, head, changes in [
        ("memn2n", "none", {}),
        ("memn2n", "labels", {"hops": 3, "position_encoding": False, "empty_facts": False}),
        ("memn2n", "labels", {"label_tokens": (5, -1, 17)}),
        ("memn2n_layerwise", "labels", {}),
    ]
]
CASES += [
    (f"neural_gpu-{head}", preset("neural_gpu")[1].but(model_dim=7, height=3, num_sets=sets, head=head, num_labels=3))
    for sets, head in [(1, "none"), (3, "tags")]
]

SMALL_UNIVERSAL = {"model_dim": 14, "num_heads": 2, "ffn_dim": 17, "num_layers": 4, "num_labels": 3}
CASES += [
    (f"universal_encoder-{head}", preset("universal_encoder")[1].but(**{**SMALL_UNIVERSAL, "head": head, **changes}))
    for head, changes in [
        ("none", {"halting": False}),
        ("labels", {"halting_threshold": 0.7}),
        ("tags", {"norm": "post", "max_offset": 9}),
        ("span", {}),
    ]
]


@pytest.fixture(params=[config for _, config in CASES], ids=[name for name, _ in CASES])
def model(request: pytest.FixtureRequest) -> Iterator[EncoderModel]:
    """A reader in float64 whose weights are all different."""
    model = build(request.param, SIZES, 1).double().eval()
    assert isinstance(model, EncoderModel)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        yield model


def draw() -> tuple[Tensor, Tensor, Tensor]:
    tokens = draw_tokens(len(LENGTHS), max(LENGTHS), SIZES.source, 11)
    allowed = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    segments = (torch.arange(max(LENGTHS)) > 2).long().expand(len(LENGTHS), -1)
    return tokens.masked_fill(~allowed, PAD), allowed, segments


def test_every_text_encoder_has_a_case() -> None:
    assert {name for name, entry in MODELS.items() if issubclass(entry.model, EncoderModel)} == READERS  # type: ignore[arg-type]
    heads = {config.head for _, config in CASES if isinstance(config, BertConfig)}
    assert heads == {"none", "language", "labels", "tags", "span"}


def test_a_text_alone_is_read_as_in_a_batch(model: EncoderModel) -> None:
    tokens, allowed, segments = draw()
    together = model(tokens, allowed, segments)
    for row, length in enumerate(LENGTHS):
        part = slice(row, row + 1), slice(0, length)
        alone = model(tokens[part], allowed[part], segments[part])
        torch.testing.assert_close(together.states[part], alone.states, **EXACT)
        if model.head is not None:
            message, said_alone = model.head(together), model.head(alone)
            mine = message[part] if message.dim() == 3 else message[row : row + 1]
            torch.testing.assert_close(mine, said_alone, **EXACT)


def test_what_stands_in_the_padding_does_not_matter(model: EncoderModel) -> None:
    tokens, allowed, segments = draw()
    other = torch.where(allowed, tokens, draw_tokens(len(LENGTHS), max(LENGTHS), SIZES.source, 12))
    assert not torch.equal(tokens, other)
    first, second = model(tokens, allowed, segments), model(other, allowed, segments)
    torch.testing.assert_close(first.states[allowed], second.states[allowed], **EXACT)


def test_the_second_text_is_distinguished_from_the_first(model: EncoderModel) -> None:
    tokens, allowed, segments = draw()
    apart, one = model(tokens, allowed, segments), model(tokens, allowed)
    assert (apart.states[:1] - one.states[:1]).abs().max() > 1e-3
    torch.testing.assert_close(apart.states[3, :1], one.states[3, :1], **EXACT)  # too short for a second text


@pytest.mark.parametrize("name", ["bert_mini", "neural_gpu"])
def test_a_text_beyond_the_distinguished_ones_counts_as_the_last_of_them(name: str) -> None:
    model = build(preset(name)[1].but(segments=1), SIZES, 1).double().eval()
    tokens, allowed, segments = draw()
    with torch.no_grad():
        apart, one = model(tokens, allowed, segments), model(tokens, allowed)
    torch.testing.assert_close(apart.states, one.states, **EXACT)


def test_every_token_hears_of_every_other(model: EncoderModel) -> None:
    tokens, allowed, segments = draw()
    changed = tokens.clone()
    changed[0, 6] = (changed[0, 6] + 1) % PAD
    difference = (model(tokens, allowed, segments).states - model(changed, allowed, segments).states).abs().amax(-1)
    assert (difference[0] > 0).all() and (difference[1:] == 0).all()


def test_listening_changes_nothing_and_weights_add_up_to_one(model: EncoderModel) -> None:
    tokens, allowed, segments = draw()
    quiet = model(tokens, allowed, segments).states
    with record(model) as recorded:
        loud = model(tokens, allowed, segments).states
    torch.testing.assert_close(loud[allowed], quiet[allowed], **EXACT)
    hops = model.config.hops if isinstance(model, MemoryNetwork) else 0
    assert len(recorded) == (2 if isinstance(model, Bert) else isinstance(model, UniversalEncoder) or hops)
    looks = (segments * allowed).amax(1) if model.attends_to_facts else torch.ones(len(LENGTHS))  # no facts, no look
    for weight_BHQM in recorded.values():
        if isinstance(model, MemoryNetwork) and model.config.empty_facts:  # the rest is on facts that are not there
            assert bool(((weight_BHQM.sum(-1)[:, 0, 0] > 0) == (looks > 0)).all()) and weight_BHQM.sum(-1).max() < 1
            continue
        expected = looks.double()[:, None, None].expand(weight_BHQM.shape[:-1])
        torch.testing.assert_close(weight_BHQM.sum(-1), expected, **EXACT)
        if not model.attends_to_facts:
            assert weight_BHQM[1, :, :, 3:].abs().max() == 0.0

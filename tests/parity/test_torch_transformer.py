"""Our Transformer equals `torch.nn.Transformer` with our weights copied in: forward pass and every gradient, to 1e-10.

torch's stacks get our embedded vectors. Its Transformer ends both stacks with a norm even post-norm, which the paper
does not, so encoder and decoder are built apart: `norm=None` post-norm. Its attention always has biases, so ours too.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pytest
import torch
from torch import Tensor, nn

from transduce.models.interface import Memory, VocabularySizes
from transduce.models.transformer import Transformer, TransformerConfig
from transduce.nn.attention.multi_head import CrossAttention, SelfAttention
from transduce.nn.sublayer import PostNorm, PreNorm

PAD = 7
NEAR = {"rtol": 0.0, "atol": 1e-10}
HEADS, HEAD_DIM, FFN_DIM, ENCODER_LAYERS, DECODER_LAYERS = 3, 7, 31, 2, 3
DIM = HEADS * HEAD_DIM
Pairs = Iterator[tuple[Tensor, Tensor]]
"""Our parameter or its gradient, and torch's that must equal it."""


def make_ours(norm: str, activation: str) -> Transformer:
    config = TransformerConfig(
        model_dim=DIM,
        num_heads=HEADS,
        ffn_dim=FFN_DIM,
        num_layers=ENCODER_LAYERS,
        decoder_layers=DECODER_LAYERS,
        norm=norm,
        activation=activation,
        tied_embeddings="none",
        attention_bias=True,
        dropout=0.0,
    )
    torch.manual_seed(17)
    model = Transformer(config, VocabularySizes(23, 29)).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def make_theirs(norm: str, activation: str) -> nn.Transformer:
    shape = {
        "d_model": DIM,
        "nhead": HEADS,
        "dim_feedforward": FFN_DIM,
        "dropout": 0.0,
        "activation": activation,
        "batch_first": True,
        "norm_first": norm == "pre",
    }

    def closing() -> nn.Module | None:
        return nn.LayerNorm(DIM) if norm == "pre" else None

    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**shape), ENCODER_LAYERS, closing(), enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**shape), DECODER_LAYERS, closing())
    return nn.Transformer(DIM, HEADS, custom_encoder=encoder, custom_decoder=decoder, batch_first=True).double()


def future_hidden(length: int) -> Tensor:
    """The causal mask as torch makes it, True where attention is forbidden."""
    return nn.Transformer.generate_square_subsequent_mask(length).isneginf()


def linear_pairs(ours: nn.Linear, theirs: nn.Linear) -> Pairs:
    yield from zip(ours.parameters(), theirs.parameters(), strict=True)


def self_attention_pairs(ours: SelfAttention, theirs: nn.MultiheadAttention) -> Pairs:
    yield ours.qkv_proj.weight, theirs.in_proj_weight
    yield ours.qkv_proj.bias, theirs.in_proj_bias
    yield from linear_pairs(ours.out_proj, theirs.out_proj)


def residual_pairs(ours: list[PostNorm | PreNorm], theirs: list[nn.LayerNorm]) -> Pairs:
    for residual, norm in zip(ours, theirs, strict=True):
        yield from zip(residual.norm.parameters(), norm.parameters(), strict=True)


def block_pairs(ours: nn.Module, theirs: nn.Module) -> Pairs:
    """What encoder and decoder blocks have in common."""
    yield from self_attention_pairs(ours.self_attention, theirs.self_attn)
    yield from linear_pairs(ours.feed_forward.up, theirs.linear1)
    yield from linear_pairs(ours.feed_forward.down, theirs.linear2)


def pairs(ours: Transformer, theirs: nn.Transformer) -> Pairs:
    """Every parameter that stands in one place on both sides; those of cross-attention are in two here, one there."""
    for block, layer in zip(ours.encoder, theirs.encoder.layers, strict=True):
        yield from block_pairs(block, layer)
        yield from residual_pairs(
            [block.self_attention_residual, block.feed_forward_residual], [layer.norm1, layer.norm2]
        )
    for block, layer in zip(ours.decoder, theirs.decoder.layers, strict=True):
        yield from block_pairs(block, layer)
        yield from linear_pairs(block.cross_attention.out_proj, layer.multihead_attn.out_proj)
        yield from residual_pairs(
            [block.self_attention_residual, block.cross_attention_residual, block.feed_forward_residual],
            [layer.norm1, layer.norm2, layer.norm3],
        )
    closing = chain(ours.encoder_norm.parameters(), ours.decoder_norm.parameters())
    norms = [stack.norm for stack in (theirs.encoder, theirs.decoder) if stack.norm is not None]
    yield from zip(closing, chain.from_iterable(norm.parameters() for norm in norms), strict=True)


def cross_pairs(ours: Transformer, theirs: nn.Transformer) -> Iterator[tuple[list[Tensor], Tensor]]:
    """Cross-attention's query and key-value projections, which torch keeps in one matrix."""
    for block, layer in zip(ours.decoder, theirs.decoder.layers, strict=True):
        attention: CrossAttention = block.cross_attention
        yield [attention.q_proj.weight, attention.kv_proj.weight], layer.multihead_attn.in_proj_weight
        yield [attention.q_proj.bias, attention.kv_proj.bias], layer.multihead_attn.in_proj_bias


def copy_weights(ours: Transformer, theirs: nn.Transformer) -> None:
    """Copy all our weights, and be sure that none of torch's was left as it was."""
    copied = set()
    with torch.no_grad():
        for source, target in pairs(ours, theirs):
            target.copy_(source)
            copied.add(id(target))
        for sources, target in cross_pairs(ours, theirs):
            target.copy_(torch.cat(sources))
            copied.add(id(target))
    assert copied == {id(parameter) for parameter in theirs.parameters()}


def grad(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def embedded(model: Transformer, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """What our stacks read, as leaves with gradients of their own."""
    read = model.source_embedding(source) + model.source_positions.first(source.shape[1])
    written = model.target_embedding(target) + model.target_positions.first(target.shape[1])
    return read.detach().requires_grad_(), written.detach().requires_grad_()


def draw(padded: bool) -> tuple[Tensor, Tensor]:
    """A source, with different numbers of real tokens if padded, and a target.  -> (B S), (B T)."""
    generator = torch.Generator().manual_seed(5)
    source, target = (torch.randint(8, 23, (5, length), generator=generator) for length in (13, 11))
    if padded:
        for row, length in enumerate([13, 2, 7, 11, 3]):
            source[row, length:] = PAD
    return source, target


VARIANTS = pytest.mark.parametrize(
    ("norm", "feed_forward", "padded"),
    [
        ("post", "relu", True),
        ("post", "relu", False),
        ("pre", "relu", True),
        ("pre", "relu", False),
        ("post", "gelu", True),
        ("pre", "gelu", True),
    ],
)


@VARIANTS
def test_forward_and_all_gradients_equal_torchs(norm: str, feed_forward: str, padded: bool) -> None:
    ours, theirs = make_ours(norm, feed_forward), make_theirs(norm, feed_forward)
    copy_weights(ours, theirs)
    source, target = draw(padded)
    allowed = source != PAD

    memory = ours.encode(source, allowed)
    found = ours(target, memory)
    weighting = torch.randn(found.shape, dtype=torch.float64)  # a plain sum has no gradient through a norm
    (found * weighting).sum().backward()

    read, written = embedded(ours, source, target)
    masked = {"src_key_padding_mask": ~allowed, "memory_key_padding_mask": ~allowed} if padded else {}
    expected = theirs(read, written, tgt_mask=future_hidden(target.shape[1]), **masked)
    (expected * weighting).sum().backward()

    torch.testing.assert_close(found, expected, **NEAR)
    for our, their in pairs(ours, theirs):
        torch.testing.assert_close(grad(our), grad(their), **NEAR)
    for parts, their in cross_pairs(ours, theirs):
        torch.testing.assert_close(torch.cat([grad(our) for our in parts]), grad(their), **NEAR)
    for embedding, tokens, vectors in (
        (ours.source_embedding, source, read),
        (ours.target_embedding, target, written),
    ):
        summed = torch.zeros_like(embedding.weight)
        summed.index_add_(0, tokens.flatten(), grad(vectors).flatten(0, 1) * DIM**0.5)
        torch.testing.assert_close(grad(embedding.weight), summed, **NEAR)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_memory_equals_that_of_torchs_encoder(norm: str) -> None:
    ours, theirs = make_ours(norm, "relu"), make_theirs(norm, "relu")
    copy_weights(ours, theirs)
    source, target = draw(padded=True)
    allowed = source != PAD
    read, _ = embedded(ours, source, target)
    expected = theirs.encoder(read, src_key_padding_mask=~allowed)
    found = ours.encode(source, allowed).states
    torch.testing.assert_close(found[allowed], expected[allowed], **NEAR)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_decoder_alone_equals_torchs_on_any_memory(norm: str) -> None:
    ours, theirs = make_ours(norm, "relu"), make_theirs(norm, "relu")
    copy_weights(ours, theirs)
    source, target = draw(padded=True)
    allowed = source != PAD
    states = torch.randn(5, 13, DIM, dtype=torch.float64)
    _, written = embedded(ours, source, target)
    causal = future_hidden(target.shape[1])
    expected = theirs.decoder(written, states, tgt_mask=causal, memory_key_padding_mask=~allowed)
    torch.testing.assert_close(ours(target, Memory(states, allowed)), expected, **NEAR)

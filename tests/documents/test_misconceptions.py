"""The page of checked claims is right: its numbers are computed again, and what it names exists."""

from __future__ import annotations

import math
import re
import shlex

import pytest
import torch
from torch import Tensor, nn

from tests.documents.markdown import ROOT
from transduce.cli.main import NAMES
from transduce.cli.main import transduce as program
from transduce.experiments.catalog import EXPERIMENTS
from transduce.inspection.cost import table_1
from transduce.inspection.figure import encodings
from transduce.models.block import DecoderBlock, EncoderBlock
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import Transformer, TransformerConfig, paper_base
from transduce.nn.attention.dot_product import causal_allowed, padding_allowed
from transduce.nn.attention.multi_head import HeadShape, SelfAttention
from transduce.nn.position import sinusoids
from transduce.training.optimizer import noam

PAGE = " ".join((ROOT / "docs/explanation/misconceptions.md").read_text(encoding="utf-8").split())
QUOTED = re.findall(r"`([^`]+)`", PAGE)
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
SMALL = TransformerConfig(model_dim=14, ffn_dim=11, num_heads=2, num_layers=2, dropout=0.0)


def says(*phrases: str) -> None:
    """The page has these words, with numbers that the test has just computed."""
    for phrase in phrases:
        assert phrase in PAGE, phrase


@pytest.mark.parametrize("path", sorted({word for word in QUOTED if re.match(r"(src|tests|docs|recipes)/", word)}))
def test_every_file_of_the_page_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize(("law", "path"), sorted(set(re.findall(r"`(test_\w+)` in `([\w/.]+)`", PAGE))))
def test_every_test_of_the_page_exists(law: str, path: str) -> None:
    assert f"def {law}(" in (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("line", sorted({word for word in QUOTED if word.startswith(("transduce ", "make "))}))
def test_every_command_of_the_page_is_accepted(line: str) -> None:
    name, verb, *options = shlex.split(line)
    if name == "make":
        assert verb in TARGETS
        return
    assert verb in NAMES
    if verb == "reproduce":
        assert options[0] in EXPERIMENTS
    command = program.get_command(program.make_context("transduce", [verb]), verb)
    assert command is not None
    if options:  # a verb alone stands for all that it does
        command.make_context(verb, options)


def test_every_claim_has_a_verdict_and_is_numbered() -> None:
    rows = re.findall(
        r"^\| ([A-E])(\d+) \|([^|]*)\|([^|]*)\|",
        (ROOT / "docs/explanation/misconceptions.md").read_text("utf-8"),
        re.MULTILINE,
    )
    assert {letter for letter, *_ in rows} == set("ABCDE")
    for letter in "ABCDE":
        numbers = [int(number) for found, number, *_ in rows if found == letter]
        assert numbers == list(range(1, len(numbers) + 1))
    for letter, number, _, verdict in rows:
        assert re.search("true|wrong|sometimes", verdict), f"{letter}{number}"


def test_no_claim_is_left_unmeasured_that_a_command_could_measure() -> None:
    assert "not measured" not in PAGE


def test_the_width_of_a_key() -> None:
    width, heads = paper_base().model_dim, paper_base().num_heads
    assert paper_base().head_dims == (width // heads, width // heads)
    upside_down = heads / width
    says(f"512 / 8 = **{width // heads}**", f"8 / 512 = **{upside_down}**", f"its root is {math.sqrt(upside_down)}")
    assert math.sqrt(width // heads) / math.sqrt(upside_down) == 64


def test_the_softmax_of_the_logits() -> None:
    logits = torch.tensor([12.3, 4.8, 3.1, -2.0], dtype=torch.float64)
    paris, london, city, banana = logits.softmax(dim=0).tolist()
    says(f"**{paris:.4f}**", f"**{london:.4f}**", f"**{city:.4f}**")
    assert banana == pytest.approx(6e-7, rel=0.1)
    says(f"**{math.exp(7.5):,.0f}** times less likely", f"0.82 / 0.06 = {0.82 / 0.06:.1f} times")
    says(f"would need {7.5 / math.log(0.82 / 0.06):.2f}, the second {1.7 / math.log(0.06 / 0.03):.2f}")
    says(f"12.3, {12.3 + math.log(0.06 / 0.82):.2f} and {12.3 + math.log(0.03 / 0.82):.2f}")


def test_the_mask_of_the_example() -> None:
    printed = torch.tensor([1, 1, 1, 0, 0, 0, 0, 0, 0], dtype=torch.float64)
    added = printed.softmax(dim=0)  # to equal scores
    says(f"{added[0]:.3f} each", f"**{added[3:].sum():.1%}** of".replace("%", " %"))
    padding = torch.tensor([0, 0, 0, 1, 1, 1], dtype=torch.float64)
    says(f"padding {padding.softmax(dim=0)[3:].sum():.1%} of it".replace("%", " %"))
    hidden = torch.zeros(6).masked_fill(padding == 0, -torch.inf).softmax(dim=0)  # as the article's function does
    assert hidden[3:].sum() == 1
    right = torch.zeros(10).masked_fill(~causal_allowed(10)[2], -torch.inf)
    assert right.tolist() == [0.0] * 3 + [-math.inf] * 7
    torch.testing.assert_close(right.softmax(dim=0), torch.tensor([1 / 3] * 3 + [0.0] * 7))
    assert padding_allowed(torch.tensor([[5, 6, 7, 0, 0, 0]]), pad=0)[0].tolist() == [True] * 3 + [False] * 3


def test_the_function_of_the_article() -> None:
    """New layers at every call give other answers; layers that stay give PyTorch's."""
    torch.manual_seed(3)
    query, memory = torch.randn(2, 3, 16), torch.randn(2, 5, 16)

    def attend(layers: list[nn.Linear]) -> Tensor:
        query_BHQK, key_BHMK, value_BHMK = (
            layer(states).view(2, -1, 8, 2).transpose(1, 2)
            for layer, states in zip(layers[:3], (query, memory, memory), strict=True)
        )
        weight_BHQM = (query_BHQK @ key_BHMK.transpose(-2, -1) / math.sqrt(2)).softmax(dim=-1)
        merged: Tensor = layers[3]((weight_BHQM @ value_BHMK).transpose(1, 2).contiguous().view(2, -1, 16))
        return merged

    first, second = ([nn.Linear(16, 16) for _ in range(4)] for _ in range(2))
    assert not torch.allclose(attend(first), attend(second), atol=0.1)
    reference = nn.MultiheadAttention(16, 8, batch_first=True)
    with torch.no_grad():
        reference.in_proj_weight.copy_(torch.cat([layer.weight for layer in first[:3]]))
        reference.in_proj_bias.copy_(torch.cat([layer.bias for layer in first[:3]]))
        reference.out_proj.load_state_dict(first[3].state_dict())
    torch.testing.assert_close(attend(first), reference(query, memory, memory)[0])


def test_position_signals() -> None:
    says(f"10000^(1/2) = **{10000**0.5:.0f}**", f"the root of 1000 is {1000**0.5:.1f}")
    five = sinusoids(6, 4)[5].tolist()
    assert five == pytest.approx([math.sin(5), math.cos(5), math.sin(5 / 100), math.cos(5 / 100)])
    product_T = encodings(50, 128)[1][0]
    says(f"{product_T[11]:.2f} at distance 11, **{product_T[12]:.2f}** at 12")
    says(f"{product_T[47]:.2f} at 47, **{product_T[49]:.2f}** at 49")
    assert product_T.argmax() == 0 and product_T[49] < product_T[12] < product_T[0]
    says(f"up to {10000 ** (510 / 512):,.0f} · 2π")
    rate_C = 10000.0 ** (-torch.arange(0, 128, 2, dtype=torch.float64) / 128)
    apart_K = torch.arange(1, 200_000, dtype=torch.float64)
    squared_K = sum((2 - 2 * torch.cos(apart_K * rate) for rate in rate_C), torch.zeros(()))
    assert squared_K.argmin() == 0
    says(f"nearer than neighbours, {squared_K[0].sqrt():.2f}")


def test_parameters_and_operations_of_the_paper() -> None:
    encoder = [EncoderBlock(paper_base()) for _ in range(6)]
    sizes = [
        sum(weight.numel() for block in encoder for weight in part(block).parameters())
        for part in (lambda block: block.feed_forward, lambda block: block.self_attention)
    ]
    says("{:,} parameters, and {:,} in its attention".format(*sizes))
    attention, recurrent, *_ = table_1(1000, 512)
    says(f"{attention.operations / 1e6:.0f} against {recurrent.operations / 1e6:.0f} million")
    per_layer = {name: table_1(1536, 512)[row].operations for row, name in enumerate(("attention", "", "convolution"))}
    assert per_layer["attention"] == per_layer["convolution"]
    says("k = 3 from n = 1,536 on")
    d, ffn, length = 512, 2048, 1024  # multiplications of a token: four projections, scores and mixture; two layers
    assert 4 * d * d + 2 * length * d == 2 * d * ffn
    says(f"{0.9**100 * 1e5:.1f} · 10⁻⁵", f"1.1^100 is {1.1**100:,.0f}", f"peaks at {noam(1.0, 512, 4000)(4000):.4f}")
    says(f"{12 * 3600 * 8 * 9.5e12 / 1e18:.1f} · 10¹⁸")


def test_norms_of_a_block() -> None:
    counts = [
        sum(isinstance(part, nn.LayerNorm) for part in block.modules())
        for block in (EncoderBlock(SMALL), DecoderBlock(SMALL))
    ]
    assert counts == [2, 3]


def test_where_cross_attention_gets_its_queries_keys_and_values() -> None:
    torch.manual_seed(2)
    model = build(SMALL, VocabularySizes(11, 11), seed=1).eval()
    assert isinstance(model, Transformer)
    memory = model.encode(torch.tensor([[3, 4, 5]]), torch.ones(1, 3, dtype=torch.bool))
    assert memory.states.shape == (1, 3, SMALL.model_dim)
    kept = model.start(memory).memory
    assert kept is not None
    keys = kept.keys
    assert len(keys) == 2 and not torch.allclose(keys[0], keys[1])
    block, recorded = model.decoder[1], []
    block.cross_attention.register_forward_pre_hook(lambda _, inputs: recorded.append(inputs[0]))
    read = torch.randn(1, 4, SMALL.model_dim)
    block(read, memory.states, None, model.target_relative_positions(torch.arange(4)[None], torch.arange(4)[None]))
    expected = block.self_attention_residual(read, lambda states: block.self_attention(states, causal=True))
    torch.testing.assert_close(recorded[0], expected)
    assert not torch.allclose(recorded[0], read)


def test_sharing_matrices_exchanges_nothing_and_mixing_does() -> None:
    torch.manual_seed(1)
    attention = SelfAttention(6, HeadShape.plain(2, 3, 3))
    words = torch.randn(1, 2, 6)
    other = torch.cat([words[:, :1], torch.randn(1, 1, 6)], dim=1)
    projected = [attention.qkv_proj(one)[:, 0] for one in (words, other)]
    assert torch.equal(*projected)
    assert not torch.allclose(attention(words)[:, 0], attention(other)[:, 0])


def test_attention_without_positions_knows_order_only_where_the_future_is_hidden() -> None:
    """An encoder permutes with its input. A decoder of one layer sees a set; one of two layers does not."""
    torch.manual_seed(1)
    words, order = torch.randn(1, 5, 14), torch.tensor([2, 0, 3, 1, 4])
    for layers in (1, 2):
        blocks = [EncoderBlock(SMALL).eval() for _ in range(layers)]
        outputs = {}
        for causal in (False, True):
            for name, states in (("told", words), ("permuted", words[:, order])):
                for block in blocks:
                    states = block(states, None, causal=causal)
                outputs[name, causal] = states
        torch.testing.assert_close(outputs["told", False][:, order], outputs["permuted", False])
        same = torch.allclose(outputs["told", True][:, -1], outputs["permuted", True][:, -1], atol=1e-5)
        assert same == (layers == 1)

"""The Transformer's sizes against the paper's Table 3, its settings, its limits, and its taps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from transduce.errors import DataError, SettingsError
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import Transformer, TransformerConfig, paper_base, paper_big, small, tiny

TABLE_3_VOCABULARY = 41_100
"""The paper does not print its vocabulary; this one gives the published column for all rows but `big`."""


def count(config: TransformerConfig, source: int, target: int) -> int:
    """Parameters, each tied matrix once, without taking memory for them."""
    with torch.device("meta"):
        model = Transformer(config, VocabularySizes(source, target))
    return sum(parameter.numel() for parameter in model.parameters())


def by_formula(model_dim: int, ffn_dim: int, heads: int, key_dim: int, value_dim: int, layers: int, size: int) -> int:
    """Section 3 added up: no biases in attention, none before the softmax, one tied matrix."""
    attention = 2 * model_dim * heads * key_dim + 2 * model_dim * heads * value_dim
    feed_forward = 2 * model_dim * ffn_dim + ffn_dim + model_dim
    norm = 2 * model_dim
    encoder_block = attention + feed_forward + 2 * norm
    decoder_block = 2 * attention + feed_forward + 3 * norm
    return layers * (encoder_block + decoder_block) + size * model_dim


@pytest.mark.parametrize(
    ("changes", "millions"),
    [
        ({}, 65),
        ({"num_heads": 1}, 65),
        ({"num_heads": 4}, 65),
        ({"num_heads": 16}, 65),
        ({"num_heads": 32}, 65),
        ({"key_dim": 16}, 58),
        ({"key_dim": 32}, 60),
        ({"num_layers": 2}, 36),
        ({"num_layers": 4}, 50),
        ({"num_layers": 8}, 80),
        ({"model_dim": 256}, 28),
        ({"model_dim": 1024}, 168),
        ({"ffn_dim": 1024}, 53),
        ({"ffn_dim": 4096}, 90),
    ],
    ids=str,
)
def test_parameter_counts_round_to_the_column_of_table_3(changes: dict[str, int], millions: int) -> None:
    parameters = count(paper_base().but(**changes), TABLE_3_VOCABULARY, TABLE_3_VOCABULARY)
    assert round(parameters / 1e6) == millions


def test_base_without_embeddings_has_44_101_632_parameters() -> None:
    assert count(paper_base(), 1, 1) - 512 == 44_101_632


def test_big_adds_up_to_what_section_3_says() -> None:
    expected = by_formula(1024, 4096, 16, 64, 64, 6, 37_000)
    assert count(paper_big(), 37_000, 37_000) == expected


def test_tiny_has_the_published_number_of_parameters() -> None:
    """Wu et al. 2021 on Multi30k, with a joint vocabulary of 9,712."""
    assert count(tiny(), 9_712, 9_712) == 2_568_192


def test_the_three_layer_transformer_of_the_multi30k_ladder_has_the_published_number_of_parameters() -> None:
    config = TransformerConfig(
        model_dim=256,
        num_heads=8,
        ffn_dim=512,
        num_layers=3,
        positions="learned",
        max_positions=100,
        tied_embeddings="none",
        attention_bias=True,
        output_bias=True,
    )
    assert count(config, 7_853, 5_893) == 9_038_341


def test_independent_key_and_value_widths_add_up() -> None:
    config = TransformerConfig(model_dim=7, ffn_dim=11, num_heads=3, key_dim=5, value_dim=2, num_layers=2)
    assert count(config, 13, 13) == by_formula(7, 11, 3, 5, 2, 2, 13)


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        (paper_base, (512, 8, 2048, 6, "post", "relu", "sinusoidal", "all", False, 0.1)),
        (paper_big, (1024, 16, 4096, 6, "post", "relu", "sinusoidal", "all", False, 0.3)),
        (small, (256, 4, 1024, 4, "pre", "relu", "sinusoidal", "all", False, 0.3)),
        (tiny, (128, 4, 256, 4, "post", "relu", "sinusoidal", "all", True, 0.3)),
    ],
)
def test_a_published_preset_never_changes(preset: object, expected: tuple[object, ...]) -> None:
    config = preset()  # type: ignore[operator]
    assert expected == (
        config.model_dim,
        config.num_heads,
        config.ffn_dim,
        config.num_layers,
        config.norm,
        config.activation,
        config.positions,
        config.tied_embeddings,
        config.attention_bias,
        config.dropout,
    )
    assert (config.key_dim, config.value_dim, config.decoder_layers) == (None, None, None)
    assert (config.attention_dropout, config.activation_dropout, config.output_bias) == (0.0, 0.0, False)


def test_heads_share_the_width_by_default() -> None:
    assert paper_base().head_dims == (64, 64)
    assert paper_base().but(key_dim=16).head_dims == (16, 64)
    assert paper_base().but(value_dim=3).head_dims == (64, 3)
    assert TransformerConfig(model_dim=7, num_heads=3, key_dim=2, value_dim=5).head_dims == (2, 5)


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"num_heads": 0}, "num_heads = 0 is invalid: it must be at least 1"),
        (
            {"num_heads": 7},
            "model_dim 512 is not divisible by num_heads 7",
        ),
        ({"num_heads": 7, "key_dim": 3}, "model_dim 512 is not divisible by num_heads 7"),
        ({"num_layers": 1_000_000}, "num_layers = 1000000"),
        ({"decoder_layers": 0}, "decoder_layers = 0"),
        ({"model_dim": -512}, "model_dim = -512"),
        ({"ffn_dim": 10**9}, "ffn_dim = 1000000000"),
        ({"ffn_dim": 1.5}, "ffn_dim = 1.5"),
        ({"dropout": -0.1}, "dropout = -0.1"),
        ({"dropout": 1.0}, "dropout = 1.0"),
        ({"dropout": float("nan")}, "dropout = nan"),
        ({"norm": "middle"}, "norm = 'middle' is invalid: it must be 'post' or 'pre'"),
        ({"tied_embeddings": "both"}, "tied_embeddings = 'both'"),
        ({"positions": "sinus"}, "positions = 'sinus'"),
        ({"max_positions": 0}, "max_positions = 0"),
        ({"num_head": 8}, "unknown setting 'num_head'; did you mean 'num_heads'?"),
    ],
    ids=str,
)
def test_a_setting_that_makes_no_sense_is_rejected_in_one_sentence(table: dict[str, object], complaint: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        TransformerConfig.from_table(table, "recipe.toml: model")
    assert str(refusal.value).startswith("recipe.toml: model")
    assert complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)


JOINT = VocabularySizes(11, 11)


def make(sizes: VocabularySizes = JOINT, **changes: object) -> Transformer:
    shape = {"model_dim": 6, "num_heads": 2, "ffn_dim": 7, "num_layers": 1, "dropout": 0.0, **changes}
    model = build(TransformerConfig.from_table(shape, "test"), sizes, seed=3)
    assert isinstance(model, Transformer)
    return model.eval()


@pytest.mark.parametrize(
    ("tied", "matrices"), [("all", 1), ("target", 2), ("none", 3)], ids=["three ways", "two ways", "not"]
)
def test_embeddings_are_shared_as_configured(tied: str, matrices: int) -> None:
    model = make(tied_embeddings=tied)
    weights = {id(part.weight) for part in (model.source_embedding, model.target_embedding, model.output)}
    assert len(weights) == matrices
    assert (model.output.weight is model.target_embedding.weight) == (tied != "none")


def test_each_side_has_as_many_rows_as_its_vocabulary() -> None:
    model = make(VocabularySizes(11, 13), tied_embeddings="target")
    assert len(model.source_embedding.weight) == 11
    assert len(model.target_embedding.weight) == len(model.output.weight) == 13


def test_sinusoids_set_no_limit_and_learned_positions_set_theirs() -> None:
    assert (make().max_source, make().max_target) == (None, None)
    learned = make(positions="learned", max_positions=5)
    assert (learned.max_source, learned.max_target) == (5, 5)


def read(model: Transformer, length: int) -> Tensor:
    tokens = torch.ones(2, length, dtype=torch.long)
    memory = model.encode(tokens[:, :3], torch.ones(2, 3, dtype=torch.bool))
    return model(tokens, memory)


def test_a_text_longer_than_the_learned_positions_is_an_error_on_every_way() -> None:
    model, long = make(positions="learned", max_positions=5), torch.ones(2, 6, dtype=torch.long)
    allowed = torch.ones(2, 6, dtype=torch.bool)
    assert read(model, 5).shape == (2, 5, 6)
    with pytest.raises(DataError, match="6 tokens"):
        model.encode(long, allowed)
    with pytest.raises(DataError, match="6 tokens"):
        read(model, 6)
    memory = model.encode(long[:, :5], allowed[:, :5])
    with pytest.raises(DataError, match="6 tokens"):
        model.extend(long, torch.tensor([6, 6]), model.start(memory))
    _, state = model.extend(long[:, :5], torch.tensor([5, 5]), model.start(memory))
    with pytest.raises(DataError, match="6 tokens"):
        model.step(long[:, 0], state)


def test_a_text_longer_than_any_seen_is_read_with_sinusoids() -> None:
    assert bool(read(make(), 601).isfinite().all())


def test_dropout_acts_in_training_only() -> None:
    model = make(dropout=0.5, attention_dropout=0.3, activation_dropout=0.2)
    assert torch.equal(read(model.eval(), 5), read(model, 5))
    assert not torch.equal(read(model.train(), 5), read(model, 5))


def test_hooks_on_any_head_do_not_change_the_output() -> None:
    model = make(num_layers=2).double()
    before, recorded = read(model, 5), []
    taps = [module for name, module in model.named_modules() if name.endswith((".weight", ".score", ".residual"))]
    assert len(taps) == 2 * (2 + 1) + 2 * (4 + 1)
    for tap in taps:
        tap.register_forward_hook(lambda *_: recorded.append(1))
    torch.testing.assert_close(read(model, 5), before, rtol=0, atol=1e-12)
    assert len(recorded) == len(taps)


def test_every_parameter_learns() -> None:
    model = make(
        VocabularySizes(11, 13), tied_embeddings="none", num_layers=2, norm="pre", attention_bias=True, output_bias=True
    )
    hidden = read(model.train(), 5)
    nn.functional.cross_entropy(model.logits(hidden).flatten(0, 1), torch.arange(10)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name
        if not name.endswith("bias"):  # a key's bias shifts all scores alike, and softmax does not see it
            assert bool((parameter.grad != 0).any()), name


def test_the_same_sentence_gives_the_same_vectors_whichever_kernel_runs() -> None:
    """A full batch needs no mask; the same rows beside a padded one do."""
    model = make().double()
    source, target = torch.randint(0, 11, (3, 7)), torch.randint(0, 11, (3, 5))
    allowed = torch.ones(3, 7, dtype=torch.bool)
    allowed[2, 4:] = False
    masked = model(target, model.encode(source, allowed))
    alone = model(target[:2], model.encode(source[:2], allowed[:2]))
    torch.testing.assert_close(masked[:2], alone, rtol=0, atol=1e-12)

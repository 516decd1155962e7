"""One head against many at the same width (section 3.2.2; Table 3, rows A).

The task needs attention to two positions at once: each position has to predict the previous symbol and the one `far`
positions before it, in this order. A head outputs one weighted mean, so a layer with a single head must attend to one
of the two positions or average them. More layers can attend one after the other; more heads are narrower.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.experiments.finding import Chart, ClaimCheck, Finding, Report, Series, fit, silent
from transduce.models.block import BlockConfig, EncoderBlock, relative_positions
from transduce.nn.embedding import Embedding, Output
from transduce.nn.initialization import initialize
from transduce.rng import torch_generator

LEARNED = 0.95
"""Accuracy from which on a model has learned the task."""
TOLERANCE = 0.01
"""Differences in accuracy up to this do not count."""


@dataclass(frozen=True)
class HeadSetting:
    """Sizes of the models and of the task."""

    width: int = 32
    num_heads: tuple[int, ...] = (1, 2, 4, 8)
    """In rising order from 1; each divides the width."""
    layers: tuple[int, ...] = (1, 2)
    symbols: int = 8
    length: int = 24
    far: int = 4
    batch: int = 48
    updates: int = 500
    tries: int = 3
    """Models of each kind, with different random initialisations."""
    tested: int = 200
    """Test sequences."""


DEFAULT = HeadSetting()


class PairPredictor(nn.Module):
    """Embedding, blocks with rotary positions, and a score for every pair of symbols at every position."""

    def __init__(self, setting: HeadSetting, num_heads: int, num_layers: int) -> None:
        super().__init__()
        config = BlockConfig(
            model_dim=setting.width,
            num_heads=num_heads,
            ffn_dim=4 * setting.width,
            num_layers=num_layers,
            norm="pre",
            positions="rotary",
            dropout=0.0,
        )
        self.embedding = Embedding(setting.symbols, setting.width)
        self.relations = relative_positions(config, bidirectional=True)
        self.blocks = nn.ModuleList(EncoderBlock(config) for _ in range(num_layers))
        self.output = Output(setting.symbols**2, setting.width)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B N) -> (B N V·V)."""
        place_1N = torch.arange(tokens.shape[1])[None]
        relation = self.relations(place_1N, place_1N)
        hidden_BND = self.embedding(tokens)
        for block in self.blocks:
            hidden_BND = block(hidden_BND, None, relation)
        scores: Tensor = self.output(hidden_BND)
        return scores


def measure(seed: int = 1, report: Report = silent, setting: HeadSetting = DEFAULT) -> Finding:
    """Train models that differ only in the number of heads, and test them on unseen sequences."""
    kinds = [(layers, heads) for layers in setting.layers for heads in setting.num_heads]
    right = {
        kind: [accuracy(setting, *kind, seed + attempt, report) for attempt in range(setting.tries)] for kind in kinds
    }
    sizes = {
        kind: sum(weight.numel() for weight in PairPredictor(setting, kind[1], kind[0]).parameters()) for kind in kinds
    }
    return Finding(
        title="One head against many",
        claim="several heads attend to several positions at once, where a single head averages, so they are "
        "better than one head of the same total width.",
        setting={"width": setting.width, "symbols": setting.symbols, "far": setting.far, "updates": setting.updates},
        columns=("layers", "heads", "d_k", "parameters", "accuracy, mean", "worst", "best"),
        rows=tuple(
            (*kind, setting.width // kind[1], sizes[kind], _mean(found), min(found), max(found))
            for kind, found in right.items()
        ),
        charts=(
            Chart(
                "Both symbols correct",
                "heads",
                "share of positions",
                tuple(
                    Series(
                        f"{layers} layer{'s' * (layers > 1)}",
                        tuple(map(float, setting.num_heads)),
                        tuple(_mean(right[layers, heads]) for heads in setting.num_heads),
                    )
                    for layers in setting.layers
                ),
                log_x=True,
            ),
        ),
        checks=_checks(setting, right),
    )


def sample_batch(setting: HeadSetting, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return sequences and, from position `far` on, the pair to predict at each position.  -> (B N), (B N - far)."""
    token_BN = torch.randint(setting.symbols, (size, setting.length), generator=generator)
    pair_BN = token_BN.roll(1, dims=1) * setting.symbols + token_BN.roll(setting.far, dims=1)
    return token_BN, pair_BN[:, setting.far :]


def accuracy(setting: HeadSetting, layers: int, heads: int, seed: int, report: Report = silent) -> float:
    """Train one model; return the share of positions in new sequences where both symbols are correct."""
    model = PairPredictor(setting, heads, layers)
    initialize(model, seed)
    fit(
        model, partial(_loss, model, setting), setting.updates, seed, report, f"{layers} layers, {heads} heads: updates"
    )
    token_BN, pair_BN = sample_batch(setting, setting.tested, torch_generator(seed + 1000))
    with torch.no_grad():
        predicted_BN = model(token_BN)[:, setting.far :].argmax(dim=-1)
    return float((predicted_BN == pair_BN).double().mean())


def _loss(model: PairPredictor, setting: HeadSetting, generator: torch.Generator) -> Tensor:
    token_BN, pair_BN = sample_batch(setting, setting.batch, generator)
    return F.cross_entropy(model(token_BN)[:, setting.far :].flatten(0, 1), pair_BN.flatten())


def _checks(setting: HeadSetting, right: dict[tuple[int, int], list[float]]) -> tuple[ClaimCheck, ...]:
    first, last = setting.layers[0], setting.layers[-1]
    alone, several = _mean(right[first, 1]), [_mean(right[first, heads]) for heads in setting.num_heads[1:]]
    most, best = several[-1], max(several)
    guess, single = 1 / setting.symbols, right[first, 1]
    return (
        ClaimCheck(f"in {first} layer, several heads learn the task ({best:.1%} at best)", best >= LEARNED),
        ClaimCheck(
            f"a single head does not ({alone:.1%} on average, {min(single):.1%} to {max(single):.1%}; attending to one "
            f"position and guessing the other gives {guess:.1%})",
            alone < LEARNED,
        ),
        ClaimCheck(f"every number of heads is better than one ({min(several):.1%} at least)", min(several) > alone),
        ClaimCheck(
            f"more heads are better: {setting.num_heads[-1]} of width {setting.width // setting.num_heads[-1]} are "
            f"as good as the best ({most:.1%}, best {best:.1%})",
            most >= best - TOLERANCE,
        ),
        ClaimCheck(
            f"more layers do not compensate: with {last}, a single head still fails ({_mean(right[last, 1]):.1%})",
            _mean(right[last, 1]) < LEARNED,
        ),
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)

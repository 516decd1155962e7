"""Positions beyond the training length: fixed sinusoids, a learned table, and two later kinds (section 3.5).

The task needs nothing but positions: predict the previous token of every token in a random text. One block is trained
on texts of up to 100 tokens and tested on texts of 200. The table has 200 rows, because a shorter one raises an error
(`nn.position`); the rows past 100 keep their random initialisation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.errors import DataError
from transduce.experiments.finding import Chart, ClaimCheck, Finding, Report, Series, fit, silent
from transduce.models.block import BlockConfig, EncoderBlock, added_positions, final_norm, relative_positions
from transduce.nn.embedding import Embedding, Output
from transduce.nn.initialization import initialize
from transduce.nn.position import LearnedPositions
from transduce.rng import torch_generator

Kind = Literal["sinusoidal", "learned", "rotary", "alibi", "none"]
KINDS: tuple[Kind, ...] = ("sinusoidal", "learned", "rotary", "alibi", "none")

LEARNED = 0.95
"""Accuracy from which on the task counts as learned."""
RETAINED = 0.9
"""Share of the accuracy at trained positions that a model must reach beyond them to generalise."""


@dataclass(frozen=True)
class PositionSetting:
    """Lengths, sizes and updates."""

    trained: int = 100
    """Maximum text length in training; the minimum is half of it."""
    tested: int = 200
    dim: int = 64
    words: int = 16
    updates: int = 400
    rows: int = 16
    """Batch size."""
    test_rows: int = 64
    bin: int = 10
    """Positions per point of the chart."""


DEFAULT = PositionSetting()


class PreviousTokenModel(nn.Module):
    """Embedding, one bidirectional block and an output layer."""

    def __init__(self, kind: Kind, setting: PositionSetting) -> None:
        super().__init__()
        dim = setting.dim
        config = BlockConfig(
            model_dim=dim, num_heads=4, ffn_dim=2 * dim, norm="pre", dropout=0.0, positions=kind,
            max_positions=setting.tested,
        )  # fmt: skip
        self.embedding = Embedding(setting.words, dim, scaled=False)  # at the scale of learned positions
        self.positions, self.relations = added_positions(config), relative_positions(config, bidirectional=True)
        self.block, self.norm = EncoderBlock(config), final_norm(config)
        self.output = Output(setting.words, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B N) -> scores (B N V)."""
        place_1N = torch.arange(tokens.shape[1])[None]
        hidden_BND = self.embedding(tokens) + self.positions.first(tokens.shape[1])
        hidden_BND = self.block(hidden_BND, None, self.relations(place_1N, place_1N))
        score_BNV: Tensor = self.output(self.norm(hidden_BND))
        return score_BNV


def measure(seed: int = 1, report: Report = silent, setting: PositionSetting = DEFAULT) -> Finding:
    """Train one model for each kind of positions on the same texts, and test it on longer ones."""
    short, long = {}, {}
    for kind in KINDS:
        model = train(kind, seed, report, setting)
        short[kind] = accuracy_by_position(model, setting.trained, seed, setting)
        long[kind] = accuracy_by_position(model, setting.tested, seed, setting)
    trained, tested = setting.trained, setting.tested
    return Finding(
        title="Positions beyond the training length",
        claim="sinusoidal positions let a model generalise to texts longer than those in training; learned ones, "
        "equally good otherwise, do not.",
        setting={
            "updates": setting.updates,
            "batch size": setting.rows,
            "width": setting.dim,
            "words": setting.words,
            "training lengths": f"{trained // 2} to {trained}",
        },
        columns=(
            *("positions", f"1 to {trained}, of {trained}", f"1 to {trained}, of {tested}"),
            f"{trained + 1} to {tested}, of {tested}",
        ),
        rows=tuple(
            (kind, *(part_N.mean().item() for part_N in (short[kind], long[kind][:trained], long[kind][trained:])))
            for kind in KINDS
        ),
        charts=(_chart(long, setting),),
        checks=checks(short, long, setting),
    )


def sample_texts(rows: int, length: int, words: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sample texts and the previous token at each position; at the first, the token itself.  -> (B N), (B N)."""
    token_BN = torch.randint(0, words, (rows, length), generator=generator)
    return token_BN, torch.cat([token_BN[:, :1], token_BN[:, :-1]], dim=1)


def train(kind: Kind, seed: int, report: Report, setting: PositionSetting) -> PreviousTokenModel:
    """Train one model; the texts are the same for every kind."""
    model = PreviousTokenModel(kind, setting)
    initialize(model, seed)

    def loss(generator: torch.Generator) -> Tensor:
        length = int(torch.randint(setting.trained // 2, setting.trained + 1, (), generator=generator))
        token_BN, previous_BN = sample_texts(setting.rows, length, setting.words, generator)
        return F.cross_entropy(model(token_BN).flatten(0, 1), previous_BN.flatten())

    def schedule(update: int) -> float:
        return 5e-3 * min(update / 50, 1 - (update - 1) / setting.updates)

    stage = f"training, {kind} positions"
    fit(model, loss, setting.updates, seed, report, stage, schedule, betas=(0.9, 0.999), max_grad_norm=1.0)
    return model


def accuracy_by_position(model: PreviousTokenModel, length: int, seed: int, setting: PositionSetting) -> Tensor:
    """Return the share of texts with a correct prediction at each position.  -> (N)."""
    generator = torch_generator(seed + 1)
    token_BN, previous_BN = sample_texts(setting.test_rows, length, setting.words, generator)
    with torch.no_grad():
        correct_BN: Tensor = model(token_BN).argmax(dim=-1) == previous_BN
    return correct_BN.double().mean(dim=0)


def _rejects(setting: PositionSetting) -> bool:
    """Whether a table of the trained length raises an error for a longer text."""
    try:
        LearnedPositions(setting.dim, setting.trained).first(setting.tested)
    except DataError:
        return True
    return False


def checks(short: dict[Kind, Tensor], long: dict[Kind, Tensor], setting: PositionSetting) -> tuple[ClaimCheck, ...]:
    """Check the claim on accuracies by position, in texts of trained length and in longer ones.  (N) each."""
    near = {kind: short[kind].mean().item() for kind in KINDS}
    far = {kind: long[kind][setting.trained :].mean().item() for kind in KINDS}
    chance = 1 / setting.words
    return (
        ClaimCheck(
            f"at trained lengths both learn the task: {near['sinusoidal']:.1%} and {near['learned']:.1%} are correct",
            min(near["sinusoidal"], near["learned"]) > LEARNED,
        ),
        ClaimCheck(
            f"beyond them, learned positions are no better than guessing ({far['learned']:.1%}, guessing {chance:.1%})",
            far["learned"] < 2 * chance,
        ),
        ClaimCheck(f"a table of {setting.trained} positions rejects a text of {setting.tested}", _rejects(setting)),
        ClaimCheck(
            f"beyond them, sinusoids are better than learned positions: {far['sinusoidal']:.1%}",
            far["sinusoidal"] > 2 * far["learned"],
        ),
        ClaimCheck(
            f"with sinusoids the model generalises: it retains {RETAINED:.0%} of its accuracy (it retains "
            f"{far['sinusoidal'] / near['sinusoidal']:.0%}; rotary positions {far['rotary'] / near['rotary']:.0%})",
            far["sinusoidal"] > RETAINED * near["sinusoidal"],
        ),
    )


def _chart(long: dict[Kind, Tensor], setting: PositionSetting) -> Chart:
    def line(kind: Kind) -> Series:
        binned_N = long[kind].view(-1, setting.bin).mean(dim=1)
        return Series(kind, tuple(range(setting.bin, setting.tested + 1, setting.bin)), tuple(binned_N.tolist()))

    title = f"Texts of {setting.tested} tokens, trained on at most {setting.trained}"
    return Chart(title, "position", "accuracy", tuple(line(kind) for kind in KINDS))

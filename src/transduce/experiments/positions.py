"""Positions beyond the training length: fixed sinusoids beside a learned table, and two kinds that came later.

The task needs nothing but positions: every token has to name the one that stood before it, among random ones. One
block learns it on texts of up to 100 tokens and is then asked about texts of 200. The table is given 200 rows, or it
would refuse (`nn.position`); those past 100 stay as they were drawn.
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

LEARNT = 0.95
"""Share of tokens named rightly from which on the task counts as learnt."""
KEPT = 0.9
"""Of what it knows at trained positions, what a model must know beyond them to be said to generalise."""


@dataclass(frozen=True)
class PositionSetting:
    """Lengths, and how long to train."""

    trained: int = 100
    """Most tokens of a text in training; the fewest are half of it."""
    tested: int = 200
    dim: int = 64
    words: int = 16
    updates: int = 400
    rows: int = 16
    """Texts in a batch."""
    test_rows: int = 64
    bin: int = 10
    """Positions whose accuracies make one point of the picture."""


DEFAULT = PositionSetting()


class Namer(nn.Module):
    """One block without a hidden future, and what stands before and behind it."""

    def __init__(self, kind: Kind, setting: PositionSetting) -> None:
        super().__init__()
        dim = setting.dim
        config = BlockConfig(
            model_dim=dim, num_heads=4, ffn_dim=2 * dim, norm="pre", dropout=0.0, positions=kind,
            max_positions=setting.tested,
        )  # fmt: skip
        self.embedding = Embedding(setting.words, dim, scaled=False)  # a learned position is as small at first
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
    """Train one model for each kind of positions on the same texts, and ask it about longer ones."""
    short, long = {}, {}
    for kind in KINDS:
        model = train(kind, seed, report, setting)
        short[kind] = accuracy_by_position(model, setting.trained, seed, setting)
        long[kind] = accuracy_by_position(model, setting.tested, seed, setting)
    trained, tested = setting.trained, setting.tested
    return Finding(
        title="Positions beyond the training length",
        claim="sinusoidal positions let a model generalise to texts longer than those it was trained on; learned ones, "
        "as good otherwise, do not.",
        setting={
            "updates": setting.updates,
            "texts in a batch": setting.rows,
            "width": setting.dim,
            "words": setting.words,
            "trained on lengths": f"{trained // 2} to {trained}",
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


def texts(rows: int, length: int, words: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw texts and what is to be said at each position: the token before; at the first, itself.  -> (B N), (B N)."""
    token_BN = torch.randint(0, words, (rows, length), generator=generator)
    return token_BN, torch.cat([token_BN[:, :1], token_BN[:, :-1]], dim=1)


def train(kind: Kind, seed: int, report: Report, setting: PositionSetting) -> Namer:
    """Train one model; the texts are the same for every kind."""
    model = Namer(kind, setting)
    initialize(model, seed)

    def loss(generator: torch.Generator) -> Tensor:
        length = int(torch.randint(setting.trained // 2, setting.trained + 1, (), generator=generator))
        token_BN, said_BN = texts(setting.rows, length, setting.words, generator)
        return F.cross_entropy(model(token_BN).flatten(0, 1), said_BN.flatten())

    def rate(update: int) -> float:
        return 5e-3 * min(update / 50, 1 - (update - 1) / setting.updates)

    stage = f"training, {kind} positions"
    fit(model, loss, setting.updates, seed, report, stage, rate, betas=(0.9, 0.999), clip=1.0)
    return model


def accuracy_by_position(model: Namer, length: int, seed: int, setting: PositionSetting) -> Tensor:
    """Return the share of texts in which each position was named rightly.  -> (N)."""
    generator = torch_generator(seed + 1)
    token_BN, said_BN = texts(setting.test_rows, length, setting.words, generator)
    with torch.no_grad():
        right_BN: Tensor = model(token_BN).argmax(dim=-1) == said_BN
    return right_BN.double().mean(dim=0)


def _rejects(setting: PositionSetting) -> bool:
    """Whether a table of the trained length refuses a longer text rather than make something up."""
    try:
        LearnedPositions(setting.dim, setting.trained).first(setting.tested)
    except DataError:
        return True
    return False


def checks(short: dict[Kind, Tensor], long: dict[Kind, Tensor], setting: PositionSetting) -> tuple[ClaimCheck, ...]:
    """Judge by accuracies at each position of texts of trained length and of longer ones.  (N) each."""
    near = {kind: short[kind].mean().item() for kind in KINDS}
    far = {kind: long[kind][setting.trained :].mean().item() for kind in KINDS}
    chance = 1 / setting.words
    return (
        ClaimCheck(
            f"at trained lengths both are as good: {near['sinusoidal']:.1%} and {near['learned']:.1%} are right",
            min(near["sinusoidal"], near["learned"]) > LEARNT,
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
            f"with sinusoids the model generalises: it keeps {KEPT:.0%} of what it knew (it keeps "
            f"{far['sinusoidal'] / near['sinusoidal']:.0%}; rotary positions {far['rotary'] / near['rotary']:.0%})",
            far["sinusoidal"] > KEPT * near["sinusoidal"],
        ),
    )


def _chart(long: dict[Kind, Tensor], setting: PositionSetting) -> Chart:
    def line(kind: Kind) -> Series:
        binned_N = long[kind].view(-1, setting.bin).mean(dim=1)
        return Series(kind, tuple(range(setting.bin, setting.tested + 1, setting.bin)), tuple(binned_N.tolist()))

    title = f"Texts of {setting.tested} tokens, trained on at most {setting.trained}"
    return Chart(title, "position", "share named rightly", tuple(line(kind) for kind in KINDS))

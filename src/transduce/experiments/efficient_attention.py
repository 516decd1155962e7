"""What efficient attention loses: six kinds against full attention, on the same tasks.

One encoder, which differs in its self-attention only, gets the same updates on three tasks. Each position has to name
a symbol: the one before it (*near*), the one `far` positions before it (*far*), or the value that another
position states for its key (*lookup*, which needs a search by content).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.experiments.finding import Chart, ClaimCheck, Finding, Report, Series, fit, silent
from transduce.models.block import AttentionName, BlockConfig, EncoderBlock, added_positions, final_norm
from transduce.nn.embedding import Embedding, Output
from transduce.nn.initialization import initialize
from transduce.rng import torch_generator

KINDS: tuple[AttentionName, ...] = ("full", "window", "strided", "low_rank", "linear", "performer", "hashed")
TASKS = ("near", "far", "lookup")
IGNORED = -100
"""Label of positions that have nothing to predict."""
LEARNED = 0.9
"""Accuracy from which on a task counts as learned."""
MUCH = 0.05
"""Loss of accuracy that counts as much."""


@dataclass(frozen=True)
class EfficientSetting:
    """Sizes of the models and of the tasks."""

    width: int = 64
    num_heads: int = 4
    num_layers: int = 2
    length: int = 64
    reach: int = 8
    """Positions on either side of a window, stride, rank, and positions of a hash bucket: an eighth of the length."""
    features: int = 32
    """Random features of Performer."""
    far: int = 40
    symbols: int = 8
    batch: int = 16
    rate: float = 5e-3
    """Peak learning rate."""
    updates: int = 400
    tested: int = 100

    @property
    def keys(self) -> int:
        """Keys of lookup: half of a sequence states their values, the other half asks for them."""
        return self.length // 2

    @property
    def vocabulary(self) -> int:
        """Symbols, facts and questions."""
        return self.symbols + self.keys * self.symbols + self.keys


DEFAULT = EfficientSetting()


class Tagger(nn.Module):
    """Embedding, encoder blocks, and a score for every symbol at every position."""

    def __init__(self, kind: AttentionName, setting: EfficientSetting) -> None:
        super().__init__()
        config = BlockConfig(
            model_dim=setting.width,
            num_heads=setting.num_heads,
            ffn_dim=2 * setting.width,
            norm="pre",
            dropout=0.0,
            positions="learned",
            max_positions=setting.length,
            attention=kind,
            window=setting.reach,
            stride=setting.reach,
            rank=setting.reach,
            features=setting.features,
            hash_buckets=setting.length // setting.reach,
            hash_reach=setting.reach,
        )
        self.embedding = Embedding(setting.vocabulary, setting.width, scaled=False)
        self.positions = added_positions(config)
        self.blocks = nn.ModuleList(EncoderBlock(config.of_layer(layer)) for layer in range(setting.num_layers))
        self.norm = final_norm(config)
        self.output = Output(setting.symbols, setting.width)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B N) -> (B N V)."""
        hidden_BND = self.embedding(tokens) + self.positions.first(tokens.shape[1])
        for block in self.blocks:
            hidden_BND = block(hidden_BND, None)
        scores: Tensor = self.output(self.norm(hidden_BND))
        return scores


def sample_batch(task: str, setting: EfficientSetting, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return sequences and the symbol to name at each position, or IGNORED.  -> (B N), (B N)."""
    length = setting.length
    if task == "lookup":
        return _lookup(setting, size, generator)
    token_BN = torch.randint(setting.symbols, (size, length), generator=generator)
    back = 1 if task == "near" else setting.far
    label_BN = token_BN.roll(back, dims=1)
    label_BN[:, :back] = IGNORED
    return token_BN, label_BN


def _lookup(setting: EfficientSetting, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Facts in the first half, one token for key and value; in the second half all keys, each to name its value."""
    keys, symbols = setting.keys, setting.symbols
    key_BK, asked_BK = torch.rand(2, size, keys, generator=generator).argsort(dim=-1)
    value_BK = torch.randint(symbols, (size, keys), generator=generator)  # of key 0, 1, 2 …
    fact_BK = symbols + key_BK * symbols + value_BK.gather(1, key_BK)
    question_BK = symbols + keys * symbols + asked_BK
    label_BK = value_BK.gather(1, asked_BK)
    return torch.cat([fact_BK, question_BK], dim=1), torch.cat([torch.full_like(fact_BK, IGNORED), label_BK], dim=1)


def measure(seed: int = 1, report: Report = silent, setting: EfficientSetting = DEFAULT) -> Finding:
    """Train every kind of attention on every task, with the same sequences."""
    found = {(kind, task): accuracy(kind, task, setting, seed, report) for kind in KINDS for task in TASKS}
    return Finding(
        title="What efficient attention loses",
        claim="sparse, low-rank, kernel and hashed attention replace full attention without losing much.",
        setting={
            "length": setting.length,
            "window, stride, rank, bucket": setting.reach,
            "far": setting.far,
            "width": setting.width,
            "layers": setting.num_layers,
            "updates": setting.updates,
        },
        columns=("attention", *TASKS),
        rows=tuple((kind, *(found[kind, task] for task in TASKS)) for kind in KINDS),
        charts=(
            Chart(
                "Accuracy after the same updates",
                "task: 1 near, 2 far, 3 lookup",
                "share of positions correct",
                tuple(
                    Series(kind, tuple(range(1, len(TASKS) + 1)), tuple(found[kind, task] for task in TASKS))
                    for kind in KINDS
                ),
            ),
        ),
        checks=checks(found),
    )


def accuracy(kind: AttentionName, task: str, setting: EfficientSetting, seed: int, report: Report) -> float:
    """Train one model; return the share of correct positions in new sequences."""
    model = Tagger(kind, setting)
    initialize(model, seed)

    def loss(generator: torch.Generator) -> Tensor:
        token_BN, label_BN = sample_batch(task, setting, setting.batch, generator)
        return F.cross_entropy(model(token_BN).flatten(0, 1), label_BN.flatten(), ignore_index=IGNORED)

    def schedule(update: int) -> float:
        return setting.rate * min(update / 50, 1 - (update - 1) / setting.updates)

    fit(model, loss, setting.updates, seed, report, f"{kind}, {task}: updates", schedule, max_grad_norm=1.0)
    token_BN, label_BN = sample_batch(task, setting, setting.tested, torch_generator(seed + 1000))
    with torch.no_grad():
        right_BN = cast(Tensor, model(token_BN)).argmax(dim=-1) == label_BN
    return float(right_BN[label_BN != IGNORED].double().mean())


def checks(found: Mapping[tuple[AttentionName, str], float]) -> tuple[ClaimCheck, ...]:
    """Check the claim: first that full attention learns, then what each task costs the others."""
    full = {task: found["full", task] for task in TASKS}
    others = [kind for kind in KINDS if kind != "full"]

    def listed(task: str) -> str:
        return ", ".join(f"{kind} {found[kind, task]:.0%}" for kind in others)

    return (
        ClaimCheck(
            f"full attention learns all three tasks ({', '.join(f'{value:.0%}' for value in full.values())})",
            min(full.values()) >= LEARNED,
        ),
        *(
            ClaimCheck(
                f"{said}: none loses more than {MUCH:.0%} of the accuracy of full attention ({listed(task)})",
                all(found[kind, task] >= full[task] - MUCH for kind in others),
            )
            for task, said in (
                ("near", "naming the neighbour"),
                ("far", "naming a symbol far away"),
                ("lookup", "looking up a key"),
            )
        ),
        ClaimCheck(
            "at least one of them loses nothing on any task",
            any(all(found[kind, task] >= full[task] - MUCH for task in TASKS) for kind in others),
        ),
    )

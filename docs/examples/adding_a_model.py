"""A model of one's own: a bag of words that can sort but not reverse. The companion of docs/how-to/add-a-model.md.

    python docs/examples/adding_a_model.py [FOLDER]

It sums the vectors of all source tokens and of the target tokens so far, and uses nothing else. The order of
the source is lost, so it can learn to sort and cannot learn to reverse. Training, search and scoring are the
project's own.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import transduce
from transduce.config import Config
from transduce.models.catalog import MODELS, Entry
from transduce.models.interface import Memory, State, Transducer, VocabularySizes
from transduce.nn.embedding import Embedding, Output
from transduce.nn.sublayer import FEED_FORWARD
from transduce.recipe import Recipe


class BagConfig(Config):
    """Sizes of one bag of words."""

    model_dim: int = 64
    """Width of a token's vector, and of the sums."""
    ffn_dim: int = 256
    """Inner width of the feed-forward network."""


@dataclass
class BagState(State):
    """The sum of what each row has written so far, and the sum of its source."""

    written: Tensor
    """(R D), the sum over the target tokens of each row."""
    read: Tensor
    """(B D), the sum over the source tokens of each sentence."""
    width: int

    @property
    def num_rows(self) -> int:
        return len(self.written)

    def select(self, rows: Tensor) -> BagState:
        sentences = rows[:: self.width] // self.width
        return BagState(self.written[rows], self.read[sentences], self.width)

    def join(self, other: BagState) -> BagState:
        written, read = torch.cat([self.written, other.written]), torch.cat([self.read, other.read])
        return BagState(written, read, self.width)


class Bag(Transducer[Memory, BagState]):
    """Source → target by sums alone."""

    def __init__(self, config: BagConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        dim = config.model_dim
        self.config, self.sizes = config, sizes
        self.source_embedding = Embedding(sizes.source, dim, scaled=False)
        self.target_embedding = Embedding(sizes.target, dim, scaled=False)
        self.mix = FEED_FORWARD["relu"](3 * dim, config.ffn_dim)
        self.norm = nn.LayerNorm(3 * dim)
        self.output = Output(sizes.target, 3 * dim)

    def encode(self, source: Tensor, allowed: Tensor) -> Memory:
        return Memory(self.source_embedding(source), allowed)

    def forward(self, target: Tensor, memory: Memory) -> Tensor:
        embedded_BTD = self.target_embedding(target)
        read_BTD = _sum_of(memory)[:, None].expand_as(embedded_BTD)
        return self._mixed(embedded_BTD, embedded_BTD.cumsum(dim=1), read_BTD)

    def start(self, memory: Memory, width: int = 1) -> BagState:
        read_BD = _sum_of(memory)
        return BagState(read_BD.new_zeros(len(read_BD) * width, read_BD.shape[1]), read_BD, width)

    def extend(self, tokens: Tensor, lengths: Tensor, state: BagState) -> tuple[Tensor, BagState]:
        embedded_RTD = self.target_embedding(tokens)
        is_real_RT1 = (torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None])[:, :, None]
        written_RTD = state.written[:, None] + (embedded_RTD * is_real_RT1).cumsum(dim=1)
        read_RTD = state.read.repeat_interleave(state.width, dim=0)[:, None].expand_as(embedded_RTD)
        hidden_RTD = self._mixed(embedded_RTD, written_RTD, read_RTD)
        return hidden_RTD, BagState(written_RTD[:, -1], state.read, state.width)

    def step(self, tokens: Tensor, state: BagState) -> tuple[Tensor, BagState]:
        hidden_R1D, state = self.extend(tokens[:, None], torch.ones_like(tokens), state)
        return hidden_R1D[:, 0], state

    def _mixed(self, token: Tensor, written: Tensor, read: Tensor) -> Tensor:
        """(… D) three times -> (… 3D)."""
        together = torch.cat([token, written, read], dim=-1)
        mixed: Tensor = self.norm(together + self.mix(together))
        return mixed


def _sum_of(memory: Memory) -> Tensor:
    """Sum the source positions that are not padding.  (B M D) -> (B D)."""
    return (memory.states * memory.allowed[:, :, None]).sum(dim=1)


ENTRY = Entry(Bag, BagConfig, {"bag": BagConfig})
"""Within the project this is the one line in `models/catalog.py`: "bag": Entry(bag.Bag, bag.BagConfig, {…})."""


def recipe(task: str) -> Recipe:
    """Return what to run: a synthetic task, words as tokens, a few updates."""
    tables = {
        "data": {
            "train": {"task": task, "size": 3000, "seed": 1, "max_length": 4, "symbols": 6},
            "validation": {"task": task, "size": 100, "seed": 2, "max_length": 4, "symbols": 6},
        },
        "tokenizer": {"kind": "word"},
        "model": {"name": "bag"},
        "training": {
            "batch_tokens": 512,
            "updates": 150,
            "schedule": "linear",
            "learning_rate": 0.01,
            "warmup": 20,
            "validate_every": 150,
            "metric": "exact_match",
            "threads": 1,
        },
    }
    return Recipe.from_tables(tables, f"the recipe for {task}")


def main(folder: Path) -> None:
    """Train the model on a task that it can learn and on one that it cannot."""
    MODELS["bag"] = ENTRY
    for task, text in (("sort", "d a c b"), ("reverse", "d a c b")):
        run = transduce.train(recipe(task), folder / task)
        print(f"{task:<8} {text}  →  {transduce.load(run)(text)}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))

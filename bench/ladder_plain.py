"""The ladder's Transformer made of torch's own modules, on the files that `make reproduce-ladder` reads.

The published results of the ladder use another tokenizer. This measures its settings on our files without any of this
project's code: `torch.nn.TransformerEncoder` and `TransformerDecoder`, batches of 128 sentences from pools of a hundred
batches, Glorot initialisation of all matrices, Adam. The last line is one JSON object.

Three epochs take a quarter of an hour on one core.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from ladder import BATCH, PUBLISHED, ROOT, interleaved
from measuring import require_files
from torch import Tensor, nn

PAD, START, END, UNKNOWN = range(4)
WIDTH, HEADS, INNER, LAYERS, PLACES, DROPOUT = 256, 8, 512, 3, 100, 0.1

Pair = tuple[list[int], list[int]]


class Plain(nn.Module):
    """Embeddings, torch's two stacks without final norms, and an output layer."""

    def __init__(self, sizes: tuple[int, int]) -> None:
        super().__init__()
        self.words = nn.ModuleList(nn.Embedding(size, WIDTH) for size in sizes)
        self.places = nn.ModuleList(nn.Embedding(PLACES, WIDTH) for _ in sizes)
        shape: dict[str, Any] = {
            "d_model": WIDTH,
            "nhead": HEADS,
            "dim_feedforward": INNER,
            "dropout": DROPOUT,
            "batch_first": True,
        }
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**shape), LAYERS, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**shape), LAYERS)
        self.output, self.dropout = nn.Linear(WIDTH, sizes[1]), nn.Dropout(DROPOUT)
        for weight in self.parameters():
            for matrix in torch.split(weight.data, WIDTH) if weight.shape == (3 * WIDTH, WIDTH) else [weight.data]:
                if matrix.dim() > 1:
                    nn.init.xavier_uniform_(matrix)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """(B S), (B T) -> (B T V)."""
        triangle_TT = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        read_BSD = self.encoder(self._embedded(source, 0), src_key_padding_mask=source == PAD)
        written_BTD = self.decoder(
            self._embedded(target, 1), read_BSD, tgt_mask=triangle_TT, memory_key_padding_mask=source == PAD
        )
        scores: Tensor = self.output(written_BTD)
        return scores

    def _embedded(self, tokens: Tensor, side: int) -> Tensor:
        place_ND = self.places[side].get_parameter("weight")[: tokens.shape[1]]
        embedded: Tensor = self.dropout(self.words[side](tokens) * math.sqrt(WIDTH) + place_ND)
        return embedded


def read(folder: Path, name: str) -> list[list[list[str]]]:
    """The words of both sides of a split."""
    texts = [gzip.decompress((folder / f"{name}.lc.norm.tok.{side}.gz").read_bytes()).decode() for side in ("de", "en")]
    return [[line.split() for line in text.removesuffix("\n").split("\n")] for text in texts]


def numbered(sides: list[list[list[str]]], known: list[dict[str, int]]) -> list[Pair]:
    """Tokens of pairs with start and end."""
    found = (
        [[START, *(words.get(word, UNKNOWN) for word in line), END] for line in lines]
        for lines, words in zip(sides, known, strict=True)
    )
    return list(zip(*found, strict=True))


def batches(pairs: list[Pair], chance: random.Random | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of pairs of similar length: sorted by length, or from shuffled pools."""
    pairs, pool = list(pairs), len(pairs)
    if chance is not None:
        chance.shuffle(pairs)
        pool = 100 * BATCH
    for start in range(0, len(pairs), pool):
        rows = sorted(pairs[start : start + pool], key=lambda pair: interleaved(len(pair[0]) - 2, len(pair[1]) - 2))
        cut = [rows[place : place + BATCH] for place in range(0, len(rows), BATCH)]
        if chance is not None:
            chance.shuffle(cut)
        for batch in cut:
            source, target = (
                nn.utils.rnn.pad_sequence([torch.tensor(pair[side]) for pair in batch], batch_first=True)
                for side in (0, 1)
            )
            yield source, target


def loss_of(model: Plain, source: Tensor, target: Tensor) -> Tensor:
    """Mean loss over the tokens of a batch."""
    score_BTV = model(source, target[:, :-1])
    return F.cross_entropy(score_BTV.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "multi30k", help="the .gz files")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    splits = ("train", "val")
    require_files(options.data, *(f"{name}.lc.norm.tok.{side}.gz" for name in splits for side in ("de", "en")))
    train, validation = (read(options.data, name) for name in splits)
    known = []
    for lines in train:
        counts = Counter(word for line in lines for word in line)
        often = [word for word, count in counts.items() if count > 1]
        known.append({word: number for number, word in enumerate(often, start=UNKNOWN + 1)})
    torch.manual_seed(options.seed)
    chance, model = random.Random(options.seed), Plain((len(known[0]) + 4, len(known[1]) + 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    perplexities = []
    for epoch in range(1, options.epochs + 1):
        model.train()
        for source, target in batches(numbered(train, known), chance):
            optimizer.zero_grad()
            loss_of(model, source, target).backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        model.eval()
        with torch.no_grad():
            losses = [float(loss_of(model, *batch)) for batch in batches(numbered(validation, known), None)]
        perplexities.append(round(math.exp(sum(losses) / len(losses)), 2))
        print(f"epoch {epoch}: {perplexities[-1]} (published {PUBLISHED['transformer'][epoch - 1]})", flush=True)
    print(json.dumps({"by_batches": {"plain": perplexities}, "parameters": sum(p.numel() for p in model.parameters())}))


if __name__ == "__main__":
    main()

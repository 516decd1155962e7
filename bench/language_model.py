"""Training speed of a small language model, compared with a plain nanoGPT-style loop: `make bench-language-model`.

Tiny Shakespeare by characters, with the settings of recipes/shakespeare.toml: 4 layers of width 128, blocks of 64
tokens, 12 blocks per batch, 2,000 updates, no dropout. The peer is a plain GPT in torch with nanoGPT's loop:
blocks from random positions, AdamW, cosine decay to a tenth, gradient clipping. Both have the same
tokens and the same number of parameters. Each runs in a process of its own and waits for its turn; rounds alternate.
Afterwards both are evaluated on the whole last tenth of the text. The ratio to the baseline is the median of the
speed over the rounds. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from measuring import require_files
from torch import Tensor, nn

from transduce.data.batching import collate, validation_batches
from transduce.data.order import START
from transduce.data.prepared import Prepared
from transduce.data.store import STREAM, BlockStore
from transduce.recipe import Recipe, read_recipe
from transduce.tasks.catalog import load_prepared, prepare, task_for

HERE = Path(__file__).parents[1]
RECIPE = HERE / "recipes" / "shakespeare.toml"
TEXT = HERE.parent / "shared" / "data" / "tinyshakespeare" / "input.txt.gz"
DIM, HEADS, LAYERS, BLOCK, ROWS = 128, 4, 4, 64, 12
RATE, WARMUP, UPDATES = 1e-3, 100, 2000

Contender = tuple[Callable[[int], None], Callable[[], float], int]
"""Functions for a number of updates and for the validation loss, and the number of parameters."""


def ours(recipe: Recipe, prepared: Prepared) -> Contender:
    """The same updates as `transduce train`."""

    from transduce.models.catalog import build
    from transduce.models.interface import VocabularySizes
    from transduce.training.memory import keep_freed_memory
    from transduce.training.optimizer import build_schedule
    from transduce.training.step import TrainStep

    keep_freed_memory()
    config = recipe.training.but(threads=torch.get_num_threads(), decode_examples=0)
    torch.set_num_threads(1)
    size = prepared.target_tokenizer.size
    model = build(recipe.model, VocabularySizes(size, size), config.seed)
    task = task_for(prepared.data)
    train_step = TrainStep(model, task.loss, config)
    batches = task.batch_source(prepared, config, model).starting(START)
    schedule = build_schedule(config, DIM)
    done = 0

    def learn(updates: int) -> None:
        nonlocal done
        for _ in range(updates):
            _, batch = next(batches)
            done += 1
            train_step.run([batch], done, schedule(done), config.micro_batch_size)

    def judge() -> float:
        assert isinstance(prepared.validation, BlockStore)
        return task.validator(prepared, prepared.validation, config, train_step.workers).validate(done).loss

    return learn, judge, sum(parameter.numel() for parameter in model.parameters())


class PlainBlock(nn.Module):
    """Causal self-attention and a feed-forward network, pre-norm with residual connections."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(DIM), nn.LayerNorm(DIM)])
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM, bias=False), nn.Linear(DIM, DIM, bias=False)
        self.up, self.down = nn.Linear(DIM, 4 * DIM, bias=False), nn.Linear(4 * DIM, DIM, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        heads = self.qkv(self.norms[0](x)).view(rows, length, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, DIM))
        mixed: Tensor = x + self.down(F.gelu(self.up(self.norms[1](x))))
        return mixed


class PlainGpt(nn.Module):
    """A minimal GPT of the same sizes."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, DIM), nn.Embedding(BLOCK, DIM)
        self.blocks = nn.Sequential(*(PlainBlock() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(DIM)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                last = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * LAYERS) if last else 0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


def plain(_: Recipe, prepared: Prepared) -> Contender:
    """A plain training loop."""
    torch.manual_seed(1)
    width = prepared.target_tokenizer.size
    stream = torch.from_numpy(np.fromfile(prepared.folder / "train" / STREAM, dtype="<u2").astype(np.int64))
    model = PlainGpt(width)
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.99), fused=True)
    done = 0

    def rate(update: int) -> float:
        if update <= WARMUP:
            return RATE * update / WARMUP
        return RATE * (0.1 + 0.45 * (1 + math.cos(math.pi * (update - WARMUP) / (UPDATES - WARMUP))))

    def learn(updates: int) -> None:
        nonlocal done
        for _ in range(updates):
            done += 1
            begins = torch.randint(len(stream) - BLOCK, (ROWS,))
            rows = torch.stack([stream[begin : begin + BLOCK + 1] for begin in begins.tolist()])
            loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for group in optimizer.param_groups:
                group["lr"] = rate(done)
            optimizer.step()

    def judge() -> float:
        assert isinstance(prepared.validation, BlockStore)
        specials = prepared.target_tokenizer.specials
        total, count = 0.0, 0
        for rows in validation_batches(prepared.validation, 4096):
            target = collate(prepared.validation, rows, specials, specials).target
            with torch.inference_mode():
                scores = model(target[:, :-1]).flatten(0, 1)
                total += float(
                    F.cross_entropy(scores, target[:, 1:].flatten(), ignore_index=specials.pad, reduction="sum")
                )
            count += int((target[:, 1:] != specials.pad).sum())
        return total / count

    return learn, judge, sum(parameter.numel() for parameter in model.parameters())


CONTENDERS = {"transduce": ours, "plain_torch": plain}


def contend(name: str, recipe: Recipe, folder: Path) -> None:
    """Run as one contender: make as many updates as each line of standard input says, then print the loss."""
    learn, judge, parameters = CONTENDERS[name](recipe, load_prepared(folder, block_size=BLOCK))
    print(json.dumps({"parameters": parameters}), flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        learn(int(line))
        print(json.dumps({"speed": int(line) * ROWS * BLOCK / (time.perf_counter() - began)}), flush=True)
    print(json.dumps({"loss": judge()}), flush=True)


def compete(text: Path, updates: int, rounds: int, threads: int, folder: Path) -> None:
    """Run the contenders in turn and print the results."""
    recipe = _recipe(text)
    prepare(recipe.data, recipe.tokenizer, folder / "data")
    command = [
        sys.executable,
        __file__,
        "--text",
        str(text),
        "--threads",
        str(threads),
        "--folder",
        str(folder / "data"),
    ]
    processes = {
        name: subprocess.Popen(
            [*command, "--contender", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        for name in CONTENDERS
    }
    found: dict[str, dict[str, list[float]]] = {name: {} for name in CONTENDERS}

    def hear(name: str) -> None:
        out = processes[name].stdout
        assert out is not None
        for key, value in json.loads(out.readline()).items():
            found[name].setdefault(key, []).append(value)

    for name in CONTENDERS:
        hear(name)
    for number in range(rounds):
        for name, process in processes.items():
            assert process.stdin is not None
            process.stdin.write(f"{updates * (number + 1) // rounds - updates * number // rounds}\n")
            process.stdin.flush()
            hear(name)
        speeds = ", ".join(f"{name} {found[name]['speed'][-1]:,.0f} tokens/s" for name in CONTENDERS)
        print(f"round {number + 1} of {rounds}: {speeds}", flush=True)
    for name, process in processes.items():
        assert process.stdin is not None
        process.stdin.close()
        hear(name)
        process.wait()
    for name, facts in found.items():
        speed, loss = statistics.median(facts["speed"]), facts["loss"][0]
        print(f"{name:12} {facts['parameters'][0]:,} parameters, {speed:8,.0f} tokens/s, validation loss {loss:.4f}")
    ratios = [
        mine / theirs for mine, theirs in zip(found["transduce"]["speed"], found["plain_torch"]["speed"], strict=True)
    ]
    print(f"speed × {statistics.median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f}) over {rounds} rounds")
    losses = {name: round(facts["loss"][0], 4) for name, facts in found.items()}
    print(
        json.dumps({"speed_ratio": round(statistics.median(ratios), 3), "updates": updates, "validation_loss": losses})
    )


def _recipe(text: Path) -> Recipe:
    return read_recipe(RECIPE, [f"data.train.text={text}"])[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, default=TEXT)
    parser.add_argument("--updates", type=int, default=UPDATES)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--contender", choices=CONTENDERS)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    require_files(options.text.parent, options.text.name)
    torch.set_num_threads(options.threads)
    if options.contender:
        contend(options.contender, _recipe(options.text), options.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        compete(options.text, options.updates, options.rounds, options.threads, Path(folder))


if __name__ == "__main__":
    main()

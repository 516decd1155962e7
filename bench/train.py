"""Training speed and memory, side by side with peers: `make bench-train`.

Each contender runs in a process of its own and waits for its turn; rounds alternate, so that slow phases of the
machine affect everyone. All train the same model on the same batches with dropout and label smoothing, and count the
same tokens: real target tokens. Float32 is compared with float32, and on a processor with instructions for bfloat16
the precision that `transduce train` chooses there with the baseline's faster one, float32 or bfloat16 by autocast.
Ratios to a baseline have their spread over the rounds. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
import torch.nn.functional as F
from marian import marian

from transduce.data.batching import PairBatch, collate
from transduce.data.order import BatchSampler
from transduce.data.store import PairStore
from transduce.recipe import choose_precision
from transduce.text.tokenizer.special import Specials

PAD, _, _ = SPECIALS = Specials(0, 1, 2)
VOCABULARY = 10_000
PEERS = ("torch_nn", "hf_marian")
FLOAT32, BFLOAT16 = "float32", "bfloat16"
WARM_UP = 3
"""Warm-up updates: ours allocates memory in the first two only."""


@dataclass(frozen=True)
class Size:
    """One model, and the number of updates per round."""

    dim: int
    ffn: int
    heads: int
    layers: int
    dropout: float
    updates: int


SIZES = {"tiny": Size(128, 256, 4, 4, 0.3, 6), "base": Size(512, 2048, 8, 6, 0.1, 1)}


def make_batches(tokens: int, number: int) -> list[PairBatch]:
    """Return batches of a corpus like Multi30k's: 29,000 pairs of about 14 tokens a side."""
    generator = np.random.default_rng(7)
    lengths = np.clip(np.exp(generator.normal(2.6, 0.33, 29_000)).astype(int), 4, 48)
    others = np.clip(lengths + generator.integers(-3, 4, len(lengths)), 3, 50)
    sources = [generator.integers(3, VOCABULARY, n).tolist() for n in lengths]
    targets = [generator.integers(3, VOCABULARY, n).tolist() for n in others]
    store = PairStore.of(sources, targets)
    rows = BatchSampler.of(store, tokens, seed=1).epoch(0)
    return [collate(store, next(rows), SPECIALS, SPECIALS) for _ in range(number)]


def ours(size: Size, half: bool) -> Callable[[PairBatch], None]:
    """One update of `transduce train`."""
    from transduce.models.catalog import build
    from transduce.models.interface import VocabularySizes
    from transduce.models.transformer import TransformerConfig
    from transduce.tasks.transducer import transducer_loss
    from transduce.training.config import TrainingConfig, default_micro_batch
    from transduce.training.memory import keep_freed_memory
    from transduce.training.step import TrainStep

    keep_freed_memory()
    config = TransformerConfig(
        model_dim=size.dim,
        ffn_dim=size.ffn,
        num_heads=size.heads,
        num_layers=size.layers,
        dropout=size.dropout,
        attention_bias=True,
    )
    slices = default_micro_batch(size.dim, half)
    training = TrainingConfig(
        threads=torch.get_num_threads(),
        precision="bfloat16" if half else "float32",
        micro_batch_tokens=slices,
        learning_rate=1e-4,
    )
    torch.set_num_threads(1)
    model = build(config, VocabularySizes(VOCABULARY, VOCABULARY), seed=1)
    train_step = TrainStep(model, transducer_loss, training)
    updates = count(1)

    def update(batch: PairBatch) -> None:
        train_step.run([batch], next(updates), rate=1e-4, micro_batch_tokens=slices)

    return update


def torch_nn(size: Size, half: bool) -> Callable[[PairBatch], None]:
    """torch.nn.Transformer in the loop of PyTorch's translation tutorial, with the embeddings tied as ours are."""
    from transduce.nn.position import sinusoids

    core = torch.nn.Transformer(
        size.dim, size.heads, size.layers, size.layers, size.ffn, size.dropout, batch_first=True
    )
    embedding = torch.nn.Embedding(VOCABULARY, size.dim)
    generator = torch.nn.Linear(size.dim, VOCABULARY, bias=False)
    generator.weight = embedding.weight
    dropout = torch.nn.Dropout(size.dropout)
    positions = sinusoids(64, size.dim).float()
    model = torch.nn.ModuleList([core, embedding, generator]).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    criterion = torch.nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)

    def embed(tokens: torch.Tensor) -> torch.Tensor:
        embedded: torch.Tensor = dropout(embedding(tokens) * size.dim**0.5 + positions[: tokens.shape[1]])
        return embedded

    def update(batch: PairBatch) -> None:
        entered, expected = batch.target[:, :-1], batch.target[:, 1:]
        causal = torch.nn.Transformer.generate_square_subsequent_mask(entered.shape[1])
        padding = ~batch.source_allowed
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            hidden = core(
                embed(batch.source),
                embed(entered),
                tgt_mask=causal,
                src_key_padding_mask=padding,
                memory_key_padding_mask=padding,
            )
            logits = generator(hidden)
            loss = criterion(logits.reshape(-1, VOCABULARY), expected.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return update


def hf_marian(size: Size, half: bool) -> Callable[[PairBatch], None]:
    """Hugging Face's MarianMT in a plain loop."""
    sizes = (size.dim, size.ffn, size.heads, size.layers)
    model = marian(*sizes, VOCABULARY, SPECIALS, dropout=size.dropout).train()
    # Their trainer chooses the fused kernel by default; the tutorial's loop above does not.
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def update(batch: PairBatch) -> None:
        entered, expected = batch.target[:, :-1], batch.target[:, 1:]
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            logits = model(
                input_ids=batch.source, attention_mask=batch.source_allowed.long(), decoder_input_ids=entered
            ).logits
            loss = F.cross_entropy(
                logits.reshape(-1, VOCABULARY), expected.reshape(-1), ignore_index=PAD, label_smoothing=0.1
            )
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return update


CONTENDERS = {"transduce": ours, "torch_nn": torch_nn, "hf_marian": hf_marian}


def contend(name: str, precision: str, size: Size, tokens: int) -> None:
    """Run as one contender: a round of updates for each line on standard input, and a line of JSON for each round."""
    batches = make_batches(tokens, 4 * size.updates)
    update = CONTENDERS[name](size, precision == BFLOAT16)
    for batch in batches[:WARM_UP]:
        update(batch)
    print("ready", flush=True)
    for turn, _ in enumerate(sys.stdin):
        chosen = [batches[(turn * size.updates + place) % len(batches)] for place in range(size.updates)]
        began = time.perf_counter()
        for batch in chosen:
            update(batch)
        seconds = time.perf_counter() - began
        speed = sum(batch.num_target_tokens for batch in chosen) / seconds
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"speed": speed, "peak": peak}), flush=True)


def flops_per_token(size: Size) -> float:
    """Useful work per target token: two products per weight and token forwards, twice that backwards."""
    encoder = size.layers * (4 * size.dim**2 + 2 * size.dim * size.ffn)
    decoder = size.layers * (8 * size.dim**2 + 2 * size.dim * size.ffn)
    return 6.0 * (encoder + decoder + size.dim * VOCABULARY)


def matmul_peak() -> float:
    """FLOP/s of a large float32 product on all threads."""
    a = torch.randn(2048, 2048)
    best = float("inf")
    for _ in range(6):
        began = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - began)
    return 2 * 2048**3 / best


Rounds = dict[tuple[str, str], list[dict[str, float]]]
"""By contender and precision: its speed and peak memory in each round."""


def run_rounds(command: list[str], contenders: list[tuple[str, str]], rounds: int) -> Rounds:
    """Run contenders in turn."""
    processes = {
        one: subprocess.Popen(
            [*command, "--contender", one[0], "--precision", one[1]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for one in contenders
    }
    for process in processes.values():
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
    found: Rounds = {one: [] for one in contenders}
    for _ in range(rounds):
        for one, process in processes.items():
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            found[one].append(json.loads(process.stdout.readline()))
    for process in processes.values():
        process.communicate()
    return found


def median(found: Rounds, one: tuple[str, str]) -> float:
    return float(np.median([result["speed"] for result in found[one]]))


def ratio(found: Rounds, ours: tuple[str, str], theirs: tuple[str, str]) -> tuple[float, str]:
    """The median over the rounds of our speed to theirs, and the same in words with its spread."""
    ratios = [mine["speed"] / other["speed"] for mine, other in zip(found[ours], found[theirs], strict=True)]
    value = round(float(np.median(ratios)), 3)
    return value, f"speed × {value} ({min(ratios):.2f} to {max(ratios):.2f})"


def measure(
    name: str, size: Size, tokens: int, rounds: int, threads: int
) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """Measure beside each baseline in turn, as not all fit into memory together; return three kinds of ratios.

    They are of speed and of peak memory in float32, and of speed in the default precision to the baseline's better one.
    """
    command = [sys.executable, __file__, "--size", name, "--tokens", str(tokens), "--threads", str(threads)]
    precisions = [FLOAT32, *([BFLOAT16] if choose_precision("cpu", size.dim)[0] == BFLOAT16 else [])]
    peak = matmul_peak()
    speeds, memories, defaults = {}, {}, {}
    for peer in PEERS:
        found = run_rounds(command, [(one, how) for how in precisions for one in ("transduce", peer)], rounds)
        for (contender, how), results in found.items():
            speed, memory = median(found, (contender, how)), results[-1]["peak"] / 2**30
            share = f"{100 * speed * flops_per_token(size) / peak:3.0f} % of float32's matmul peak"
            print(f"{name:5} {contender:10} {how:8} {speed:8,.0f} tokens/s, {share}, {memory:5.2f} GiB")
        ours, theirs = ("transduce", FLOAT32), (peer, FLOAT32)
        speeds[peer], shown = ratio(found, ours, theirs)
        memories[peer] = round(found[ours][-1]["peak"] / found[theirs][-1]["peak"], 3)
        print(f"{name:5} over {peer}, float32: {shown}, memory × {memories[peer]}")
        best = max(((peer, how) for how in precisions), key=lambda one: median(found, one))
        defaults[peer], shown = ratio(found, ("transduce", precisions[-1]), best)
        print(f"{name:5} over {peer}, {precisions[-1]} over its {best[1]}: {shown}", flush=True)
    return speeds, memories, defaults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES)
    parser.add_argument("--contender", choices=CONTENDERS)
    parser.add_argument("--precision", choices=(FLOAT32, BFLOAT16), default=FLOAT32)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.contender:
        contend(options.contender, options.precision, SIZES[options.size], options.tokens)
        return
    result: dict[str, dict[str, dict[str, float]]] = {"speed": {}, "memory": {}, "default_precision": {}}
    for name in [options.size] if options.size else SIZES:
        ratios = measure(name, SIZES[name], options.tokens, options.rounds, options.threads)
        for kind, found in zip(result, ratios, strict=True):
            result[kind][name] = found
    print(json.dumps(result))


if __name__ == "__main__":
    main()

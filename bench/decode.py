"""Decoding speed, side by side with peers: `make bench-decode`.

Three comparisons. *torch*: our search against `generate` of Hugging Face's Marian, on the same weights (ours,
exported), the same sources, 20 tokens each, greedy and with a beam of 5, one sentence at a time and 64 together, in
float32; both are run with one thread and with all, and the faster counts. *family*: the same with T5, GPT-2 and
Llama, each against its own `generate`. *bulk*: `transduce translate FILE --output FILE` with CTranslate2 in eight bits,
with and without a shortlist, against CTranslate2 called by hand with its best workers, threads and batch size; see
decode_bulk.py. Rounds alternate, so that slow phases of the machine affect everyone; ratios to the baseline are
given with their spread. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from decode_bulk import bulk_rounds, stand_in
from decode_contenders import SPECIALS, VOCABULARY, Answers, Contender, our_model, our_search, peer_of, their_search

from transduce.config import Config
from transduce.inference.search.options import Request, SearchOptions
from transduce.inference.search.search import Search
from transduce.models.gpt import GptConfig
from transduce.models.interface import LanguageModel
from transduce.models.t5 import T5Config
from transduce.models.transformer import TransformerConfig

TINY = TransformerConfig(model_dim=128, ffn_dim=256, num_heads=4, num_layers=4, attention_bias=True)
SIZES: dict[str, Config] = {"tiny": TINY, "base": TransformerConfig(attention_bias=True)}
FAMILY: dict[str, Config] = {
    "t5": T5Config(),
    "gpt2": GptConfig(model_dim=512, ffn_dim=2048, num_heads=8, num_layers=6, max_positions=128),
    "llama": GptConfig(
        model_dim=512,
        ffn_dim=1376,
        num_heads=8,
        key_value_heads=2,
        num_layers=6,
        positions="rotary",
        norm_kind="rms",
        activation="swiglu",
        attention_bias=False,
        max_positions=128,
    ),
}
"""Other architectures: an encoder-decoder and two language models, which continue a prompt as long as a source."""
CASES = {"b1_bs1": (1, 1), "b5_bs1": (5, 1), "b1_bs64": (1, 64), "b5_bs64": (5, 64)}
"""(beam size, batch size)."""


def sources(number: int) -> list[list[int]]:
    """Sources as long as Multi30k's."""
    generator = np.random.default_rng(7)
    lengths = np.clip(np.exp(generator.normal(2.6, 0.33, number)).astype(int), 4, 48)
    return [generator.integers(3, VOCABULARY, length).tolist() for length in lengths]


def in_threads(search: Contender, threads: int, read: Sequence[list[int]], beam: int) -> tuple[Answers, float]:
    """Run a search; return sentences per second."""
    torch.set_num_threads(threads)
    began = time.perf_counter()
    answers = search(read, beam)
    return answers, len(read) / (time.perf_counter() - began)


def torch_case(ours: Contender, theirs: Contender, beam: int, size: int, rounds: int, threads: int) -> list[float]:
    """Ratios of all rounds, each contender with its best number of threads in that round."""
    ratios = []
    for number in range(-1, rounds):  # one round to warm up
        read = sources(size * (rounds + 1))[(number + 1) * size :][:size]
        speeds = []
        for search in (ours, theirs):
            tried = [in_threads(search, count, read, beam) for count in sorted({1, threads})]
            speeds.append(max(speed for _, speed in tried))
        if number >= 0:
            ratios.append(speeds[0] / speeds[1])
            print(f"    ours {speeds[0]:8.1f} sentences/s, theirs {speeds[1]:8.1f}: {ratios[-1]:.2f} ×", flush=True)
    return ratios


def agreement(ours: Contender, theirs: Contender) -> float:
    """Share of equal greedy translations: nearly all, since the weights are the same."""
    read = sources(16)
    return statistics.mean(one == other for one, other in zip(ours(read, 1), theirs(read, 1), strict=True))


def torch_rounds(configs: dict[str, Config], rounds: int) -> dict[str, dict[str, float]]:
    threads = torch.get_num_threads()
    found: dict[str, dict[str, float]] = {}
    for name, config in configs.items():
        model = our_model(config)
        ours = our_search(model)
        theirs = their_search(peer_of(model, config), isinstance(model, LanguageModel))
        print(f"{name}: {agreement(ours, theirs):.0%} of the greedy translations are the same")
        found[name] = {}
        for case, (beam, size) in CASES.items():
            print(f"  {name}, beam {beam}, {size} at a time")
            count = rounds if size > 1 else 3 * rounds
            ratios = torch_case(ours, theirs, beam, size, count, threads)
            found[name][case] = round(statistics.median(ratios), 2)
            print(f"  median {found[name][case]:.2f} × ({min(ratios):.2f}–{max(ratios):.2f})", flush=True)
    return found


def long_answers(lengths: Sequence[int] = (50, 100, 200, 400, 800)) -> dict[str, float]:
    """Milliseconds per token at the end of translations of different lengths, beam 5: should hardly grow."""
    model = our_model(TINY)
    options = SearchOptions(beam_size=5, max_length=max(lengths), stop_rule="beam_finished")
    search = Search(model, SPECIALS, SPECIALS)
    search.admit([Request(0, sources(1)[0], options)])
    times: list[float] = []
    while search.active:
        began = time.perf_counter()
        search.advance()
        times.append(time.perf_counter() - began)
    found = {str(length): round(1000 * statistics.median(times[max(0, length - 25) : length]), 3) for length in lengths}
    print(f"milliseconds per token by length: {found}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", type=Path, help="a trained run for the bulk part; random weights by default")
    parser.add_argument("--source", type=Path, help="the file to translate")
    parser.add_argument("--shortlist", type=Path, help="shortlist of that run")
    parser.add_argument("--reference", type=Path, help="translations of its first lines, tokenised, for BLEU")
    asked = parser.parse_args()
    found: dict[str, Any] = {
        "torch": torch_rounds(SIZES, asked.rounds),
        "family": torch_rounds(FAMILY, asked.rounds),
        "milliseconds": long_answers(),
    }
    print("bulk")
    with tempfile.TemporaryDirectory(prefix="transduce-stand-in-") as place:
        given = {"folder": asked.model, "source": asked.source, "shortlist": asked.shortlist}
        bulk = given if asked.model is not None else stand_in(Path(place), TINY)
        found["bulk"] = bulk_rounds(**bulk, rounds=asked.rounds, reference=asked.reference)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

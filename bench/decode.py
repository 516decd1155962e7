"""Decoding speed, side by side with peers: `make bench-decode`.

Three comparisons. *torch*: our search in float32 and in int8 against `generate` of Hugging Face's Marian, on the same
weights (ours, exported), and against CTranslate2 in the same precision; the same sources, greedy and with a beam of 5,
one sentence at a time and 64 together. Random weights, changed so that translations end (decode_contenders.py). All are
run with one thread and with all, and the faster counts. *family*: T5, GPT-2 and Llama in float32, 20 tokens each,
against their own `generate`. *bulk*: `transduce translate FILE --output FILE` with CTranslate2 in eight bits,
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
from decode_contenders import (
    LONGEST,
    SPECIALS,
    VOCABULARY,
    Contender,
    ctranslate2_search,
    ends,
    limit,
    our_model,
    our_search,
    peer_of,
    their_search,
)

from transduce.config import Config
from transduce.inference.ctranslate2.export import Quantization
from transduce.inference.search.options import Request, SearchOptions
from transduce.inference.search.search import Search
from transduce.models.gpt import GptConfig
from transduce.models.interface import LanguageModel
from transduce.models.t5 import T5Config
from transduce.models.transformer import Transformer, TransformerConfig

TINY = TransformerConfig(
    model_dim=128, ffn_dim=256, num_heads=4, num_layers=4, attention_bias=True, tied_embeddings="target"
)
SIZES: dict[str, Config] = {"tiny": TINY, "base": TransformerConfig(attention_bias=True, tied_embeddings="target")}
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
QUANTIZATIONS: tuple[Quantization, ...] = ("float32", "int8")
PAIRS = (
    ("float32", "generate"),
    ("int8", "generate"),
    ("float32", "ctranslate2 float32"),
    ("int8", "ctranslate2 int8"),
)
"""Ours and theirs."""


def sources(number: int) -> list[list[int]]:
    """Sources as long as Multi30k's."""
    generator = np.random.default_rng(7)
    lengths = np.clip(np.exp(generator.normal(2.6, 0.33, number)).astype(int), 4, 48)
    return [generator.integers(3, VOCABULARY, length).tolist() for length in lengths]


def in_threads(search: Contender, threads: int, read: Sequence[list[int]], beam: int) -> float:
    """Run a search; return sentences per second."""
    torch.set_num_threads(threads)
    began = time.perf_counter()
    search(read, beam)
    return len(read) / (time.perf_counter() - began)


def speeds(contenders: dict[str, list[Contender]], beam: int, size: int, rounds: int) -> dict[str, list[float]]:
    """Sentences per second of all rounds, in turn, each contender with its best number of threads in that round."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(-1, rounds):  # one round to warm up
        read = sources(size * (rounds + 1))[(number + 1) * size :][:size]
        for name in list(contenders)[:: -1 if number % 2 else 1]:
            tried = [in_threads(search, count + 1, read, beam) for count, search in enumerate(contenders[name])]
            if number >= 0:
                found[name].append(max(tried))
    return found


def agreement(ours: Contender, theirs: Contender) -> float:
    """Share of equal greedy translations: nearly all, since the weights are the same."""
    read = sources(16)
    return statistics.mean(one == other for one, other in zip(ours(read, 1), theirs(read, 1), strict=True))


def contenders_of(config: Config, threads: int) -> dict[str, list[Contender]]:
    """Our search, in int8 a second time, and its peers, each for one thread and for all."""
    counts = sorted({1, threads})
    model = our_model(config)
    peer = their_search(peer_of(model, config), isinstance(model, LanguageModel), limit(model))
    found = {"float32": [our_search(model)] * len(counts), "generate": [peer] * len(counts)}
    if ends(model):
        assert isinstance(model, Transformer)
        eight = our_model(config)
        eight.freeze("int8")
        found["int8"] = [our_search(eight)] * len(counts)
        for quantization in QUANTIZATIONS:
            found[f"ctranslate2 {quantization}"] = [ctranslate2_search(model, quantization, count) for count in counts]
    for name, searches in found.items():
        written = [len(tokens) for tokens in searches[0](sources(16), 1)]
        print(
            f"  {name}: {agreement(found['float32'][0], searches[0]):.0%} of the greedy translations are ours, "
            f"{statistics.mean(written):.1f} tokens on average, {written.count(LONGEST)} cut off"
        )
    return found


def torch_rounds(configs: dict[str, Config], rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """Ratios of ours to each peer, by model and case."""
    threads = torch.get_num_threads()
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, config in configs.items():
        print(name)
        contenders = contenders_of(config, threads)
        found[name] = {}
        for case, (beam, size) in CASES.items():
            measured = speeds(contenders, beam, size, rounds if size > 1 else 3 * rounds)
            shown = ", ".join(f"{one} {statistics.median(many):.1f}" for one, many in measured.items())
            print(f"  beam {beam}, {size} at a time, sentences/s: {shown}")
            found[name][case] = {}
            for ours, theirs in PAIRS:
                if ours in measured and theirs in measured:
                    ratios = [one / other for one, other in zip(measured[ours], measured[theirs], strict=True)]
                    key = f"{ours} / {theirs}"
                    found[name][case][key] = round(statistics.median(ratios), 2)
                    print(f"    {key}: {found[name][case][key]:.2f} ({min(ratios):.2f}–{max(ratios):.2f})", flush=True)
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
    parser.add_argument("--sizes", nargs="*", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--torch-only", action="store_true", help="only the first comparison")
    parser.add_argument("--model", type=Path, help="a trained run for the bulk part; random weights by default")
    parser.add_argument("--source", type=Path, help="the file to translate")
    parser.add_argument("--shortlist", type=Path, help="shortlist of that run")
    parser.add_argument("--reference", type=Path, help="translations of its first lines, tokenised, for BLEU")
    asked = parser.parse_args()
    found: dict[str, Any] = {"torch": torch_rounds({name: SIZES[name] for name in asked.sizes}, asked.rounds)}
    if asked.torch_only:
        print(json.dumps(found))
        return
    found |= {"family": torch_rounds(FAMILY, asked.rounds), "milliseconds": long_answers()}
    print("bulk")
    with tempfile.TemporaryDirectory(prefix="transduce-stand-in-") as place:
        given = {"folder": asked.model, "source": asked.source, "shortlist": asked.shortlist}
        bulk = given if asked.model is not None else stand_in(Path(place), TINY)
        found["bulk"] = bulk_rounds(**bulk, rounds=asked.rounds, reference=asked.reference)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

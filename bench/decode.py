"""Decoding speed, side by side with peers: `make bench-decode`.

Two comparisons. *torch*: our search against `generate` of Hugging Face's Marian, on the same weights (ours, copied),
the same sources, 20 tokens each, greedy and with a beam of 5, one sentence at a time and 64 together, in float32;
both may use one thread or all, and each counts with what suits it. *bulk*: `transduce translate FILE --output FILE`
with CTranslate2 in eight bits, with and without a shortlist, against CTranslate2 called by hand with its best workers,
threads and batch size; see decode_bulk.py. Rounds alternate, so that a slow minute of the machine is everybody's;
ratios are ours over theirs, with their spread. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from decode_bulk import bulk_rounds, stand_in
from marian import LONGEST, marian
from torch import Tensor, nn

from transduce.decoding.engine import TorchEngine
from transduce.decoding.options import Request, SearchOptions
from transduce.decoding.search import Search
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import Transformer, TransformerConfig
from transduce.text.specials import Specials

PAD, _, END = SPECIALS = Specials(0, 1, 2)
VOCABULARY = 10_000
LENGTH = 20
"""Tokens of every answer."""

SIZES = {
    "tiny": TransformerConfig(model_dim=128, ffn_dim=256, num_heads=4, num_layers=4, attention_bias=True),
    "base": TransformerConfig(attention_bias=True),
}
CASES = {"b1_bs1": (1, 1), "b5_bs1": (5, 1), "b1_bs64": (1, 64), "b5_bs64": (5, 64)}
"""Beam and sentences at a time."""


def our_model(config: TransformerConfig) -> Transformer:
    """Random weights; among ten thousand tokens the end hardly ever comes in twenty."""
    model = build(config, VocabularySizes(VOCABULARY, VOCABULARY), seed=1)
    assert isinstance(model, Transformer)
    model.freeze()  # as a translator does with what it has loaded
    return model.eval()


def marian_of(model: Transformer) -> nn.Module:
    """The same weights as a Marian model of Hugging Face."""
    config = model.config
    sizes = (config.model_dim, config.ffn_dim, config.num_heads, config.num_layers)
    theirs: nn.Module = marian(*sizes, VOCABULARY, SPECIALS).eval()
    with torch.no_grad():
        theirs.model.shared.weight.copy_(model.source_embedding.weight)
        for side, blocks in ((theirs.model.encoder, model.encoder), (theirs.model.decoder, model.decoder)):
            side.embed_positions.weight.copy_(model.source_positions.first(LONGEST))
            for block, ours in zip(side.layers, blocks, strict=True):
                _copy_block(block, ours)
    return theirs


def _copy_block(theirs: nn.Module, ours: nn.Module) -> None:
    own = ours.attention
    queries = zip(*(torch.chunk(t, 3) for t in (own.query_key_value.weight, own.query_key_value.bias)), strict=True)
    for projection, part in zip("qkv", queries, strict=True):
        _copy(getattr(theirs.self_attn, f"{projection}_proj"), *part)
    _copy(theirs.self_attn.out_proj, own.heads.merge.weight, own.heads.merge.bias)
    _copy(theirs.self_attn_layer_norm, ours.attention_residual.norm.weight, ours.attention_residual.norm.bias)
    if hasattr(ours, "cross_attention"):
        cross = ours.cross_attention
        _copy(theirs.encoder_attn.q_proj, cross.query.weight, cross.query.bias)
        keys = zip(*(torch.chunk(t, 2) for t in (cross.key_value.weight, cross.key_value.bias)), strict=True)
        for projection, part in zip("kv", keys, strict=True):
            _copy(getattr(theirs.encoder_attn, f"{projection}_proj"), *part)
        _copy(theirs.encoder_attn.out_proj, cross.heads.merge.weight, cross.heads.merge.bias)
        norm = ours.cross_attention_residual.norm
        _copy(theirs.encoder_attn_layer_norm, norm.weight, norm.bias)
    _copy(theirs.fc1, ours.feed_forward.widen.weight, ours.feed_forward.widen.bias)
    _copy(theirs.fc2, ours.feed_forward.narrow.weight, ours.feed_forward.narrow.bias)
    _copy(theirs.final_layer_norm, ours.feed_forward_residual.norm.weight, ours.feed_forward_residual.norm.bias)


def _copy(layer: nn.Module, weight: Tensor, bias: Tensor) -> None:
    layer.weight.copy_(weight)
    layer.bias.copy_(bias)


def sources(number: int) -> list[list[int]]:
    """Sources as long as Multi30k's."""
    generator = np.random.default_rng(7)
    lengths = np.clip(np.exp(generator.normal(2.6, 0.33, number)).astype(int), 4, 48)
    return [generator.integers(3, VOCABULARY, length).tolist() for length in lengths]


Answers = list[list[int]]
Contender = Callable[[Sequence[list[int]], int], Answers]
"""(sources, beam) -> tokens."""


def our_search(model: Transformer) -> Contender:
    engine = TorchEngine(model, SPECIALS, SPECIALS)

    def search(read: Sequence[list[int]], beam: int) -> Answers:
        options = SearchOptions(
            method="greedy" if beam == 1 else "beam", beam=beam, max_length=LENGTH, stop="beam_finished"
        )
        found = engine.translate([Request(place, source, options) for place, source in enumerate(read)])
        return [hypotheses[0].tokens for hypotheses in found]

    return search


def marian_search(model: nn.Module) -> Contender:
    def search(read: Sequence[list[int]], beam: int) -> Answers:
        longest = max(map(len, read)) + 1
        rows = torch.tensor([[*source, END, *[PAD] * (longest - 1 - len(source))] for source in read])
        with torch.inference_mode():
            found = model.generate(
                input_ids=rows,
                attention_mask=(rows != PAD).long(),
                num_beams=beam,
                do_sample=False,
                max_new_tokens=LENGTH,
                length_penalty=0.6,
            )
        return [row[1:].tolist() for row in found]

    return search


def in_threads(search: Contender, threads: int, read: Sequence[list[int]], beam: int) -> tuple[Answers, float]:
    """Search, and how many sentences a second that was."""
    torch.set_num_threads(threads)
    began = time.perf_counter()
    answers = search(read, beam)
    return answers, len(read) / (time.perf_counter() - began)


def torch_case(ours: Contender, theirs: Contender, beam: int, size: int, rounds: int, threads: int) -> list[float]:
    """The ratios of all rounds, each contender with the threads that suit it best in that round."""
    ratios = []
    for number in range(-1, rounds):  # one round to warm up
        read = sources(size * (rounds + 1))[(number + 1) * size :][:size]
        speeds = []
        for search in (ours, theirs):
            tried = [in_threads(search, count, read, beam) for count in sorted({1, threads})]
            speeds.append(max(speed for _, speed in tried))
        if number >= 0:
            ratios.append(speeds[0] / speeds[1])
            print(f"    ours {speeds[0]:8.1f} sentences/s, Marian {speeds[1]:8.1f}: {ratios[-1]:.2f} ×", flush=True)
    return ratios


def agreement(ours: Contender, theirs: Contender) -> float:
    """The share of greedy answers that are the same: the weights are, so nearly all should be."""
    read = sources(16)
    return statistics.mean(one == other for one, other in zip(ours(read, 1), theirs(read, 1), strict=True))


def torch_rounds(rounds: int) -> dict[str, dict[str, float]]:
    threads = torch.get_num_threads()
    found: dict[str, dict[str, float]] = {}
    for name, config in SIZES.items():
        model = our_model(config)
        ours, theirs = our_search(model), marian_search(marian_of(model))
        print(f"{name}: {agreement(ours, theirs):.0%} of the greedy answers are the same")
        found[name] = {}
        for case, (beam, size) in CASES.items():
            print(f"  {name}, beam {beam}, {size} at a time")
            count = rounds if size > 1 else 3 * rounds
            ratios = torch_case(ours, theirs, beam, size, count, threads)
            found[name][case] = round(statistics.median(ratios), 2)
            print(f"  median {found[name][case]:.2f} × ({min(ratios):.2f}–{max(ratios):.2f})", flush=True)
    return found


def long_answers(lengths: Sequence[int] = (50, 100, 200, 400, 800)) -> dict[str, float]:
    """Milliseconds of the last tokens of answers of different lengths, with a beam of 5: it should hardly grow."""
    model = our_model(SIZES["tiny"])
    options = SearchOptions(beam=5, max_length=max(lengths), stop="beam_finished")
    search = Search(model, SPECIALS, SPECIALS)
    search.admit([Request(0, sources(1)[0], options)])
    times: list[float] = []
    while search.active:
        began = time.perf_counter()
        search.advance()
        times.append(time.perf_counter() - began)
    found = {str(length): round(1000 * statistics.median(times[max(0, length - 25) : length]), 3) for length in lengths}
    print(f"milliseconds a token by length: {found}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", type=Path, help="a trained run for the bulk part; else random weights stand in")
    parser.add_argument("--source", type=Path, help="the file that it translates")
    parser.add_argument("--shortlist", type=Path, help="made by `transduce shortlist` for that run")
    parser.add_argument("--reference", type=Path, help="translations of its first lines, tokenised, for BLEU")
    asked = parser.parse_args()
    found: dict[str, Any] = {"torch": torch_rounds(asked.rounds), "milliseconds": long_answers()}
    print("bulk")
    with tempfile.TemporaryDirectory(prefix="transduce-stand-in-") as place:
        given = {"folder": asked.model, "source": asked.source, "shortlist": asked.shortlist}
        bulk = given if asked.model is not None else stand_in(Path(place), SIZES["tiny"])
        found["bulk"] = bulk_rounds(**bulk, rounds=asked.rounds, reference=asked.reference)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

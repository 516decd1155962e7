"""Speed of the steps of a search, without a server around it: `python bench/steps.py MODEL`.

Sources of 5 to 100 tokens, log-uniform, arrive whenever others are finished, so that 32 are active, as with 32 clients
of a server. One thread, greedy and with a beam of 5, in float32 and int8. Without MODEL the weights are random, of the
sizes *small* and *base*, and every translation is as long as its source. `--ctranslate2` also measures CTranslate2 in
int8 with one worker, which takes 32 requests at a time. Rounds alternate; medians are printed.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from serve_corpus import STRATA
from serve_corpus import requests as draw_requests

from transduce.experiments.study_corpus import find_corpus
from transduce.inference.ctranslate2.engine import CTranslate2Engine, Parallelism
from transduce.inference.search.options import Request, SearchOptions, override_options, saved_options
from transduce.inference.search.search import Search
from transduce.model_folder import load_model
from transduce.models.catalog import build
from transduce.models.interface import AnyTransducer, Transducer, VocabularySizes
from transduce.models.transformer import TransformerConfig
from transduce.nn.cpu.packed import Precision
from transduce.text.tokenizer.special import Specials

ACTIVE = 32
GATHERED = 3
"""Steps between two calls to the encoder, as in `serving.scheduler`."""
BEAMS = (1, 5)
PRECISIONS: tuple[Precision, ...] = ("float32", "int8")
SIZES = {
    "small": TransformerConfig(model_dim=128, ffn_dim=256, num_heads=4, num_layers=4, norm="pre", attention_bias=True),
    "base": TransformerConfig(norm="pre", attention_bias=True),
}
VOCABULARY = 10_000


class Speed(NamedTuple):
    """What was measured."""

    steps: float
    """Per second; 0 where they cannot be counted."""
    sentences: float
    """Per second."""


def lengths(count: int) -> list[int]:
    """Log-uniform lengths of sources."""
    random = np.random.default_rng(5)
    return [round(math.exp(number)) for number in random.uniform(math.log(5), math.log(100), count)]


def options_of(saved: SearchOptions, beam: int) -> SearchOptions:
    return override_options(saved, **({"method": "greedy"} if beam == 1 else {"method": "beam", "beam_size": beam}))


def random_requests(beam: int, count: int) -> list[Request]:
    """Sources of random tokens; a random model hardly ever ends, so the maximum length does."""
    random = np.random.default_rng(7)
    saved = SearchOptions(stop_rule="beam_finished", length_normalization="power")
    return [
        Request(number, random.integers(3, VOCABULARY, length).tolist(), options_of(saved, beam).but(max_length=length))
        for number, length in enumerate(lengths(count))
    ]


def step_speed(model: AnyTransducer, specials: tuple[Specials, Specials], requests: list[Request]) -> Speed:
    """Search with `ACTIVE` requests at a time; the measurement ends when no request is waiting any more."""
    search, steps, finished = Search(model, *specials), 0, 0
    waiting = deque(requests)
    search.admit([waiting.popleft() for _ in range(ACTIVE)])
    began = time.perf_counter()
    while True:
        finished += len(search.advance())
        steps += 1
        if len(waiting) < ACTIVE - search.active:
            break
        if steps % GATHERED == 0 and search.active < ACTIVE:
            search.admit([waiting.popleft() for _ in range(ACTIVE - search.active)])
    seconds = time.perf_counter() - began
    return Speed(steps / seconds, finished / seconds)


def batch_speed(engine: CTranslate2Engine, requests: list[Request]) -> Speed:
    began = time.perf_counter()
    for first in range(0, len(requests), ACTIVE):
        engine.translate(requests[first : first + ACTIVE])
    return Speed(0.0, len(requests) / (time.perf_counter() - began))


def measure(name: str, rounds: int, contenders: dict[str, Callable[[int], Speed]]) -> None:
    """Run all contenders in turn."""
    for beam in BEAMS:
        found: dict[str, list[Speed]] = {label: [] for label in contenders}
        for number in range(-1, rounds):  # one round to warm up
            for label, contender in contenders.items():
                speed = contender(beam)
                if number >= 0:
                    found[label].append(speed)
        for label, speeds in found.items():
            steps, sentences = (statistics.median(column) for column in zip(*speeds, strict=True))
            print(f"{name}, beam {beam}, {label:18} {steps:7.1f} steps/s {sentences:7.1f} sentences/s", flush=True)


def frozen(
    model: AnyTransducer, precision: Precision, specials: tuple[Specials, Specials], requests: dict[int, list[Request]]
) -> Callable[[int], Speed]:
    def contender(beam: int) -> Speed:
        model.freeze(precision)
        return step_speed(model, specials, requests[beam])

    return contender


def measure_folder(folder: Path, data: Path, count: int, rounds: int, ctranslate2: bool) -> None:
    """Measure a trained model on texts of Multi30k."""
    contents = load_model(folder)
    source, target = contents.source_tokenizer, contents.target_tokenizer
    saved = saved_options(contents.notes.get("search", {}))
    texts = draw_requests(find_corpus(data), source, -(-count // STRATA) * STRATA)
    requests = {
        beam: [Request(id, source.encode(text), options_of(saved, beam)) for id, text in enumerate(texts)]
        for beam in BEAMS
    }
    specials, model = (source.specials, target.specials), contents.transducer.eval()
    contenders = {f"torch {name}": frozen(model, name, specials, requests) for name in PRECISIONS}
    if ctranslate2:
        engine = CTranslate2Engine(contents, "int8", None, Parallelism(1))
        contenders["ctranslate2 int8"] = lambda beam: batch_speed(engine, requests[beam])
    measure(folder.name, rounds, contenders)


def measure_random(size: str, count: int, rounds: int) -> None:
    """Measure a model with random weights."""
    model = build(SIZES[size], VocabularySizes(VOCABULARY, VOCABULARY), seed=1).eval()
    assert isinstance(model, Transducer)
    requests = {beam: random_requests(beam, count) for beam in BEAMS}
    specials = Specials(0, 1, 2), Specials(0, 1, 2)
    measure(size, rounds, {f"torch {name}": frozen(model, name, specials, requests) for name in PRECISIONS})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="*", help="run folders; random weights by default")
    here = Path(__file__).resolve().parents[1]
    parser.add_argument("--data", type=Path, default=here.parent / "shared/data/multi30k", help="Multi30k's .gz files")
    parser.add_argument("--requests", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ctranslate2", action="store_true", help="measure CTranslate2, too")
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    given = parser.parse_args()
    torch.set_num_threads(1)
    for folder in given.model:
        measure_folder(folder, given.data, given.requests, given.rounds, given.ctranslate2)
    for size in () if given.model else given.sizes:
        measure_random(size, given.requests, given.rounds)


if __name__ == "__main__":
    main()

"""Our server against servers without a scheduler, with real HTTP: `make bench-serve`.

Ours, with continuous batching: *torch* in float32, *torch_int8*, and *ct2*, CTranslate2 in eight bits. The baselines
(serve_baselines.py): *sequential* (a), *static* (b) and *shrinking* (c) batches of the same PyTorch engine, and
*ct2_starlette* (d), CTranslate2 in eight bits with a window of 10 ms. Sources have 5 to 100 tokens, log-uniform.

Closed loop: 32 clients, each with one request at a time, greedy and with a beam of 5; rounds over all systems in
alternating order, so that slow phases of the machine affect everyone, and ratios per round with their spread. Every
answer is compared with the translation of its engine alone; *same* is the share of equal ones (a batch of eight-bit
products is rounded differently), *crossed* counts answers that are more like another request's. A 95th percentile
marked ≥ is a lower bound: the measurement was shorter than two turns of all clients.

Goodput: Poisson arrivals, greedy, at 50, 80 and 95 % of (d)'s saturation; an answer is good within twice the latency
that a request of its length has in the idle system. *own* is the system's own idle latency, *common* that of (d), by
which a slower engine cannot be good. A system that is offered more than four times its own saturation is not run.

The small model is trained at the first run (a quarter of an hour) and kept in the work folder; base is the same
function with the sizes of base (serve_models.py). The last line is one JSON object, of medians for the small model;
that of base is before it.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from serve_corpus import corpus, joined_corpus, length_table, requests
from serve_models import UPDATES, train_small, widen_folder
from serve_systems import SYSTEMS, Answer, Engine, Expected, Measurement, Server, Servers, measure, send_load, serving

from transduce.inference.ctranslate2.export import Quantization
from transduce.inference.engine import EngineName
from transduce.inference.load import load_translator
from transduce.model_folder import load_model

CLIENTS = 32
REQUESTS = 256
"""Different requests; they are sent again and again, and no system remembers any."""
ALONE = 32
"""Requests from which the idle latency is measured."""
BEAMS = {"greedy": 1, "beam 5": 5}
LOADS = (0.5, 0.8, 0.95)
"""Shares of the saturation of (d)."""
HOPELESS = 4.0
"""A system is not run where it is offered more than this many times its saturation."""
ENGINES: dict[Engine, tuple[EngineName, Quantization]] = {
    "torch": ("torch", "float32"),
    "torch_int8": ("torch", "int8"),
    "ctranslate2": ("ctranslate2", "int8"),
}


@dataclass(frozen=True)
class Times:
    """Seconds of each measurement, and the number of rounds."""

    warm_up: float
    seconds: float
    poisson: float
    rounds: int


TIMES = {"small": Times(1.5, 5.0, 6.0, 4), "base": Times(4.0, 12.0, 12.0, 2)}
QUICK = {"small": Times(0.5, 1.5, 1.5, 1), "base": Times(2.0, 4.0, 4.0, 1)}

Rounds = dict[str, list[Measurement]]
"""Measurements of each system, by round."""


@dataclass(frozen=True)
class Questions:
    """What is sent, and what is expected."""

    texts: list[str]
    lengths: list[int]
    """In tokens."""
    expected: dict[tuple[Engine, str], Expected]
    """By engine and method."""

    def bodies(self, method: str) -> list[str]:
        """Bodies of the requests."""
        search = {"method": "greedy"} if BEAMS[method] == 1 else {"beam_size": BEAMS[method]}
        return [json.dumps({"text": text, **search, "split": False}) for text in self.texts]


def prepare(data: Path, work: Path, models: Sequence[str], updates: int) -> tuple[dict[str, Path], Questions]:
    """Train and widen what is missing; return the model folders and the requests."""
    work.mkdir(parents=True, exist_ok=True)
    texts = corpus(data, work)
    name = "serve" if texts.name == "multi30k" else f"serve-{texts.name}"
    small = work / f"{name}-small"
    if not (small / "model").exists():
        train_small(joined_corpus(texts, work), small, updates)
    tokenizer = load_model(small).source_tokenizer
    sources = requests(texts, tokenizer, REQUESTS)
    print(f"source lengths in tokens: {length_table(sources, tokenizer)}")
    folders = {"small": small}
    if "base" in models:
        folders["base"] = widen_folder(small, work / f"{name}-base", sources[:32])
    translator = load_translator(small)  # base has the same function
    expected: dict[tuple[Engine, str], Expected] = {}
    for engine, selected in ENGINES.items():
        translator.use(*selected)
        for method, beam_size in BEAMS.items():
            search = {"method": "greedy"} if beam_size == 1 else {"beam_size": beam_size}
            expected[engine, method] = Expected(translator.translate(sources, split=False, **search))
    return folders, Questions(sources, [len(tokenizer.encode(source)) for source in sources], expected)


# Closed loop.


def closed_loop(servers: Servers, questions: Questions, method: str, times: Times) -> Rounds:
    """Measure all systems in rounds, in alternating order."""
    bodies = questions.bodies(method)
    found: Rounds = {name: [] for name in servers.running}
    for number in range(times.rounds):
        for name in list(servers.running)[:: -1 if number % 2 else 1]:
            server = servers.running[name]
            until = times.warm_up + times.seconds
            answers = send_load(server, bodies, clients=CLIENTS, seconds=until, first=number * REQUESTS // 4)
            expected = questions.expected[server.system.engine, method]
            found[name].append(measure(answers, expected, times.warm_up, until))
    return found


def print_closed_loop(title: str, rounds: Rounds, times: Times) -> None:
    print(f"{title}: {CLIENTS} clients, {times.rounds} rounds of {times.seconds:.0f} s")
    print(f"  {'system':14} {'sentences/s':>22} {'p50 ms':>8} {'p95 ms':>9} {'answers':>8}  same  crossed  errors")
    for name, several in rounds.items():
        rates = [one.rate for one in several]
        rate = statistics.median(rates)
        bound = "≥" if rate * (times.warm_up + times.seconds) < 2 * CLIENTS else ""
        print(
            f"  {name:14} {rate:8.1f} ({min(rates):.1f}–{max(rates):.1f})".ljust(39)
            + f"{1000 * statistics.median(one.p50 for one in several):8.0f} "
            f"{bound + format(1000 * statistics.median(one.p95 for one in several), '.0f'):>9} "
            f"{sum(one.count for one in several):8}  {statistics.mean(one.same for one in several):4.0%}  "
            f"{sum(one.crossed for one in several):7}  {sum(one.errors for one in several):6}",
            flush=True,
        )


def ratio(rounds: Rounds, ours: str, theirs: str, of: Callable[[Measurement], float]) -> float | None:
    """The median over the rounds of ours to theirs, with its spread printed; None if one of them was not measured."""
    if not rounds.get(ours) or not rounds.get(theirs):
        return None
    ratios = [of(one) / max(of(other), 1e-9) for one, other in zip(rounds[ours], rounds[theirs], strict=True)]
    median = statistics.median(ratios)
    print(f"    {ours} / {theirs}: {median:.2f} ({min(ratios):.2f}–{max(ratios):.2f})")
    return round(median, 2)


def summary(greedy: Rounds, beam: Rounds) -> dict[str, float | None]:
    """The ratios that the last line has."""

    def rate(one: Measurement) -> float:
        return one.rate

    def p95(one: Measurement) -> float:
        return one.p95

    print("  ratios of sentences/s")
    found = {
        "vs_sequential": ratio(greedy, "torch", "sequential", rate),
        "vs_sequential_beam": ratio(beam, "torch", "sequential", rate),
        "vs_static": ratio(greedy, "torch", "static", rate),
        "vs_shrinking": ratio(greedy, "torch", "shrinking", rate),
        "torch_vs_ct2_starlette": ratio(greedy, "torch_int8", "ct2_starlette", rate),
        "ct2_vs_ct2_starlette": ratio(greedy, "ct2", "ct2_starlette", rate),
    }
    print("  ratios of 95th percentiles")
    for theirs in ("sequential", "shrinking"):
        ratio(greedy, "torch", theirs, p95)
    ratio(greedy, "ct2", "ct2_starlette", p95)
    return {
        **found,
        "p95_vs_static": ratio(greedy, "torch", "static", p95),
        "torch_p95_vs_ct2_starlette": ratio(greedy, "torch_int8", "ct2_starlette", p95),
    }


# Goodput.


def idle_latency(server: Server, questions: Questions) -> np.ndarray:
    """Seconds that each request takes in the idle system: a line through those of some, by source length."""
    answers = send_load(server, questions.bodies("greedy"), requests=ALONE)[:ALONE]
    lengths = np.array(questions.lengths)
    line = np.polyfit([lengths[one.request] for one in answers], [one.latency for one in answers], 1)
    return np.polyval(line, lengths)


def good_share(answers: Sequence[Answer], idle: np.ndarray) -> float:
    return sum(one.latency <= 2 * float(idle[one.request]) for one in answers) / max(1, len(answers))


def goodput(servers: Servers, questions: Questions, rounds: Rounds, times: Times) -> None:
    """Print the goodput of each system at several loads."""
    saturation = {name: statistics.median(one.rate for one in several) for name, several in rounds.items()}
    idle = {name: idle_latency(server, questions) for name, server in servers.running.items()}
    common = idle["ct2_starlette"]
    middle = int(np.argsort(questions.lengths)[len(questions.lengths) // 2])
    shown = ", ".join(f"{name} {1000 * own[middle]:.0f}" for name, own in idle.items())
    print(f"  idle latency of the median length in ms: {shown}")
    print(f"  {'system':14}  load  offered/s   good/s (own)    good/s (common)   p95 ms  errors")
    for load in LOADS:
        offered = load * saturation["ct2_starlette"]
        for name in list(servers.running):
            if offered > HOPELESS * saturation[name]:
                print(f"  {name:14} {load:5.0%} {offered:10.1f}   overloaded: its saturation is {saturation[name]:.1f}")
                continue
            plan = {"rate": offered, "seconds": times.poisson, "seed": round(100 * load), "grace": 3.0}
            answers = send_load(servers.running[name], questions.bodies("greedy"), **plan)
            own, shared = good_share(answers, idle[name]), good_share(answers, common)
            rate = len(answers) / times.poisson
            p95 = float(np.percentile([one.latency for one in answers], 95, method="higher"))
            errors = sum(one.text is None for one in answers)
            print(
                f"  {name:14} {load:5.0%} {offered:10.1f} {own * rate:8.1f} ({own:4.0%}) {shared * rate:11.1f} "
                f"({shared:4.0%}) {1000 * p95:8.0f} {errors:7}",
                flush=True,
            )
            if any(one.answered is None for one in answers):
                servers.restart(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = Path(__file__).resolve().parents[1]
    parser.add_argument("--data", type=Path, default=here.parent / "shared/data/multi30k", help="Multi30k's .gz files")
    parser.add_argument("--work", type=Path, default=here / "runs/serve", help="folder of the models")
    parser.add_argument("--models", nargs="+", choices=list(TIMES), default=list(TIMES)[::-1])
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--rounds", type=int, help="rounds; 4 for small and 2 for base by default")
    parser.add_argument("--seconds", type=float, help="seconds of each measurement; 5 and 12 by default")
    parser.add_argument("--updates", type=int, default=UPDATES, help="updates of the training; few for a test")
    parser.add_argument("--no-goodput", action="store_true", help="leave out the Poisson arrivals")
    parser.add_argument("--quick", action="store_true", help="small model, one short round: a minute")
    options = parser.parse_args()
    models = ["small"] if options.quick else sorted(options.models)  # small last, as its line is
    folders, questions = prepare(options.data, options.work, models, options.updates)
    for model in models:
        usual = (QUICK if options.quick else TIMES)[model]
        seconds = options.seconds or usual.seconds
        times = Times(usual.warm_up, seconds, options.seconds or usual.poisson, options.rounds or usual.rounds)
        with serving([SYSTEMS[name] for name in options.systems], folders[model], options.work / "logs") as servers:
            found = {method: closed_loop(servers, questions, method, times) for method in BEAMS}
            for method, rounds in found.items():
                print_closed_loop(f"{model}, {method}", rounds, times)
            ratios = summary(*found.values())
            if not options.no_goodput and "ct2_starlette" in servers.running:
                print(f"{model}, greedy, Poisson arrivals")
                goodput(servers, questions, found["greedy"], times)
        print(json.dumps(ratios) if model == models[-1] else f"{model}: {json.dumps(ratios)}", flush=True)


if __name__ == "__main__":
    main()

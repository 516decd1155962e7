"""The bulk part of `make bench-decode`: raw text to raw text, from a file into a file.

`ours` is what `transduce translate FILE --output FILE --precision int8` does once the model is loaded, its choice of
workers, threads and batches and its commits to disk included; `shortlist` is the same with a shortlist. `by_hand` is a
script written with CTranslate2 and tokenizers: read all lines, encode_batch, one translate_batch over everything,
decode_batch, write; its fastest setting is found by a grid search, which is not timed. Beam,
length penalty and stop rule are the same. Each contender runs in a process of its own and waits for its turn.

Without a trained run, a model with random weights stands in, most of whose translations end (decode_contenders.py); the
others are cut off at the same length for all contenders.
"""

from __future__ import annotations

import gzip
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

BEAM = 5
SEARCH = {"beam_size": BEAM, "length_normalization": "power", "length_penalty": 1.0, "stop_rule": "beam_finished"}
BATCHES = (32, 64, 128, 256)


def read(path: Path) -> list[str]:
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return content.decode("utf-8").removesuffix("\n").split("\n")


def ours(folder: Path, source: Path, output: Path, longest: int | None, shortlist: Path | None) -> Callable[[], None]:
    from transduce.cli.progress import following
    from transduce.inference.jobs.job import JobOptions, TranslationJob, run_job
    from transduce.inference.jobs.output import fingerprint, open_partial
    from transduce.inference.jobs.source import Source
    from transduce.inference.load import load_translator

    translator = load_translator(folder)
    translator.use_shortlist(shortlist)
    search = {**SEARCH, "max_length": longest}
    job = TranslationJob.of(translator, JobOptions(search=search, engine="ctranslate2", quantization="int8"))
    asked = {"run": str(folder), "ensemble": (), "prefix_file": None, "terms": None, "shortlist": None}

    def turn() -> None:
        output.unlink(missing_ok=True)
        with (
            open_partial(str(output), fingerprint(asked, uses_ctranslate2=True)) as sink,
            following(None, "line") as follower,
        ):
            run_job(job, Source.open(str(source)), sink, follower, str(source))

    return turn


def by_hand(folder: Path, source: Path, output: Path, longest: int | None, _: Path | None) -> Callable[[], None]:
    import ctranslate2
    import tokenizers

    from transduce.inference.ctranslate2.engine import available_cores
    from transduce.inference.ctranslate2.export import export
    from transduce.model_folder import load_model

    exported = output.parent / "exported"
    export(load_model(folder), exported, "int8")
    files = sorted(exported.glob("*tokenizer.json"))
    sides = [tokenizers.Tokenizer.from_file(str(file)) for file in (files[0], files[-1])]
    for side in sides:
        side.encode_special_tokens = True

    def turn_with(translator: Any, batch: int, lines: list[str]) -> list[str]:
        tokens = [found.tokens for found in sides[0].encode_batch(lines, add_special_tokens=False)]
        results = translator.translate_batch(
            tokens, beam_size=BEAM, length_penalty=1.0, max_batch_size=batch, max_decoding_length=longest or 256
        )
        known = sides[-1].get_vocab()
        ids = [[known[piece] for piece in result.hypotheses[0]] for result in results]
        return sides[-1].decode_batch(ids, skip_special_tokens=True)

    sample = read(source)[:2000]
    best: tuple[float, Any, int] | None = None
    ways = {(available_cores(), 1), (1, available_cores())}
    for (workers, threads), batch in product(sorted(ways), BATCHES):
        translator = ctranslate2.Translator(str(exported), inter_threads=workers, intra_threads=threads)
        began = time.perf_counter()
        turn_with(translator, batch, sample)
        seconds = time.perf_counter() - began
        if best is None or seconds < best[0]:
            best = (seconds, translator, batch)
            print(f"by hand: {workers} × {threads}, batch {batch}: {seconds:.1f} s", file=sys.stderr)
    assert best is not None
    fastest, batch_size = best[1:]

    def turn() -> None:
        text = turn_with(fastest, batch_size, read(source))
        output.write_text("".join(f"{line}\n" for line in text), encoding="utf-8")

    return turn


def contend(name: str, folder: str, source: str, output: str, longest: str, shortlist: str) -> None:
    """Run as one contender: translate the file once for each line on standard input and print the seconds."""
    contender = {"ours": ours, "shortlist": ours, "by_hand": by_hand}[name]
    listed = Path(shortlist) if shortlist else None
    turn = contender(Path(folder), Path(source), Path(output), int(longest) if longest else None, listed)
    print("ready", flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        turn()
        print(time.perf_counter() - began, flush=True)


def stand_in(place: Path, config: Any) -> dict[str, Any]:
    """Write a model with random weights, a file for it, and a shortlist, deterministically."""
    import numpy as np
    from decode_contenders import LONGEST, our_model

    from transduce.model_folder import ModelFolder, save_model
    from transduce.tasks.translation.shortlist import make_shortlist
    from transduce.text.corpus import CorpusFiles
    from transduce.text.tokenizer.tokenizer import TokenizerConfig
    from transduce.text.tokenizer.training import train_tokenizer

    draw = np.random.default_rng(7)
    syllables = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]
    words = ["".join(draw.choice(syllables, draw.integers(1, 5))) for _ in range(20_000)]
    rank = (len(words) * draw.random((6000, 40)) ** 3).astype(int)  # some words are much more common than others
    lengths = np.clip(np.exp(draw.normal(2.5, 0.33, len(rank))).astype(int), 4, 40)
    lines = [" ".join(words[word] for word in row[:length]) for row, length in zip(rank, lengths, strict=True)]
    source = place / "source.txt"
    source.write_text("".join(f"{line}\n" for line in lines))
    known = train_tokenizer("bpe", lines, TokenizerConfig(vocab_size=10_000))
    model = our_model(config, known.size)
    save_model(place / "model", ModelFolder(model, config, known, known), "A model with random weights.")
    corpus = CorpusFiles(source=str(source), target=str(source))
    listed = make_shortlist(str(place / "model"), str(place / "shortlist.safetensors"), 100, 100, corpus)
    return {"folder": place / "model", "source": source, "shortlist": Path(listed.path), "longest": LONGEST}


def bulk_rounds(
    folder: Path,
    source: Path,
    shortlist: Path,
    rounds: int,
    reference: Path | None = None,
    longest: int | None = None,
) -> dict[str, Any]:
    """Run the three contenders in turn; return the ratios, and BLEU of the first lines that have a reference."""
    names = {"ours": None, "by_hand": None, "shortlist": shortlist}
    with tempfile.TemporaryDirectory(prefix="transduce-decode-") as place:
        outputs = {name: Path(place) / name / "output.txt" for name in names}
        children: dict[str, Any] = {}
        for name, listed in names.items():
            outputs[name].parent.mkdir()
            arguments = [name, str(folder), str(source), str(outputs[name]), str(longest or ""), str(listed or "")]
            children[name] = subprocess.Popen(
                [sys.executable, __file__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            assert children[name].stdout.readline() == "ready\n", name
        lines = len(read(source))
        seconds: dict[str, list[float]] = {name: [] for name in names}
        for number in range(-1, rounds):
            for name, child in children.items():
                print("go", file=child.stdin, flush=True)
                took = float(child.stdout.readline())
                if number >= 0:
                    seconds[name].append(took)
                    print(f"  {name}: {lines / took:,.0f} lines/s", flush=True)
        for child in children.values():
            child.stdin.close()
            child.wait()
        scores = {}
        if reference is not None:
            import sacrebleu

            expected = read(reference)
            for name in names:
                answers = outputs[name].read_text(encoding="utf-8").splitlines()[: len(expected)]
                scores[name] = round(sacrebleu.corpus_bleu(answers, [expected], tokenize="none", force=True).score, 2)
            print(f"  BLEU of the first {len(expected):,} lines: {scores}")
    found: dict[str, Any] = {}
    for label, name in (("int8", "ours"), ("int8_shortlist", "shortlist")):
        ratios = [theirs / mine for theirs, mine in zip(seconds["by_hand"], seconds[name], strict=True)]
        found[label] = round(statistics.median(ratios), 2)
        print(f"  {label}: median {found[label]:.2f} × ({min(ratios):.2f}–{max(ratios):.2f})", flush=True)
    return {**found, **({"bleu": scores} if scores else {})}


if __name__ == "__main__":
    contend(*sys.argv[1:])

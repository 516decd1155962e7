"""Scores of finished runs on Multi30k, English to German, in the measure of Wu et al. 2021: `python bench/multi30k.py`.

    python bench/multi30k.py --data multi30k --tokenised runs/tiny-1 runs/tiny-2 --raw runs/multi30k runs/a+runs/b

Runs joined by + are evaluated as an ensemble. Runs on the lowercased, tokenised files are scored on their unchanged
output. A run on raw text gets its output lowercased, normalised and tokenised by Moses's rules (sacremoses), which turn
the raw reference of the test set into the published tokenised one, line by line; that is checked. sacreBLEU's score
of the raw text is printed too, and a paired bootstrap test against the first run. The last line is one JSON object.
Use `--split val` for model selection and the test set only at the end.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from statistics import mean
from typing import Any

from measuring import require_files
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from transduce.evaluation.metrics import bleu_metric, chrf_metric
from transduce.evaluation.significance import compare, interval
from transduce.inference.load import load_translator

TOKENISED = bleu_metric("none")
"""The files are tokenised already; this is multi-bleu.perl's number."""


ALLOWED = 0.01
"""Maximum share of references that our tokenisation renders differently from the published files; 0 on the test set."""


def read(data: Path, name: str) -> list[str]:
    with gzip.open(data / f"{name}.gz", "rt", encoding="utf-8", newline="\n") as lines:
        return [line.rstrip("\n") for line in lines]


def tokenised(lines: list[str]) -> list[str]:
    """Lowercase, normalise and tokenise German like the published files."""
    normalizer, tokenizer = MosesPunctNormalizer("de"), MosesTokenizer("de")
    return [tokenizer.tokenize(normalizer.normalize(line.lower()), escape=True, return_str=True) for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the corpus's .gz files")
    parser.add_argument("--split", default="test_2016_flickr", help="split to evaluate; use val for model selection")
    parser.add_argument("--tokenised", nargs="*", default=[], help="runs on the lowercased, tokenised files")
    parser.add_argument("--raw", nargs="*", default=[], help="runs on raw text")
    parser.add_argument("--length-penalty", type=float, help="length penalty; that of the saved model by default")
    parser.add_argument("--beam-size", type=int, help="beam size; that of the saved model by default")
    options = parser.parse_args()
    require_files(
        options.data, *(f"{options.split}{kind}.{side}.gz" for kind in (".lc.norm.tok", "") for side in ("en", "de"))
    )
    sources = {True: read(options.data, f"{options.split}.en")}
    sources[False] = read(options.data, f"{options.split}.lc.norm.tok.en")
    reference, raw_reference = (read(options.data, f"{options.split}{kind}.de") for kind in (".lc.norm.tok", ""))
    differing = sum(one != other for one, other in zip(tokenised(raw_reference), reference, strict=True))
    print(f"{options.split}: {differing} of {len(reference):,} references are tokenised differently")
    assert differing <= ALLOWED * len(reference), "these are not the tokeniser's rules"
    answers: dict[str, list[str]] = {}
    found: dict[str, dict[str, Any]] = {}
    for run, is_raw in [*((run, False) for run in options.tokenised), *((run, True) for run in options.raw)]:
        search = {"length_penalty": options.length_penalty, "beam_size": options.beam_size} if is_raw else {}
        translations = load_translator(*run.split("+")).translate(sources[is_raw], split=False, **search)
        answers[run] = tokenised(translations) if is_raw else translations
        score, around = TOKENISED.score(answers[run], reference), interval(TOKENISED, answers[run], reference)
        print(f"{run}: {score}  (95 % interval {around.low:.2f} to {around.high:.2f})")
        found[run] = {"bleu": round(score.value, 2), "signature": score.signature}
        if is_raw:
            for metric in (bleu_metric(), chrf_metric()):
                print(f"{run}, raw text: {metric.score(translations, raw_reference)}")
                found[run][metric.name] = round(metric.score(translations, raw_reference).value, 2)
    first, *others = answers
    for other in others:
        test = compare(TOKENISED, answers[other], answers[first], reference)
        print(
            f"{other} against {first}: {test.delta:+.2f} BLEU ({test.low:+.2f} to {test.high:+.2f}), "
            f"p = {test.p_value:.3f}"
        )
        found[other]["against_first"] = {"delta": round(test.delta, 2), "p": round(test.p_value, 4)}
    if options.tokenised:
        found["mean of the tokenised"] = {"bleu": round(mean(found[run]["bleu"] for run in options.tokenised), 2)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()

"""The last stage: every model of a pipeline on the test set, with intervals, size and speed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transduce.config import Table
from transduce.errors import DataError
from transduce.evaluation.metrics import select_metrics
from transduce.evaluation.significance import compare, interval
from transduce.inference.load import load_translator
from transduce.inference.translator import Translator
from transduce.pipeline.settings import Evaluation
from transduce.text.corpus import CorpusFiles, Languages, read_pairs

WARM_UP = 32
"""Sentences that are translated before the clock is started."""
MEBIBYTE = 2**20


@dataclass(frozen=True)
class Contender:
    """A model in one form of use."""

    name: str
    model: Path
    size: int
    """Bytes of the files that this form needs."""
    search: Table = field(default_factory=dict)
    precision: str = "float32"
    shortlist: Path | None = None

    def load(self) -> Translator:
        """Load it with the fastest engine."""
        translator = load_translator(str(self.model))
        translator.use("auto", self.precision)  # type: ignore[arg-type]
        if self.shortlist is not None:
            translator.use_shortlist(self.shortlist)
        return translator


def folder_bytes(*paths: Path) -> int:
    """Return the size of files, and of all files in folders."""
    files = [file for path in paths for file in (path.rglob("*") if path.is_dir() else [path])]
    return sum(file.stat().st_size for file in files if file.is_file())


def compare_models(
    contenders: Sequence[Contender], test: CorpusFiles, languages: Languages, config: Evaluation
) -> Table:
    """Translate the test set with each; the first is what the others are compared with."""
    pairs = list(read_pairs(test, languages))
    if not pairs:
        raise DataError(f"{test.name}: has no pairs; there is nothing to evaluate")
    sources, references = [pair.source for pair in pairs], [[pair.target] for pair in pairs]
    metrics = select_metrics(("bleu", "chrf"), config.tokenize, False)
    rows: list[Table] = []
    first: list[str] = []
    for contender in contenders:
        translator = contender.load()
        translations, seconds = _timed(translator, sources, contender.search)
        first = first or translations
        row: Table = {"name": contender.name, "sentences": len(sources), "bytes": contender.size, "seconds": seconds}
        row |= {
            "search": contender.search,
            "precision": contender.precision,
            "shortlist": contender.shortlist is not None,
        }
        row["engine"] = "CTranslate2" if translator.engine.has_ctranslate2 else "PyTorch"
        for name, metric in metrics.items():
            score, found = (
                metric.score(translations, references),
                interval(metric, translations, references, config.samples),
            )
            row[name] = {"score": score.value, "low": found.low, "high": found.high, "signature": score.signature}
        if rows:
            compared = compare(metrics["bleu"], translations, first, references, config.samples)
            row["difference"] = {"bleu": compared.delta, "p_value": compared.p_value}
            row["time_ratio"] = seconds / rows[0]["seconds"]
        rows.append(row)
    return {"test": test.name, "rows": rows}


def _timed(translator: Translator, sources: list[str], search: dict[str, Any]) -> tuple[list[str], float]:
    """Translate, and return the seconds of it without loading."""
    translator.translate(sources[:WARM_UP], split=False, **search)
    began = time.perf_counter()
    translations = translator.translate(sources, split=False, **search)
    return translations, time.perf_counter() - began


def table_lines(table: Table) -> Iterator[str]:
    """Return the lines to print of a comparison."""
    first = table["rows"][0]
    width = max(len(row["name"]) for row in table["rows"])
    yield f"{'':{width}}   BLEU  95 % interval    chrF       size   ms/sentence   time"
    for row in table["rows"]:
        bleu, milliseconds = row["bleu"], 1000 * row["seconds"] / row["sentences"]
        yield (
            f"{row['name']:{width}} {bleu['score']:6.2f}  {bleu['low']:5.2f} to {bleu['high']:5.2f}  "
            f"{row['chrf']['score']:6.2f}  {row['bytes'] / MEBIBYTE:6.1f} MiB  {milliseconds:12.2f}  "
            f"{100 * row['seconds'] / first['seconds']:4.0f} %"
        )
    yield (
        f"time: relative to {first['name']}; {first['sentences']:,} sentences of {table['test']}, "
        f"{first['bleu']['signature']}"
    )
    for row in table["rows"][1:]:
        difference = row["difference"]
        yield f"{row['name']}: {difference['bleu']:+.2f} BLEU, p = {difference['p_value']:.3f}"

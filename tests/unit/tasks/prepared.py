"""Small corpora, prepared, and what the tests of preparing ask about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transduce.data.prepared import Prepared
from transduce.data.report import SplitReport
from transduce.tasks.catalog import load_prepared, prepare
from transduce.tasks.translation.config import TranslationConfig
from transduce.text.corpus import CorpusFiles
from transduce.text.tokenizer.tokenizer import TokenizerConfig

WORDS = TokenizerConfig(kind="word", min_frequency=1)


def tsv(path: Path, pairs: list[tuple[str, str]]) -> CorpusFiles:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return CorpusFiles(path=str(path))


def run(folder: Path, train: list[tuple[str, str]], tokenizer: TokenizerConfig = WORDS, **settings: Any) -> Prepared:
    for name in ("validation", "test"):
        if name in settings:
            settings[name] = tsv(folder / f"{name}.tsv", settings[name])
    data = TranslationConfig(**{"train": tsv(folder / "train.tsv", train), "validation_fraction": 0, **settings})
    report = prepare(data, tokenizer, folder / "out")
    prepared = load_prepared(folder / "out", thorough=True)
    assert prepared.report == report
    return prepared


def texts(prepared: Prepared, split: str = "train") -> list[tuple[str, str]]:
    store = getattr(prepared, split)
    return [store.text(row) for row in range(len(store))]


def counts(split: SplitReport) -> dict[str, tuple[int, int]]:
    """Dropped and kept per finding; and the books must balance."""
    assert split.read == split.kept + split.dropped + split.held_out
    return {reason: (issue.dropped, issue.kept) for reason, issue in split.issues.items()}


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}

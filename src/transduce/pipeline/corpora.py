"""What stages make of corpora: clean pairs, back-translated pairs, and pairs to distil from."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from transduce.config import Table
from transduce.data.augmentation import AugmentationConfig, Linker, augmented
from transduce.data.cleaning.cleaner import Cleaner
from transduce.data.cleaning.outcome import REASONS, CleaningReport, CleanPair
from transduce.data.cleaning.rules import CleaningConfig
from transduce.errors import DataError
from transduce.evaluation.metrics import METRICS
from transduce.inference.translator import Translator
from transduce.model_folder import find_model
from transduce.pipeline.lines import Block, discard_blocks, finish_blocks, non_empty, write_blocks
from transduce.pipeline.settings import Distillation
from transduce.storage.atomic import atomic_file, json_bytes
from transduce.storage.filesystem import temporary_storage_errors
from transduce.storage.layout import MANIFEST
from transduce.storage.manifest import sha256
from transduce.text.corpus import CorpusFiles, Languages, Pair, read_lines, read_pairs

SOURCE, TARGET, REMOVED, REPORT = "source.txt", "target.txt", "removed.jsonl", "report.json"
Progress = Callable[[str, int], None]


def clean_corpus(
    corpora: Sequence[CorpusFiles], config: CleaningConfig, languages: Languages, folder: Path, progress: Progress
) -> Table:
    """Clean corpora into two files of lines, with a file of what was removed and a report, which is returned."""
    unused: Counter[str] = Counter()

    def skip(_: Pair, reason: str) -> None:
        unused[reason] += 1

    pairs = chain.from_iterable(read_pairs(corpus, languages, skip) for corpus in corpora)
    with temporary_storage_errors(), tempfile.TemporaryDirectory() as temporary:
        outcome = Cleaner(config, Path(temporary), languages, progress).clean(pairs)
        if not outcome.size:
            raise DataError(f"{corpora[0].name}: has no pairs to clean")
        report = CleaningReport()
        with (
            atomic_file(folder / SOURCE) as source_path,
            atomic_file(folder / TARGET) as target_path,
            atomic_file(folder / REMOVED) as removed_path,
            source_path.open("w", encoding="utf-8", newline="\n") as sources,
            target_path.open("w", encoding="utf-8", newline="\n") as targets,
            removed_path.open("w", encoding="utf-8", newline="\n") as removed,
        ):
            for pair in outcome.pairs():
                report.add(pair)
                if isinstance(pair, CleanPair):
                    sources.write(f"{_line(pair.source)}\n")
                    targets.write(f"{_line(pair.target)}\n")
                else:
                    removed.write(json.dumps(pair.to_json(), ensure_ascii=False) + "\n")
        table = report.to_table(outcome.size, outcome.notes)
    if unused:
        table["notes"] += [f"{count:,} units of the files are not pairs ({reason})" for reason, count in unused.items()]
    if not table["kept"]:
        reason = REASONS[max(table["removed"], key=table["removed"].__getitem__)]
        raise DataError(
            f"{corpora[0].name}: no pair is left after cleaning, most were removed because {reason}; "
            f"{folder / REMOVED} has each pair with its reason"
        )
    with atomic_file(folder / REPORT) as path:
        path.write_bytes(json_bytes(table))
    return table


def _line(text: str) -> str:
    """Return a text of a document's unit as one line."""
    return " ".join(text.split("\n")) if "\n" in text else text


def _translate(translator: Translator, texts: Sequence[str], options: Table, **more: Any) -> list[Any]:
    found: list[Any] = translator.translate(list(texts), split=False, **options, **more)
    return found


def identify(run: str, translator: Translator) -> Table:
    """Return what identifies a model with the languages that were selected."""
    languages = [translator.languages.source, translator.languages.target]
    return {"sha256": sha256(find_model(Path(run)) / MANIFEST), "languages": languages}


def back_translate(
    translator: Translator,
    files: Sequence[str],
    folder: Path,
    options: Table,
    tag: str,
    progress: Progress,
    model: Table | None = None,
) -> int:
    """Translate target text into the source language; write the pairs, each source after the tag.

    `model` identifies the model, where the folder's name does not: a rerun resumes with the same one only.
    """
    lead = f"{tag} " if tag else ""

    def translate(block: Block) -> Block:
        texts = [target for _, target in block]
        return [
            (f"{lead}{source}", target)
            for source, target in zip(_translate(translator, texts, options), texts, strict=True)
            if source.strip()
        ]

    lines = (("", line.strip()) for line in non_empty(chain.from_iterable(read_lines(name) for name in files)))
    job = {"model": model, "options": options, "tag": tag}
    return _write(folder, lines, translate, lambda count: progress("back-translating", count), job)


def distil(
    translator: Translator,
    pairs: Iterator[tuple[str, str]],
    folder: Path,
    config: Distillation,
    progress: Progress,
    model: Table | None = None,
) -> int:
    """Translate the sources of pairs; write each source with the translations to learn from.

    `model` identifies the model, as in `back_translate`.
    """
    options: Table = {"beam_size": config.beam_size} if config.beam_size > 1 else {"method": "greedy"}
    chrf = METRICS["chrf"]

    def nearness(text: str, reference: str) -> float:
        return chrf.score([text], [[reference]]).value

    def translate(block: Block) -> Block:
        sources = [source for source, _ in block]
        if config.method == "best":
            best = _translate(translator, sources, options)
            return [(source, text) for source, text in zip(sources, best, strict=True) if text.strip()]
        found: list[tuple[str, str]] = []
        several = _translate(translator, sources, options, n_best=config.n_best)
        for (source, reference), translations in zip(block, several, strict=True):
            texts = [text for text in dict.fromkeys(one.text for one in translations) if text.strip()]
            if config.method == "interpolated" and texts:
                texts = [max(texts, key=lambda text: nearness(text, reference))]
            found += [(source, text) for text in texts]
        return found

    job = {"model": model, "options": config.to_table()}
    return _write(folder, pairs, translate, lambda count: progress("distilling", count), job)


def augment(pairs: CorpusFiles, folder: Path, config: AugmentationConfig) -> int:
    """Write every pair of a corpus with its variants; return how many pairs there are then."""

    def read() -> Iterator[tuple[str, str]]:
        return ((pair.source, pair.target) for pair in read_pairs(pairs))

    linker = Linker.learn(read()) if config.tags or config.terms else None
    count = 0
    with (
        atomic_file(folder / SOURCE) as source_path,
        atomic_file(folder / TARGET) as target_path,
        source_path.open("w", encoding="utf-8", newline="\n") as sources,
        target_path.open("w", encoding="utf-8", newline="\n") as targets,
    ):
        for source, target in augmented(read(), linker, config):
            sources.write(f"{_line(source)}\n")
            targets.write(f"{_line(target)}\n")
            count += 1
    return count


def _write(
    folder: Path,
    pairs: Iterable[tuple[str, str]],
    translate: Callable[[Block], Block],
    progress: Callable[[int], None],
    job: Table,
) -> int:
    """Write the pairs that are made of others."""
    result = folder / "pairs.tsv"
    both = folder / SOURCE, folder / TARGET
    folder.mkdir(parents=True, exist_ok=True)
    counted = _Counted(pairs)
    written = write_blocks(result, counted, translate, progress, job)
    if not written:
        discard_blocks(result)
        if not counted.count:
            raise DataError(f"{folder}: the input has no text to translate; give lines that are not empty")
        raise DataError(
            f"{folder}: the model translates all of {counted.count:,} lines as empty; train it further, or choose "
            "another model"
        )
    finish_blocks(result, both)
    return written


class _Counted:
    """Counts what is iterated over."""

    def __init__(self, items: Iterable[tuple[str, str]]) -> None:
        self._items, self.count = items, 0

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for item in self._items:
            self.count += 1
            yield item

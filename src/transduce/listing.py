"""The shortlist of a run: counted over its own training data or other files, and measured on its validation set."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from transduce.checkpoint import load_model
from transduce.data.lexicon import Sample, learn_lexicon
from transduce.data.shortlisting import FREQUENT, PER_TOKEN, Coverage, Rows, build_shortlist, measure_coverage, tokenise
from transduce.data.store import Prepared, load_prepared
from transduce.errors import DataError, MissingInput
from transduce.text.any_tokenizer import AnyTokenizer
from transduce.text.corpus import CorpusFiles, read_pairs
from transduce.text.shortlist import Shortlist
from transduce.training.run_folder import DATA

NAME = "shortlist.safetensors"


@dataclass(frozen=True)
class Listing:
    """A shortlist that was made, and what is to be said about it."""

    path: Path
    shortlist: Shortlist
    source_size: int
    target_size: int
    sample: Sample
    coverage: Coverage | None
    """None where there is nothing to measure it on."""

    def lines(self) -> Iterator[str]:
        """Say what was counted, how long lists are, and how much they cover."""
        sample, always = self.sample, len(self.shortlist.always)
        part = "" if sample.taken == sample.all else f" of {sample.all:,}, evenly spread"
        yield f"counted      {sample.taken:,} pairs{part}"
        if sample.too_long:
            yield f"left out     {sample.too_long:,} pairs that are too long"
        if sample.empty:
            yield f"empty        {sample.empty:,} pairs have nothing on one side"
        yield f"candidates   {len(self.shortlist.tokens):,} for {self.source_size:,} source tokens, {always:,} for all"
        if self.coverage is None:
            yield "covered      not measured: there is no validation set"
            return
        mean, size = self.coverage.mean_candidates, self.target_size
        yield f"a sentence   {mean:,.0f} on average, {100 * mean / size:.1f} % of {size:,} tokens"
        yield (
            f"covered      {100 * self.coverage.token_share:.2f} % of the reference tokens, "
            f"{100 * self.coverage.pair_share:.1f} % of whole references ({self.coverage.pairs:,} pairs)"
        )


def make_shortlist(
    run: Path | str,
    output: Path | str | None = None,
    per_token: int = PER_TOKEN,
    frequent: int = FREQUENT,
    corpus: CorpusFiles | None = None,
    progress: Callable[[str, int], None] = lambda stage, count: None,
) -> Listing:
    """Count translations over a run's training data, or another corpus, and write the shortlist.

    It is measured on the run's validation set. A model folder has none; then a part of the other corpus is held out.
    """
    run = Path(run)
    contents = load_model(run)
    sizes = contents.transducer.sizes
    tokenizers = contents.source_tokenizer, contents.target_tokenizer
    prepared = _prepared(run, tokenizers)
    with _pairs(run, prepared, corpus, tokenizers) as (used, held):
        sample = Sample.of(*used)
        if sample.empty + sample.too_long >= sample.all:
            raise DataError(
                f"{run if corpus is None else corpus.name}: of {sample.all:,} pairs none says what translates what: "
                f"{sample.empty:,} have nothing on one side, {sample.too_long:,} are too long; name other pairs with "
                "--source and --target"
            )
        lexicon = learn_lexicon(*used, *sizes, sample=sample, progress=progress)
        shortlist = build_shortlist(lexicon, *tokenizers, per_token, frequent)
        coverage = measure_coverage(shortlist, *held) if held is not None and len(held.sources) else None
    path = run / NAME if output is None else Path(output)
    shortlist.save(path, *tokenizers)
    return Listing(path, shortlist, lexicon.source_size, lexicon.target_size, lexicon.sample, coverage)


def _prepared(run: Path, tokenizers: tuple[AnyTokenizer, AnyTokenizer]) -> Prepared | None:
    """Return a run's data; a linked folder may have been prepared again since then, and its tokens be others."""
    if not (run / DATA).exists():
        return None
    found = load_prepared(run / DATA)
    theirs = found.source_tokenizer, found.target_tokenizer
    if [one.to_json() for one in tokenizers] != [one.to_json() for one in theirs]:
        raise DataError(
            f"{run / DATA}: was prepared with other tokenizers than the model's; give the model's own folder, "
            "with --source and --target"
        )
    if found.data.is_text:
        raise DataError(f"{run / DATA}: is plain text, which has no pairs to count; give some: --source and --target")
    return found


@contextlib.contextmanager
def _pairs(
    run: Path, prepared: Prepared | None, corpus: CorpusFiles | None, tokenizers: tuple[AnyTokenizer, AnyTokenizer]
) -> Iterator[tuple[Rows, Rows | None]]:
    """Give the pairs to count, and those to measure on."""
    validation = None if prepared is None else prepared.validation
    held = None if validation is None else Rows(*validation.pairs)
    if corpus is not None:
        with tempfile.TemporaryDirectory() as folder:
            used, kept = tokenise(read_pairs(corpus), *tokenizers, Path(folder), hold_out=held is None)
            yield used, held or kept
    elif prepared is not None:
        yield Rows(*prepared.train.pairs), held
    else:
        raise MissingInput(f"{run}: has no training data ({DATA}/); name the pairs to count: --source and --target")

"""Texts of `bench/serve.py`: consecutive sentences of a corpus, joined until their lengths are log-uniform.

Sentences of Multi30k have 13 words, with little spread. Requests of a server do not: joined, a source has 5 to 100
tokens, and each factor of two is as frequent as any other. The model is trained on such texts, too, so that it ends its
translations of long ones. Where Multi30k is missing, the generated corpus of the studies takes its place.
"""

from __future__ import annotations

import gzip
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transduce.config import Table
from transduce.experiments.study_corpus import StudyCorpus, find_corpus, generate_corpus, write_splits
from transduce.rng import generator
from transduce.text.tokenizer import AnyTokenizer

SHORTEST, LONGEST = 5, 100
"""Tokens of a source."""
GENERATED = {"train": 29_000, "held_out": 1_000}
"""Sentences of the generated corpus: as many as Multi30k has."""
LINES = {"train": 60_000, "validation": 500}
"""Joined texts to train on and to validate with."""
STRATA = 16
"""Consecutive requests that have one length of each of as many equally frequent ranges: every part of a measurement
then has nearly the same work, and every request still a log-uniform length."""
TRIED = 64
"""Places of the corpus from which a request of a drawn length is tried to begin."""

Pairs = list[tuple[str, str]]


def corpus(multi30k: Path, work: Path) -> StudyCorpus:
    """Multi30k, or the generated corpus where it is missing."""
    if multi30k.is_dir():
        return find_corpus(multi30k)
    print(f"{multi30k}: not found; the generated corpus is used instead", flush=True)
    return generate_corpus(work, GENERATED["train"], GENERATED["held_out"])


def joined_corpus(texts: StudyCorpus, work: Path) -> StudyCorpus:
    """Write joined texts to train on, unless they are there."""
    splits = {split: _join(read_pairs(texts, split), count, split) for split, count in LINES.items()}
    return write_splits(work / f"joined-{texts.name}", splits, texts.languages, texts.name)


def read_pairs(texts: StudyCorpus, split: str) -> Pairs:
    """Read the sentence pairs of a split."""
    source, target = (_read_lines(path) for path in texts.files[split])
    return list(zip(source, target, strict=True))


def requests(texts: StudyCorpus, tokenizer: AnyTokenizer, count: int) -> list[str]:
    """Return held-out sources with log-uniform lengths in tokens; the same for the same corpus and tokenizer."""
    sentences = [source for split in ("validation", "test") for source, _ in read_pairs(texts, split)]
    lengths = np.array([len(tokenizer.encode(sentence)) for sentence in sentences])
    random = generator("serve", "requests")
    shares = [
        (stratum + random.random()) / STRATA for _ in range(count // STRATA) for stratum in random.permutation(STRATA)
    ]
    return [_nearest(sentences, lengths, _log_uniform(share), random) for share in shares]


def length_table(sources: Sequence[str], tokenizer: AnyTokenizer) -> Table:
    """Quartiles of the lengths in tokens."""
    lengths = [len(tokenizer.encode(source)) for source in sources]
    return {f"{share} %": int(np.percentile(lengths, share)) for share in (0, 25, 50, 75, 100)}


def _read_lines(path: Path) -> list[str]:
    opened: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="\n") as lines:
        return [line.rstrip("\n") for line in lines]


def _log_uniform(share: float) -> int:
    """The length at a share of the log-uniform distribution."""
    low, high = math.log(SHORTEST - 0.5), math.log(LONGEST + 0.5)
    return round(math.exp(low + share * (high - low)))


def _join(pairs: Pairs, count: int, name: str) -> Pairs:
    """Join consecutive pairs, in words and punctuation marks, which are nearly tokens.

    All pairs are used equally often, but for the shortest texts: there are few short sentences, so these are drawn.
    """
    lengths = [len(re.findall(r"\w+|[^\w\s]", source)) for source, _ in pairs]
    by_length = sorted(range(len(pairs)), key=lengths.__getitem__)
    ordered = [lengths[place] for place in by_length]
    typical = ordered[len(ordered) // 4]
    random, place, found = generator("serve", "corpus", name), 0, []
    for length in map(_log_uniform, random.random(count)):
        chosen: list[int] = []
        if length <= typical:
            first = bisect_left(ordered, length)
            after = max(bisect_left(ordered, length + 1), first + 1)
            chosen.append(by_length[int(random.integers(first, after))])
        while sum(lengths[one] for one in chosen) < min(length, LONGEST - typical // 2):
            chosen.append(place % len(pairs))
            place += 1
        found.append((" ".join(pairs[one][0] for one in chosen), " ".join(pairs[one][1] for one in chosen)))
    return found


def _nearest(
    sentences: Sequence[str], lengths: np.ndarray[Any, np.dtype[np.int64]], length: int, random: np.random.Generator
) -> str:
    """Consecutive sentences whose length is nearest to a drawn one, of several places."""
    if length < np.median(lengths):
        fitting = np.flatnonzero(np.abs(lengths - length) == np.abs(lengths - length).min())
        return sentences[int(random.choice(fitting))]
    best, text = LONGEST, ""
    for first in random.integers(0, len(sentences), TRIED):
        after, total = int(first), 0
        while after < len(sentences) and total < length:
            total += int(lengths[after])
            after += 1
        if abs(total - length) < best and total <= LONGEST:
            best, text = abs(total - length), " ".join(sentences[first:after])
        if best == 0:
            break
    return text

"""Extend a trained tokenizer by new pieces: old tokens keep their ids, new ones follow.

- `bpe`: merges learned on the new text follow all old merges and make only new pieces. A text is segmented as before;
  then some neighbouring pieces are merged: splitting every new piece gives the old segmentation.
- `word` and `character`: words or characters that were unknown, or encoded as bytes, get their own tokens.

In all three, a text without new pieces keeps its tokens exactly. `unigram` and `wordpiece` cannot be extended like this
(they would segment old text differently), `byte` is complete, and imported tokenizers are not changed.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import tokenizers

from transduce.errors import SettingsError
from transduce.text.lines import normalise
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.special import tag_piece
from transduce.text.tokenizer.tokenizer import Tokenizer

Pair = tuple[str, str]


def extend(tokenizer: AnyTokenizer, texts: Iterable[str], most: int, min_frequency: int) -> Tokenizer:
    """Return the tokenizer with up to `most` new pieces that occur at least `min_frequency` times in the texts."""
    if not isinstance(tokenizer, Tokenizer) or tokenizer.kind not in _LEARN:
        raise SettingsError(
            f"pieces cannot be added to a tokenizer of kind {tokenizer.kind} without segmenting old text differently; "
            f"leave out --extend-vocabulary (kinds that can be extended: {', '.join(_LEARN)})"
        )
    words: Counter[str] = Counter()
    for text in texts:
        words.update(normalise(text).split())
    content = _whole(tokenizer)
    library = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    _LEARN[tokenizer.kind](content["model"], library, words, most, min_frequency)
    return Tokenizer.from_json(json.dumps(content), "the extended tokenizer")


def with_characters(tokenizer: Tokenizer, characters: Iterable[str]) -> Tokenizer:
    """Return a character tokenizer that knows all of these characters; the same one if it does already."""
    known = set(tokenizer.vocabulary)
    missing = [character for character in characters if character not in known]
    return extend(tokenizer, missing, len(missing), 1) if missing else tokenizer


def add_language_tags(tokenizer: AnyTokenizer, languages: Sequence[str]) -> Tokenizer:
    """Return the tokenizer with tags for further languages."""
    if not isinstance(tokenizer, Tokenizer):
        raise SettingsError("languages cannot be added to an imported tokenizer; train a new model")
    content = _whole(tokenizer)
    vocabulary = content["model"]["vocab"]
    for number, piece in enumerate(map(tag_piece, languages), start=tokenizer.size):
        if isinstance(vocabulary, list):  # unigram: pieces with scores
            vocabulary.append([piece, 0.0])
        else:
            vocabulary[piece] = number
        template = content["added_tokens"][0]
        content["added_tokens"].append({**template, "id": number, "content": piece})
    made = Tokenizer.from_json(json.dumps(content), "the tokenizer with new tags")
    if {made.tags[language] for language in languages} & set(made.encode(" ".join(map(tag_piece, languages)))):
        raise SettingsError(
            "this tokenizer is of an older version and would encode tags in plain text; train a new one"
        )
    return made


def _whole(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the tokenizer's file with all added tokens in the model's vocabulary, so that new ids follow them."""
    content: dict[str, Any] = json.loads(tokenizer.to_json())
    vocabulary = content["model"]["vocab"]
    known = {piece for piece, _ in vocabulary} if isinstance(vocabulary, list) else vocabulary.keys()
    for token in sorted(content["added_tokens"], key=lambda token: int(token["id"])):
        if token["content"] in known:
            continue
        if isinstance(vocabulary, list):
            vocabulary.append([token["content"], 0.0])
        else:
            vocabulary[token["content"]] = token["id"]
    return content


def made_of(old: AnyTokenizer, new: AnyTokenizer) -> list[list[int]]:
    """Return the tokens of `old` that each new token of `new` replaces.

    Raises ValueError unless the vocabulary of `new` starts with that of `old`.
    """
    before, after = old.vocabulary, new.vocabulary
    if after[: len(before)] != before or old.kind != new.kind:
        raise ValueError("its first tokens differ")
    tags = {number: language for language, number in new.tags.items()}
    joined: dict[str, Pair] = {}
    if new.kind == "bpe":
        joined = {left + right: (left, right) for left, right in json.loads(new.to_json())["model"]["merges"]}
    places = {piece: token for token, piece in enumerate(before)}

    def parts(piece: str) -> list[int]:
        if piece in places:
            return [places[piece]]
        return [token for part in joined[piece] for token in parts(part)]

    found = []
    for token in range(len(before), len(after)):
        if token in tags:
            found.append(list(old.tags.values()) or old.encode(tags[token]))
        else:
            found.append(parts(after[token]) if new.kind == "bpe" else old.encode(after[token]))
    return found


def _learn_merges(
    model: dict[str, Any], library: tokenizers.Tokenizer, words: Counter[str], most: int, min_frequency: int
) -> None:
    """Continue byte-pair encoding: repeatedly merge the most frequent pair of neighbouring pieces."""
    pieces: Counter[tuple[str, ...]] = Counter()
    for word, count in words.items():
        for part, _ in library.pre_tokenizer.pre_tokenize_str(library.normalizer.normalize_str(word)):
            pieces[tuple(token.value for token in library.model.tokenize(part))] += count
    table = _Pairs(pieces)
    while most and (best := table.most_frequent(min_frequency)) is not None:
        joined = "".join(best)
        if joined in model["vocab"]:  # an old merge might apply to it and change the segmentation of old text
            table.forget(best)
            continue
        model["vocab"][joined] = len(model["vocab"])
        model["merges"].append(list(best))
        table.join(best)
        most -= 1


class _Pairs:
    """Words as pieces, and the frequency of each pair of neighbouring pieces."""

    def __init__(self, words: Counter[tuple[str, ...]]) -> None:
        self._words = [list(word) for word in words]
        self._counts = list(words.values())
        self._pairs: Counter[Pair] = Counter()
        self._places: defaultdict[Pair, set[int]] = defaultdict(set)
        for place in range(len(self._words)):
            self._add(place, 1)
        self._heap = [(-count, pair) for pair, count in self._pairs.items()]
        heapq.heapify(self._heap)
        self._forgotten: set[Pair] = set()

    def _add(self, place: int, sign: int) -> set[Pair]:
        """Add the pairs of a word to the counts (sign 1) or remove them (sign -1)."""
        found = set(pairwise(self._words[place]))
        for pair in pairwise(self._words[place]):
            self._pairs[pair] += sign * self._counts[place]
        for pair in found:
            (self._places[pair].add if sign > 0 else self._places[pair].discard)(place)
        return found

    def most_frequent(self, least: int) -> Pair | None:
        """The most frequent pair, ties in alphabetical order; None if it occurs fewer than `least` times."""
        while self._heap:
            count, pair = self._heap[0]
            now = 0 if pair in self._forgotten else self._pairs[pair]
            if now == -count:
                return pair if now >= max(1, least) else None
            heapq.heappop(self._heap)
            if now:
                heapq.heappush(self._heap, (-now, pair))
        return None

    def forget(self, pair: Pair) -> None:
        """Never return this pair again."""
        self._forgotten.add(pair)

    def join(self, pair: Pair) -> None:
        """Merge every occurrence of a pair."""
        changed: set[Pair] = set()
        for place in sorted(self._places[pair]):
            changed |= self._add(place, -1)
            self._words[place] = _joined(self._words[place], pair)
            changed |= self._add(place, 1)
        for other in changed:
            if self._pairs[other] > 0:
                heapq.heappush(self._heap, (-self._pairs[other], other))


def _joined(pieces: list[str], pair: Pair) -> list[str]:
    """Merge each occurrence of a pair, from the left."""
    made: list[str] = []
    for piece in pieces:
        if made and (made[-1], piece) == pair:
            made[-1] += piece
        else:
            made.append(piece)
    return made


def _learn_pieces(
    split: Callable[[str], Iterable[str]],
    model: dict[str, Any],
    library: tokenizers.Tokenizer,
    words: Counter[str],
    most: int,
    min_frequency: int,
) -> None:
    """Add the most frequent new pieces to the vocabulary; `split` cuts a normalised word into pieces."""
    vocabulary: dict[str, int] = model["vocab"]
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for piece in split(library.normalizer.normalize_str(word)):
            counts[piece] += count
    new = [(piece, count) for piece, count in counts.items() if piece not in vocabulary and count >= min_frequency]
    for piece, _ in sorted(new, key=lambda item: (-item[1], item[0]))[:most]:
        vocabulary[piece] = len(vocabulary)


_LEARN: dict[str, Callable[[dict[str, Any], tokenizers.Tokenizer, Counter[str], int, int], None]] = {
    "bpe": _learn_merges,
    "word": partial(_learn_pieces, lambda word: [word]),
    "character": partial(_learn_pieces, list),
    "feature": partial(_learn_pieces, list),
}

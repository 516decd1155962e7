"""Train tokenizers on a stream of text: only counts are held in memory, never the corpus."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers

from transduce.errors import DataError, SettingsError, suggestion
from transduce.text.lines import normalise
from transduce.text.tokenizer.feature import FeatureCounts, Features, split_pattern
from transduce.text.tokenizer.safety import ESCAPED_WORD, SPACES, SPELLED_WORD, WORDS
from transduce.text.tokenizer.special import (
    KINDS,
    MASK,
    UNKNOWN,
    byte_fallbacks,
    byte_symbols,
    min_vocab_size,
    sentinel_pieces,
    special_pieces,
    tag_piece,
)
from transduce.text.tokenizer.tokenizer import Tokenizer, TokenizerConfig


def train_tokenizers(
    config: TokenizerConfig, texts: Callable[[], Iterator[tuple[str, str]]], languages: Sequence[str] = ()
) -> tuple[Tokenizer, Tokenizer]:
    """Return the tokenizers of source and target: the same one twice if they are joint.

    `texts` starts a new pass over the pairs each time it is called; two tokenizers need two passes. The source
    tokenizer gets a tag for each of the languages.
    """
    source_kind, target_kind = config.kinds
    if config.joint:
        joint = train_tokenizer(source_kind, (side for pair in texts() for side in pair), config, languages)
        return joint, joint
    source = train_tokenizer(source_kind, (source for source, _ in texts()), config, languages)
    return source, train_tokenizer(target_kind, (target for _, target in texts()), config)


def train_encoder_tokenizer(config: TokenizerConfig, texts: Iterable[str]) -> Tokenizer:
    """Train the tokenizer of a text encoder, whose last token is the mask token."""
    kind, room = config.kind, config.vocab_size - 1
    library = train_tokenizer(kind, texts, config.but(vocab_size=max(room, min_vocab_size(kind)))).to_json()
    with_mask = tokenizers.Tokenizer.from_str(library)
    with_mask.add_special_tokens([AddedToken(MASK, normalized=False, special=True)])
    return Tokenizer(with_mask)


def train_tokenizer(
    kind: str, texts: Iterable[str], config: TokenizerConfig, languages: Sequence[str] = ()
) -> Tokenizer:
    """Train a tokenizer of this kind; vocabulary size, minimum frequency and case are the config's.

    It has a tag for each of the languages, after the other special tokens.
    """
    if kind not in KINDS:
        raise SettingsError(f"unknown tokenizer kind '{kind}'{suggestion(kind, KINDS)}")
    special, reserved = [*special_pieces(kind), *map(tag_piece, languages)], sentinel_pieces(config.sentinels or 0)
    if languages and len(languages) > config.vocab_size - min_vocab_size(kind) - len(reserved):
        raise SettingsError(
            f"tokenizer.vocab_size = {config.vocab_size:,} is too small for the tags of {len(languages)} languages; "
            "increase it"
        )
    smaller = config.but(vocab_size=config.vocab_size - len(reserved), sentinels=None) if kind != "byte" else config
    library = _TRAINERS[kind](_normalised(texts), smaller, special)
    if library.get_vocab_size() == len(special):
        raise DataError(
            f"no word occurs {config.min_frequency} times, so the vocabulary is empty; "
            "use more text or set tokenizer.min_frequency=1"
        )
    library.add_special_tokens([AddedToken(piece, normalized=False, special=True) for piece in reserved])
    return Tokenizer(library)


def _normalised(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts in NFC; raise an error at the end if all were empty."""
    empty = True
    for text in texts:
        empty = empty and not text.strip()
        yield normalise(text)
    if empty:
        raise DataError("no text to train a tokenizer on: every line is empty; check the corpus")


def _normalizer(config: TokenizerConfig, *more: object) -> normalizers.Normalizer:
    """NFC, also in the file for those who load it with the library; then what the kind needs."""
    return normalizers.Sequence([normalizers.NFC(), *([normalizers.Lowercase()] if config.lowercase else []), *more])


def _byte_level(model: models.Model, config: TokenizerConfig) -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(model)
    library.normalizer = _normalizer(config, normalizers.Prepend(" "))
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    library.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return library


def _train_bpe(texts: Iterator[str], config: TokenizerConfig, special: list[str]) -> tokenizers.Tokenizer:
    library = _byte_level(models.BPE(), config)
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        special_tokens=special,
        initial_alphabet=byte_symbols(),
        show_progress=False,
    )
    library.train_from_iterator(texts, trainer)
    return library


def _train_unigram(texts: Iterator[str], config: TokenizerConfig, special: list[str]) -> tokenizers.Tokenizer:
    library = _byte_level(models.Unigram(), config)
    trainer = trainers.UnigramTrainer(
        vocab_size=config.vocab_size,
        special_tokens=special,
        initial_alphabet=byte_symbols(),
        show_progress=False,
    )
    library.train_from_iterator(texts, trainer)
    library.model = _within(json.loads(library.to_str())["model"]["vocab"], config.vocab_size, len(special))
    return library


def _within(scores: list[tuple[str, float]], vocab_size: int, special: int) -> models.Unigram:
    """Return the model with its best pieces and all bytes (the library may return more than requested).

    Scores are rounded to six decimals: the library reads longer ones with an error in the last digit, so that a
    tokenizer loaded and saved again would not be the same file.
    """
    room = vocab_size - special - len(byte_symbols())
    longer = [piece for piece, _ in scores[special:] if len(piece) > 1]  # the best come first
    dropped = set(longer[room:])
    return models.Unigram([(piece, round(score, 6)) for piece, score in scores if piece not in dropped])


def _train_wordpiece(texts: Iterator[str], config: TokenizerConfig, special: list[str]) -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    library.normalizer = _normalizer(
        config, normalizers.BertNormalizer(handle_chinese_chars=True, strip_accents=False, lowercase=False)
    )
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    trainer = trainers.WordPieceTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        special_tokens=special,
        limit_alphabet=max(1, (config.vocab_size - len(special)) // 2),  # each may also be a "##" piece
        continuing_subword_prefix="##",
        show_progress=False,
    )
    library.train_from_iterator(texts, trainer)
    return library


def _train_word(texts: Iterator[str], config: TokenizerConfig, special: list[str]) -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    library.normalizer = _normalizer(config, normalizers.Replace(Regex(SPELLED_WORD), "\\"))
    library.pre_tokenizer = pre_tokenizers.Split(Regex(SPACES), behavior="removed")
    joined = decoders.WordPiece(prefix=" ", cleanup=False)  # a space before all but the first word
    library.decoder = decoders.Sequence([decoders.Replace(Regex(ESCAPED_WORD), ""), joined])
    trainer = trainers.WordLevelTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        special_tokens=special,
        show_progress=False,
    )
    library.train_from_iterator(texts, trainer)
    return library


def _train_character(texts: Iterator[str], config: TokenizerConfig, special: list[str]) -> tokenizers.Tokenizer:
    normalizer = _normalizer(config)
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(normalizer.normalize_str(text) if config.lowercase else text)
    known = sorted(counts, key=lambda character: (-counts[character], character))
    pieces = special + byte_fallbacks()
    pieces += known[: max(0, config.vocab_size - len(pieces))]
    library = _without_merges(pieces, special, byte_fallback=True)
    library.normalizer = normalizer
    library.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return library


def _train_feature(texts: Iterator[str], config: TokenizerConfig, special: list[str]) -> tokenizers.Tokenizer:
    """Characters, and the features of words as whole pieces; text without features gets characters alone."""
    normalizer, counts, features = _normalizer(config), Counter[str](), FeatureCounts()
    for text in texts:
        line = normalizer.normalize_str(text) if config.lowercase else text
        counts.update(line)
        features.add(line)
    found = features.result() or Features(" ", ())
    known = sorted(counts, key=lambda character: (-counts[character], character))
    pieces = special + byte_fallbacks()
    pieces += [piece for piece in (*found.pieces, *known) if piece not in pieces][: config.vocab_size - len(pieces)]
    library = _without_merges(list(dict.fromkeys(pieces)), special, byte_fallback=True, whole=True)
    library.normalizer = normalizer
    library.pre_tokenizer = pre_tokenizers.Split(Regex(split_pattern(found.separator)), behavior="isolated")
    library.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return library


def _train_byte(texts: Iterator[str], config: TokenizerConfig, special: list[str]) -> tokenizers.Tokenizer:
    """Nothing is trained; the texts are read only until one is not empty."""
    next(text for text in texts if text.strip())
    library = _without_merges(special + byte_symbols(), special, byte_fallback=False)
    library.normalizer = _normalizer(config)
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.decoder = decoders.ByteLevel()
    return library


def _without_merges(
    pieces: list[str], special: list[str], byte_fallback: bool, whole: bool = False
) -> tokenizers.Tokenizer:
    """BPE without merges: every symbol is its own token, with `whole` also a word that is one of the pieces."""
    vocabulary = {piece: token for token, piece in enumerate(pieces)}
    model = models.BPE(vocab=vocabulary, merges=[], byte_fallback=byte_fallback, ignore_merges=whole)
    library = tokenizers.Tokenizer(model)
    library.add_special_tokens([AddedToken(piece, normalized=False, special=True) for piece in special])
    return library


_TRAINERS: dict[str, Callable[[Iterator[str], TokenizerConfig, list[str]], tokenizers.Tokenizer]] = {
    "bpe": _train_bpe,
    "unigram": _train_unigram,
    "wordpiece": _train_wordpiece,
    "word": _train_word,
    "character": _train_character,
    "feature": _train_feature,
    "byte": _train_byte,
}

"""Imported tokenizers of several families, built on small SentencePiece models."""

from __future__ import annotations

import functools

import sentencepiece

from tests.unit.sentencepiece_models import trained
from transduce.text.tokenizer.imported import ImportedConfig, ImportedTokenizer
from transduce.text.tokenizer.library_codec import RenumberedCodec

TAGS = (">>deu<<", ">>fra<<")


def pieces(content: bytes) -> list[str]:
    theirs = sentencepiece.SentencePieceProcessor(model_proto=content)
    return [theirs.id_to_piece(number) for number in range(theirs.get_piece_size())]


@functools.cache
def marian(side: str = "source") -> ImportedTokenizer:
    """One of two SentencePiece models under one table, with languages to translate into before the source."""
    models = {"source": trained(model_type="unigram"), "target": trained(model_type="unigram", vocab_size=300)}
    usual = [piece for content in models.values() for piece in pieces(content)[3:]]
    named = dict.fromkeys(["</s>", "<unk>", *TAGS, *usual, "<pad>"])
    table = {piece: token for token, piece in enumerate(named)}
    codec = RenumberedCodec(models[side], table, trim=True)
    config = ImportedConfig(
        family="marian",
        size=len(table),
        pad=table["<pad>"],
        start=table["<pad>"],
        end=0,
        unknown=1,
        suffix=(0,),
        skipped=(0, 1, table["<pad>"]),
        tags={tag: table[tag] for tag in TAGS},
        reads_tags=side == "source",
    )
    return ImportedTokenizer(config, codec)


@functools.cache
def m2m() -> ImportedTokenizer:
    """One SentencePiece model and table for both sides, with languages behind it and two rows without a piece."""
    content = trained(model_type="bpe")
    table = {piece: token for token, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces(content)[3:]])}
    tags = {tag: len(table) + number for number, tag in enumerate(("__de__", "__en__"))}
    config = ImportedConfig(
        family="m2m_100",
        size=len(table) + 4,
        pad=1,
        start=0,
        end=2,
        unknown=3,
        prefix=(tags["__en__"],),
        suffix=(2,),
        target_prefix=(tags["__de__"],),
        skipped=(0, 1, 2, 3, *tags.values()),
        tags=tags,
    )
    return ImportedTokenizer(config, RenumberedCodec(content, table, tags, trim=True))


@functools.cache
def t5() -> ImportedTokenizer:
    """A SentencePiece model in its own order, with three pieces for what is left out and more rows than pieces."""
    content = trained(model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    known = len(pieces(content))
    extra = {f"<extra_id_{number}>": known + 2 - number for number in range(3)}
    config = ImportedConfig(
        family="t5",
        size=known + 11,
        pad=0,
        start=0,
        end=1,
        unknown=2,
        suffix=(1,),
        skipped=(0, 1, 2, *extra.values()),
        readable=extra,
    )
    return ImportedTokenizer(config, RenumberedCodec(content, None, extra))

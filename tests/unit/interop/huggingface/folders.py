"""Small folders in Hugging Face's layout, one for each family, their vocabularies trained here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.unit.imported_tokenizers import TAGS, pieces
from tests.unit.sentencepiece_models import CORPUS, trained
from transduce.interop.huggingface.tokenizer import M2M100_LANGUAGES

SPELLED = [*CORPUS, "<b>[x]</b> </s>", "don't you 've it 's 'm, . ? !", "isn't (that) so?"]
SCRIPTS = ["deu_Latn", "eng_Latn", "fra_Latn", "zho_Hans", "zho_Hant"]


def put(folder: Path, **files: Any) -> Path:
    """Write files, whose names have `__` for the full stop: tables as JSON, bytes and texts as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        if isinstance(content, dict):
            content = json.dumps(content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def marian(folder: Path) -> Path:
    source, target = trained(model_type="unigram"), trained(model_type="unigram", vocab_size=300)
    usual = [piece for content in (source, target) for piece in pieces(content)[3:]]
    left_out = set(usual[5:9])  # pieces of SentencePiece that the table lacks
    named = [name for name in dict.fromkeys(["</s>", "<unk>", *TAGS, *usual, "<pad>"]) if name not in left_out]
    vocabulary = {piece: token for token, piece in enumerate(named)}
    pad, size = vocabulary["<pad>"], len(vocabulary)
    config = {"model_type": "marian", "vocab_size": size, "eos_token_id": 0, "pad_token_id": pad}
    return put(
        folder,
        config__json={**config, "decoder_start_token_id": pad, "decoder_vocab_size": size},
        tokenizer_config__json={"source_lang": "en", "target_lang": "de"},
        source__spm=source,
        target__spm=target,
        vocab__json=vocabulary,
    )


def marian_apart(folder: Path) -> Path:
    """Marian with a table of tokens for each side."""
    source, target = trained(model_type="unigram"), trained(model_type="bpe", vocab_size=300)
    tables = [
        {piece: token for token, piece in enumerate(["</s>", "<unk>", *pieces(content)[3:], "<pad>"])}
        for content in (source, target)
    ]
    config = {"model_type": "marian", "eos_token_id": 0, "vocab_size": len(tables[0])}
    pad = {"pad_token_id": tables[1]["<pad>"], "decoder_start_token_id": tables[1]["<pad>"]}
    return put(
        folder,
        config__json={**config, **pad, "decoder_vocab_size": len(tables[1])},
        tokenizer_config__json={"separate_vocabs": True},
        source__spm=source,
        target__spm=target,
        vocab__json=tables[0],
        target_vocab__json=tables[1],
    )


def m2m100(folder: Path) -> Path:
    content = trained(model_type="bpe")
    usual = ["<s>", "<pad>", "</s>", "<unk>", *pieces(content)[3:]]
    vocabulary = {piece: token for token, piece in enumerate(usual)}
    special = {"bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    languages = [f"__{code}__" for code in M2M100_LANGUAGES["m2m100"].split()]
    config = {"model_type": "m2m_100", "vocab_size": len(vocabulary) + 108, "decoder_start_token_id": 2}
    return put(
        folder,
        config__json={**config, "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2},
        tokenizer_config__json={"src_lang": None, "tgt_lang": None, **special},
        special_tokens_map__json={**special, "additional_special_tokens": languages},
        sentencepiece__bpe__model=content,
        vocab__json=vocabulary,
    )


def saved(library: tokenizers.Tokenizer) -> dict[str, Any]:
    return dict(json.loads(library.to_str()))


def nllb(folder: Path) -> Path:
    library = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    library.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    library.decoder = decoders.Metaspace(prepend_scheme="always")
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    library.train_from_iterator(SPELLED * 3, trainers.BpeTrainer(vocab_size=400, special_tokens=special))
    library.add_special_tokens([*SCRIPTS, AddedToken("<mask>", lstrip=True, special=True)])
    frame = [(piece, library.token_to_id(piece)) for piece in ("eng_Latn", "</s>")]
    library.post_processor = processors.TemplateProcessing(single="eng_Latn $A </s>", special_tokens=frame)
    named = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    }
    config = {"model_type": "m2m_100", "vocab_size": library.get_vocab_size() + 3, "decoder_start_token_id": 2}
    return put(
        folder,
        config__json={**config, "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2},
        tokenizer_config__json={"tokenizer_class": "PreTrainedTokenizerFast", **named},
        special_tokens_map__json={**named, "additional_special_tokens": SCRIPTS},
        tokenizer__json=saved(library),
    )


def word_pieces() -> list[str]:
    library = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=False)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    lines = [*SPELLED, *(line.lower() for line in SPELLED)] * 2
    library.train_from_iterator(lines, trainers.WordPieceTrainer(vocab_size=600, special_tokens=special))
    table = library.get_vocab()
    return sorted(table, key=table.__getitem__)


def bert(folder: Path, **settings: Any) -> Path:
    words = word_pieces()
    return put(
        folder,
        config__json={"model_type": "bert", "vocab_size": len(words) + 1, "pad_token_id": 0},
        tokenizer_config__json={"tokenizer_class": "BertTokenizer", **settings},
        vocab__txt="\n".join(words) + "\n",
    )


def bert_cased(folder: Path) -> Path:
    return bert(folder, do_lower_case=False, clean_up_tokenization_spaces=True)


def bert_accents(folder: Path) -> Path:
    return bert(folder, do_lower_case=True, strip_accents=False, tokenize_chinese_chars=False)


def byte_pairs() -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    library.train_from_iterator(SPELLED * 3, trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet))
    return library


def gpt2(folder: Path, **settings: Any) -> Path:
    model = saved(byte_pairs())["model"]
    vocabulary = {**model["vocab"], "<|endoftext|>": len(model["vocab"])}
    merges = "\n".join(["#version: 0.2", *(" ".join(merge) for merge in model["merges"])]) + "\n"
    end = vocabulary["<|endoftext|>"]
    return put(
        folder,
        config__json={"model_type": "gpt2", "vocab_size": len(vocabulary), "bos_token_id": end, "eos_token_id": end},
        tokenizer_config__json={"tokenizer_class": "GPT2Tokenizer", **settings},
        vocab__json=vocabulary,
        merges__txt=merges,
    )


def gpt2_space(folder: Path) -> Path:
    return gpt2(folder, add_prefix_space=True, add_bos_token=True)


def smollm(folder: Path) -> Path:
    """As SmolLM2: a decoder built like Llama with bytes for pieces, digits one by one, and tokens that frame turns."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>"]
    library = tokenizers.Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    library.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    library.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special, initial_alphabet=alphabet)
    library.train_from_iterator(SPELLED * 3, trainer)
    named = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>"}
    named["unk_token"] = "<|endoftext|>"
    config = {"model_type": "llama", "vocab_size": library.get_vocab_size(), "bos_token_id": 1, "eos_token_id": 2}
    return put(
        folder,
        config__json={**config, "pad_token_id": 2},
        tokenizer_config__json={"tokenizer_class": "GPT2Tokenizer", "clean_up_tokenization_spaces": True, **named},
        special_tokens_map__json={**named, "additional_special_tokens": special[1:3]},
        tokenizer__json=saved(library),
    )


def t5_library(folder: Path) -> Path:
    """T5 as its folders have it since it has a `tokenizer.json`: a Unigram model, spaces marked, words apart."""
    library = tokenizers.Tokenizer(models.Unigram())
    library.normalizer = normalizers.Sequence([normalizers.NFKC()])
    spaces = pre_tokenizers.Metaspace(prepend_scheme="always")
    library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), spaces])
    library.decoder = decoders.Metaspace(prepend_scheme="always")
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=350, special_tokens=special, unk_token="<unk>")
    library.train_from_iterator(SPELLED * 3, trainer)
    extra = [f"<extra_id_{number}>" for number in range(5)]
    library.add_special_tokens(extra[::-1])
    library.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    named = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    size = library.get_vocab_size() + 13
    return put(
        folder,
        config__json={"model_type": "t5", "vocab_size": size, "decoder_start_token_id": 0, "eos_token_id": 1},
        tokenizer_config__json={"tokenizer_class": "PreTrainedTokenizerFast", "extra_ids": 5, **named},
        special_tokens_map__json={**named, "additional_special_tokens": extra},
        tokenizer__json=saved(library),
    )


def t5(folder: Path) -> Path:
    content = trained(model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    return put(
        folder,
        config__json={"model_type": "t5", "vocab_size": 512, "decoder_start_token_id": 0, "eos_token_id": 1},
        tokenizer_config__json={"extra_ids": 100},
        spiece__model=content,
    )


def llama2(folder: Path) -> Path:
    content = trained(
        model_type="bpe",
        normalization_rule_name="identity",
        byte_fallback=True,
        vocab_size=600,
        remove_extra_whitespaces=False,
    )
    config = {"model_type": "llama", "vocab_size": len(pieces(content)), "bos_token_id": 1, "eos_token_id": 2}
    return put(
        folder,
        config__json={**config, "pad_token_id": -1},
        tokenizer_config__json={"add_bos_token": True, "add_eos_token": False, "tokenizer_class": "LlamaTokenizer"},
        tokenizer__model=content,
    )


FAMILIES: dict[str, Callable[[Path], Path]] = {
    maker.__name__: maker
    for maker in (
        marian,
        marian_apart,
        m2m100,
        nllb,
        bert,
        bert_cased,
        bert_accents,
        gpt2,
        gpt2_space,
        smollm,
        t5_library,
        t5,
        llama2,
    )
}
WITHOUT_TRANSFORMERS = ("t5", "llama2")
"""Folders with a SentencePiece model alone: `transformers` needs the package protobuf to read it."""

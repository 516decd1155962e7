"""Tokenizers of other people's folders beside `transformers`, on the same files: the same tokens, the same texts.

`transformers` is asked not to read special pieces from text (`split_special_tokens`), which we never do.
"""

from __future__ import annotations

import functools
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import transformers

from tests.unit.interop.huggingface.folders import FAMILIES, SCRIPTS, WITHOUT_TRANSFORMERS, put
from tests.unit.sentencepiece_models import texts
from transduce.errors import MissingInput, ModelFolderError, SettingsError
from transduce.interop.huggingface.folder import HuggingFaceFolder
from transduce.interop.huggingface.tokenizer import import_tokenizers
from transduce.models.interface import VocabularySizes
from transduce.text.tokenizer import load_tokenizer
from transduce.text.tokenizer.imported import ImportedTokenizer

BESIDE = [name for name in FAMILIES if name not in WITHOUT_TRANSFORMERS]
MODEL_FILES = {"t5": "spiece.model", "llama2": "tokenizer.model"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A family's folder, made once; nobody writes to it."""
    root = tmp_path_factory.mktemp("hub")
    return functools.cache(lambda name: FAMILIES[name](root / name))


def imported(folder: Path, **languages: str) -> tuple[ImportedTokenizer, ImportedTokenizer]:
    return import_tokenizers(HuggingFaceFolder(folder), **languages)  # type: ignore[arg-type]


def ids(theirs: Any, text: str, target: bool = False) -> list[int]:
    given = {"text_target": text} if target else {"text": text}
    return list(theirs(**given, split_special_tokens=True)["input_ids"])


def plain(name: str) -> list[str]:
    """Texts without what `transformers` reads as special whatever it is told: a Unigram model has it as a piece."""
    return [text for text in texts() if name != "t5_library" or not any(p in text for p in ("</s>", "<unk>", "<pad>"))]


@pytest.mark.parametrize("name", BESIDE)
def test_texts_have_the_same_tokens(name: str, place: Callable[[str], Path]) -> None:
    source, target = imported(place(name))
    theirs = transformers.AutoTokenizer.from_pretrained(place(name))
    for text in plain(name):
        assert source.encode_with_specials(text) == ids(theirs, text), ascii(text)
        if name.startswith("marian"):
            assert target.encode_with_specials(text) == ids(theirs, text, target=True), ascii(text)


@pytest.mark.parametrize("name", BESIDE)
def test_tokens_have_the_same_text(name: str, place: Callable[[str], Path]) -> None:
    _, target = imported(place(name))
    theirs = transformers.AutoTokenizer.from_pretrained(place(name))
    chance = random.Random(11)
    known = sorted(set(target.codec.names) - {target.pad})  # with two tables, theirs is that of sources
    rows = [target.encode_with_specials(text) for text in texts()] + [chance.choices(known, k=7) for _ in range(200)]
    for row in rows:
        assert target.decode(row) == theirs.decode(row, skip_special_tokens=True), row


@pytest.mark.parametrize("name", WITHOUT_TRANSFORMERS)
def test_a_sentencepiece_model_alone_is_used_as_sentencepiece_uses_it(name: str, place: Callable[[str], Path]) -> None:
    tokenizer, same = imported(place(name))
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(place(name) / MODEL_FILES[name]))
    before, behind = ([1], []) if name == "llama2" else ([], [1])
    assert tokenizer is same
    for text in texts():
        tokens = theirs.encode(text)
        assert tokenizer.encode_with_specials(text) == [*before, *tokens, *behind], ascii(text)
        shown = [token for token in tokens if token != tokenizer.unknown]
        assert tokenizer.decode([*before, *tokens, *behind]) == theirs.decode(shown)


@pytest.mark.parametrize("name", BESIDE)
def test_special_pieces_are_those_of_transformers(name: str, place: Callable[[str], Path]) -> None:
    source, target = imported(place(name))
    theirs = transformers.AutoTokenizer.from_pretrained(place(name))
    end = theirs.sep_token_id if name.startswith("bert") else theirs.eos_token_id
    assert source.end == target.end == end
    assert source.pad == (end if theirs.pad_token_id is None else theirs.pad_token_id)
    assert source.mask == theirs.mask_token_id
    if source.unknown is not None:
        assert source.unknown == theirs.unk_token_id
    if name != "marian_apart":
        assert set(source.config.skipped) == {
            token for token, one in theirs.added_tokens_decoder.items() if one.special
        }


def test_decoders_begin_as_the_models_settings_say(place: Callable[[str], Path]) -> None:
    starts = {"marian": "<pad>", "m2m100": "</s>", "nllb": "</s>", "t5": "<pad>", "bert": "[CLS]", "llama2": "<s>"}
    for name, piece in {**starts, "smollm": "<|im_start|>", "gpt2": "<|endoftext|>"}.items():
        _, target = imported(place(name))
        assert target.vocabulary[target.start] == piece, name


@pytest.mark.parametrize("name", FAMILIES)
def test_rows_are_as_many_as_the_model_has(name: str, place: Callable[[str], Path]) -> None:
    config = json.loads((place(name) / "config.json").read_text())
    source, target = imported(place(name))
    assert source.size == config["vocab_size"]
    assert target.size == config.get("decoder_vocab_size", config["vocab_size"])
    rest = set(range(source.size)) - set(source.codec.names)
    assert all(source.vocabulary[token] == f"<unused_{token}>" for token in rest)
    more = VocabularySizes(source.size + 64, target.size + 128)
    padded = import_tokenizers(HuggingFaceFolder(place(name)), more)
    assert padded[0].size == more.source or padded[0] is padded[1]


@pytest.mark.parametrize("name", FAMILIES)
def test_saved_and_loaded_they_are_the_same(name: str, place: Callable[[str], Path], tmp_path: Path) -> None:
    for side, tokenizer in zip(("source", "target"), imported(place(name)), strict=True):
        tokenizer.save(tmp_path / side)
        again = load_tokenizer(tmp_path / side)
        assert again.to_json() == tokenizer.to_json() and again.vocabulary == tokenizer.vocabulary
        one = again.sides()[side == "target"]
        assert one.encode_batch(texts()) == tokenizer.encode_batch(texts())


def test_marian_reads_the_language_that_stands_first(place: Callable[[str], Path]) -> None:
    source, _ = imported(place("marian"))
    theirs = transformers.AutoTokenizer.from_pretrained(place("marian"))
    assert list(source.tags) == theirs.supported_language_codes
    for text in (">>deu<< The fox", ">>fra<<The fox", ">>deu<<  jumps >>fra<< over"):
        assert source.encode_with_specials(text) == ids(theirs, text)
    chosen, _ = imported(place("marian"), target_language="fra")
    assert chosen.encode_with_specials("The fox") == ids(theirs, ">>fra<< The fox")
    with pytest.raises(SettingsError, match="source language"):
        imported(place("marian"), source_language="deu")


@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("m2m100", {("en", "de"): ("__en__", "__de__"), ("__zh__", "fr"): ("__zh__", "__fr__")}),
        ("nllb", {("eng_Latn", "deu"): ("eng_Latn", "deu_Latn"), ("fra", "zho_Hant"): ("fra_Latn", "zho_Hant")}),
    ],
)
def test_languages_stand_before_sources_and_translations(
    name: str, pairs: dict[tuple[str, str], tuple[str, str]], place: Callable[[str], Path]
) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(place(name))
    for (source_language, target_language), (before, target_prefix) in pairs.items():
        source, target = imported(place(name), source_language=source_language, target_language=target_language)
        tokens = theirs("The fox", add_special_tokens=False)["input_ids"]
        assert source.encode("The fox") == [source.tags[before], *tokens]
        assert target.encode("The fox") == tokens and target.target_prefix == (target.tags[target_prefix],)
        if name == "m2m100":
            theirs.src_lang, theirs.tgt_lang = before.strip("_"), target_prefix.strip("_")
            assert source.encode_with_specials("The fox") == ids(theirs, "The fox")
            assert [*target.target_prefix, *target.encode("Der Fuchs"), target.end] == ids(
                theirs, "Der Fuchs", target=True
            )
        assert target.decode([*target.target_prefix, *tokens, target.end]) == "The fox"


def test_the_languages_of_m2m100_have_the_tokens_that_transformers_gives_them(place: Callable[[str], Path]) -> None:
    source, _ = imported(place("m2m100"))
    theirs = transformers.AutoTokenizer.from_pretrained(place("m2m100"))
    assert source.tags == theirs.lang_token_to_id
    few = FAMILIES["m2m100"](place("m2m100").parent / "wmt21")
    put(few, tokenizer_config__json={"language_codes": "wmt21"})
    theirs = transformers.M2M100Tokenizer.from_pretrained(few)
    assert imported(few)[0].tags == theirs.lang_token_to_id


def test_a_language_that_is_not_known_is_rejected(place: Callable[[str], Path]) -> None:
    with pytest.raises(SettingsError, match=r"'deu_Lat'.*'deu_Latn'"):
        imported(place("nllb"), target_language="deu_Lat")
    with pytest.raises(SettingsError, match="no language 'zho'"):  # in two scripts
        imported(place("nllb"), target_language="zho")
    with pytest.raises(SettingsError, match="no language tags"):
        imported(place("t5"), target_language="de")
    assert sorted(imported(place("nllb"))[0].tags) == SCRIPTS


def test_t5_reads_what_is_left_out(place: Callable[[str], Path]) -> None:
    text = "The <extra_id_0> jumps<extra_id_1> over"
    theirs = transformers.AutoTokenizer.from_pretrained(place("t5_library"))
    tokenizer, _ = imported(place("t5_library"))
    assert tokenizer.encode_with_specials(text) == theirs(text)["input_ids"]
    alone, _ = imported(place("t5"))
    last = len(sentencepiece.SentencePieceProcessor(model_file=str(place("t5") / "spiece.model"))) + 99
    assert alone.sentinels == list(range(last, last - 100, -1))
    assert alone.encode("<extra_id_0>") == [last]
    assert [*alone.config.readable][:2] == ["<extra_id_0>", "<extra_id_1>"] == [*tokenizer.config.readable][:2]


def test_a_tokenizer_json_goes_before_older_files(place: Callable[[str], Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(place("t5_library"), tmp_path / "both"))
    shutil.copy(place("t5") / "spiece.model", folder)
    assert imported(folder)[0].to_json() == imported(place("t5_library"))[0].to_json()


def test_pieces_that_were_added_later_keep_their_tokens(place: Callable[[str], Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(place("gpt2"), tmp_path / "more"))
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    put(folder, added_tokens__json={"[word]": size, "<|chat|>": size + 1})
    put(folder, special_tokens_map__json={"pad_token": "<|chat|>", "eos_token": "<|endoftext|>"})
    config = json.loads((folder / "config.json").read_text())
    put(folder, config__json={**config, "vocab_size": size + 2})
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer, _ = imported(folder)
    for text in ("a [word] b", "[word][word]", "a <|chat|> b", "the fox"):
        assert tokenizer.encode_with_specials(text) == ids(theirs, text)
    assert tokenizer.pad == size + 1 and tokenizer.decode([size, size + 1]) == "[word]"
    llama = Path(shutil.copytree(place("llama2"), tmp_path / "llama"))
    put(llama, added_tokens__json={"<pad>": 600}, special_tokens_map__json={"pad_token": "<pad>"})
    put(llama, config__json={"model_type": "llama", "vocab_size": 601})
    assert imported(llama)[0].pad == 600
    put(llama, special_tokens_map__json={})
    assert "the piece '<pad>' was added to tokenizer.model" in refusal(llama)


def refusal(folder: Path) -> str:
    with pytest.raises((ModelFolderError, MissingInput)) as refused:
        imported(folder)
    sentence = str(refused.value)
    assert sentence.startswith(str(folder)) and "\n" not in sentence and len(sentence) < 600
    return sentence


T5 = {"model_type": "t5", "vocab_size": 512}
BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "another model": ("bert", {"config__json": {"model_type": "resnet"}}, "model type 'resnet'"),
    "no model type": ("bert", {"config__json": {}}, "model type 'None'"),
    "no size": ("bert", {"config__json": {"model_type": "bert"}}, "vocab_size"),
    "too few rows": ("bert", {"config__json": {"model_type": "bert", "vocab_size": 9}}, "it has the token"),
    "pieces that are no text": ("bert", {"vocab__txt": b"[PAD]\n\xff\n"}, "codec can't decode"),
    "no special pieces": ("bert", {"vocab__txt": b"a\nb\n"}, "_token"),
    "a flag that is none": ("bert", {"tokenizer_config__json": {"do_lower_case": "no"}}, "must be true or false"),
    "code to run": ("bert", {"tokenizer_config__json": {"auto_map": {}}}, "auto_map"),
    "a table that is a list": ("gpt2", {"vocab__json": "[]"}, "is not a JSON object"),
    "a table of texts": ("gpt2", {"vocab__json": {"a": "b"}}, "does not map pieces to ids"),
    "a merge of three": ("gpt2", {"merges__txt": "a b c\n"}, "'a b c'"),
    "a merge of unknowns": ("gpt2", {"merges__txt": "qq zzz\n"}, "out of vocabulary"),
    "no SentencePiece model": ("marian", {"source__spm": b"nothing"}, "SentencePiece model"),
    "a table without an unknown": ("marian", {"vocab__json": {"</s>": 0, "<pad>": 1}}, "lacks the unknown piece <unk>"),
    "no such languages": ("m2m100", {"tokenizer_config__json": {"language_codes": "klingon"}}, "language_codes"),
    "too many left out": ("t5", {"tokenizer_config__json": {"extra_ids": 10**9}}, "1000000000"),
    "a start beyond all": ("t5", {"config__json": {**T5, "decoder_start_token_id": 9999}}, "token 9999"),
    "no tokenizer.json": ("nllb", {"tokenizer__json": b"{}"}, "not a tokenizer.json"),
    "a cut tokenizer.json": ("nllb", {"tokenizer__json": b'{"model":'}, "is not valid JSON"),
    "a piece twice": ("nllb", {"tokenizer__json": b'{"model": {"vocab": {"a": 1, "a": 2}}}'}, "'a' twice"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_rejected_with_one_sentence(name: str, place: Callable[[str], Path], tmp_path: Path) -> None:
    family, files, reason = BAD[name]
    folder = put(Path(shutil.copytree(place(family), tmp_path / "bad")), **files)
    assert reason in refusal(folder)


@pytest.mark.parametrize(
    ("family", "file"),
    [
        ("bert", "vocab.txt"),
        ("gpt2", "vocab.json"),
        ("gpt2", "merges.txt"),
        ("marian", "target.spm"),
        ("marian", "vocab.json"),
        ("marian_apart", "target_vocab.json"),
        ("m2m100", "sentencepiece.bpe.model"),
        ("t5", "spiece.model"),
        ("llama2", "tokenizer.model"),
    ],
)
def test_a_missing_file_is_named(family: str, file: str, place: Callable[[str], Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(place(family), tmp_path / "half"))
    (folder / file).unlink()
    assert f"{file}: is missing" in refusal(folder)
    (folder / file).symlink_to("/etc/hostname")
    assert f"{file}: is a link to a file outside" in refusal(folder)


def test_nothing_of_theirs_is_imported_to_import(place: Callable[[str], Path]) -> None:
    program = (
        "import sys; from transduce.interop.huggingface.folder import HuggingFaceFolder as F; "
        "from transduce.interop.huggingface.tokenizer import import_tokenizers as i; "
        f"[i(F(name)) for name in {[str(place(name)) for name in FAMILIES]!r}]; "
        "print(*{'transformers', 'sentencepiece', 'huggingface_hub', 'sacremoses'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == []

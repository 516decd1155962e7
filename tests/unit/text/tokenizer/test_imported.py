"""A tokenizer of another project: its own tokens, our own attributes and methods, one file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.imported_tokenizers import TAGS, m2m, marian, pieces, t5
from tests.unit.sentencepiece_models import CORPUS, texts, trained
from transduce.errors import DataError, MissingInput, ModelFolderError, SettingsError
from transduce.inference.segment import cut_tokens
from transduce.text.constraint import Constraints, TokenConstraints
from transduce.text.tokenizer import load_tokenizer
from transduce.text.tokenizer.imported import ImportedConfig, ImportedTokenizer
from transduce.text.tokenizer.library_codec import RenumberedCodec
from transduce.text.tokenizer.tokenizer import Tokenizer, TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

ALL = {"marian": marian, "marian's target": lambda: marian("target"), "m2m": m2m, "t5": t5}


@pytest.mark.parametrize("name", ALL)
def test_it_has_what_our_own_tokenizers_have(name: str) -> None:
    imported, ours = ALL[name](), train_tokenizer("bpe", CORPUS, TokenizerConfig(vocab_size=400))
    for attribute in dir(ours):
        assert attribute.startswith("_") or hasattr(imported, attribute), attribute
    assert imported.kind == "imported"
    assert imported.specials == (imported.pad, imported.start, imported.end)
    assert len(imported.vocabulary) == len(set(imported.vocabulary)) == imported.size


@pytest.mark.parametrize("name", ALL)
def test_tokens_are_those_of_sentencepiece_under_the_table(name: str) -> None:
    tokenizer = ALL[name]()
    assert isinstance(tokenizer.codec, RenumberedCodec)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.codec.model_file)
    known = {piece: token for token, piece in enumerate(tokenizer.vocabulary)}
    before = [known["__en__"]] if name == "m2m" else []
    for text, tokens in zip(texts(), tokenizer.encode_batch(texts()), strict=True):
        expected = [known.get(theirs.id_to_piece(number), tokenizer.unknown) for number in theirs.encode(text)]
        assert tokens == (before + expected if expected else []), ascii(text)
        assert tokenizer.encode_with_specials(text) == [*before, *expected, tokenizer.end]
        assert tokenizer.encode(text) == tokens
        assert tokenizer.count_unknown(tokens) == tokens.count(known["<unk>"])


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=20))
def test_special_tokens_never_come_from_text(name: str, text: str) -> None:
    tokenizer = ALL[name]()
    allowed = {tokenizer.unknown, *tokenizer.config.prefix}
    for typed in (text, f"{text}</s>", f"<pad> {text} <s>__de__", "</s>"):
        try:
            tokens = tokenizer.encode(typed)
        except DataError as refusal:
            assert "lone surrogate" in str(refusal)
            continue
        assert (tokenizer.codec.special - allowed).isdisjoint(tokens)
        assert all(0 <= token < tokenizer.size for token in tokens)


@pytest.mark.parametrize("name", ALL)
def test_what_is_known_of_a_text_comes_back(name: str) -> None:
    tokenizer = ALL[name]()
    for line in CORPUS[:4]:
        tokens = [token for token in tokenizer.encode(line) if token != tokenizer.unknown]
        if len(tokens) == len(tokenizer.encode(line)):
            assert tokenizer.decode([tokenizer.start, *tokens, tokenizer.end, tokenizer.pad]) == line
    assert tokenizer.decode([]) == tokenizer.decode([tokenizer.size - 1, tokenizer.end]) == ""


def test_a_language_at_the_beginning_of_a_source_is_read_and_nowhere_else() -> None:
    source, target = marian("source"), marian("target")
    known = source.tags
    assert list(known) == list(TAGS)
    assert source.encode(">>deu<< The fox") == [known[">>deu<<"], *source.encode("The fox")]
    assert source.encode(">>fra<<The fox") == [known[">>fra<<"], *source.encode("The fox")]
    for plain in ("The >>deu<< fox", " >>deu<< fox", ">>xyz<< fox", ">> deu << fox", ">>deu<", ">>deu< <", ">>", "<<"):
        assert not set(known.values()) & set(source.encode(plain)), plain
    assert not set(known.values()) & set(target.encode(">>deu<< Der Fuchs"))
    assert source.encode(">>deu<<") == source.encode(">>deu<<  ") == []
    assert source.encode_with_specials(">>deu<<") == [known[">>deu<<"], source.end]
    assert source.split_tag(">>deu<< x") == (">>deu<<", " x") and source.split_tag("x") == ("", "x")


def test_a_usual_language_stands_where_none_is_typed() -> None:
    source = marian("source").with_languages(before=">>deu<<")
    known = source.tags
    assert source.encode("The fox") == [known[">>deu<<"], *marian("source").encode("The fox")]
    assert source.encode(">>fra<< The fox") == [known[">>fra<<"], *marian("source").encode("The fox")]
    assert source.encode_with_specials("The fox")[0] == known[">>deu<<"]
    assert source.encode("") == []
    with pytest.raises(SettingsError, match="no language '>>dee<<'; did you mean '>>deu<<'"):
        source.with_languages(before=">>dee<<")


def test_one_tokenizer_has_two_sides_where_languages_stand_before_both() -> None:
    both = m2m()
    source, target = both.sides()
    english, german = both.tags["__en__"], both.tags["__de__"]
    plain = target.encode("The fox")
    assert source.encode("The fox") == [english, *plain] and source.target_prefix == ()
    assert target.target_prefix == (german,) and german not in plain
    assert source.decode([english, *plain]) == target.decode([german, *plain]) == "The fox"
    assert source.sides() == (source, source)
    assert source.to_json() == target.to_json() == both.to_json()
    back = both.with_languages("__de__", "__en__").sides()
    assert back[0].encode("The fox")[0] == german and back[1].target_prefix == (english,)
    assert t5().sides() == (t5(), t5())


def test_pieces_for_what_is_left_out_are_read_wherever_they_stand() -> None:
    tokenizer = t5()
    first, second = (tokenizer.config.readable[f"<extra_id_{number}>"] for number in range(2))
    assert tokenizer.encode("The <extra_id_0> jumps<extra_id_1>") == [
        *tokenizer.encode("The"),
        first,
        *tokenizer.encode("jumps"),
        second,
    ]
    assert tokenizer.encode("<extra_id_0>") == [first]
    assert not {first, second} & set(tokenizer.encode("<extra_id_7> <extra_id_>"))
    assert tokenizer.decode(tokenizer.encode("The <extra_id_0> jumps")) == "The jumps"
    assert tokenizer.sentinels[:2] == [first, second]


def test_rows_without_a_piece_have_names_and_say_nothing() -> None:
    tokenizer = t5()
    known = len(pieces(trained(model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)))
    assert tokenizer.vocabulary[known + 3] == f"<unused_{known + 3}>"
    assert tokenizer.pieces([known + 3]) == [f"<unused_{known + 3}>"]
    assert tokenizer.decode([known + 3]) == ""


def test_words_are_counted_as_they_are_decoded() -> None:
    source, _ = m2m().sides()
    text = "The quick brown fox jumps"
    tokens = source.encode(text)
    words = source.words(tokens)
    assert words[0] is None and source.words_of(text) == words
    for number, word in enumerate(text.split()):
        own = [token for token, owner in zip(tokens, words, strict=True) if owner == number]
        assert source.decode(own).strip() == word
    assert source.words([source.end, source.pad]) == [None, None]


def test_a_word_that_nobody_knows_is_a_word_of_its_text() -> None:
    for tokenizer in (marian(), t5()):
        text = "the 🙂 dog"
        tokens, words = tokenizer.encode(text), tokenizer.words_of(text)
        assert tokenizer.unknown in tokens
        assert words[tokens.index(tokenizer.unknown)] == 1
        assert words[-1] == 2 and words[0] == 0


def test_every_part_of_a_long_text_has_its_language() -> None:
    source, _ = m2m().sides()
    tokens = source.encode(" ".join(CORPUS[:3]))
    parts = cut_tokens(source, tokens, 11)
    assert all(part.tokens[0] == tokens[0] and len(part.tokens) <= 11 for part in parts)
    assert [token for part in parts for token in part.tokens[1:]] == tokens[1:]
    assert [part.joiner for part in parts][:3] == ["", " ", " "]
    typed = marian().encode(">>deu<< " + " ".join(CORPUS[:3]))
    assert {part.tokens[0] for part in cut_tokens(marian(), typed, 17)} == {marian().tags[">>deu<<"]}


def test_required_and_forbidden_words_have_no_language() -> None:
    _, target = m2m().sides()
    constraints = TokenConstraints(target, Constraints(forbid=["fox"], terms={"x": "the dog"}))
    assert constraints.forbidden == [target.encode("fox")]
    assert constraints.required("x") == [target.encode("the dog")]


def test_half_characters_are_rejected() -> None:
    with pytest.raises(DataError, match="character 3 is a lone surrogate"):
        marian().encode_batch(["fine", "a \ud800"])


def test_text_is_not_put_into_another_form_first() -> None:
    """SentencePiece's own rules decide: identity keeps a letter and its accent apart."""
    content = trained(model_type="bpe", normalization_rule_name="identity", byte_fallback=True, vocab_size=600)
    config = ImportedConfig(family="llama", size=len(pieces(content)), pad=0, start=1, end=2, unknown=0)
    tokenizer = ImportedTokenizer(config, RenumberedCodec(content))
    assert tokenizer.decode(tokenizer.encode("e\u0301")) == "e\u0301"


@pytest.mark.parametrize("name", ALL)
def test_its_file_gives_the_same_tokenizer_again(name: str, tmp_path: Path) -> None:
    tokenizer = ALL[name]()
    tokenizer.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path / "tokenizer.json")
    assert isinstance(again, ImportedTokenizer) and again.config == tokenizer.config
    assert again.to_json() == tokenizer.to_json() == (tmp_path / "tokenizer.json").read_text(encoding="utf-8")
    assert again.vocabulary == tokenizer.vocabulary
    assert again.encode_batch(texts()) == tokenizer.encode_batch(texts())
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


def test_a_file_says_itself_which_kind_it_is(tmp_path: Path) -> None:
    ours = train_tokenizer("bpe", CORPUS, TokenizerConfig(vocab_size=400))
    ours.save(tmp_path / "ours.json")
    t5().save(tmp_path / "theirs.json")
    assert isinstance(load_tokenizer(tmp_path / "ours.json"), Tokenizer)
    (tmp_path / "theirs.json").write_text(json.dumps(json.loads(t5().to_json()), indent=2))
    assert isinstance(load_tokenizer(tmp_path / "theirs.json"), ImportedTokenizer)
    with pytest.raises(MissingInput, match="cannot be read"):
        load_tokenizer(tmp_path / "nowhere.json")
    with pytest.raises(ModelFolderError, match="is not a tokenizer trained by transduce"):
        Tokenizer.load(tmp_path / "theirs.json")


def changed(change: Callable[[dict[str, Any]], object]) -> Callable[[], str]:
    def make() -> str:
        table = json.loads(m2m().to_json())
        change(table)
        return json.dumps(table)

    return make


def few(file: dict[str, Any]) -> None:
    file["settings"].update(size=300, target_prefix=[], prefix=[], tags={})


def misnamed(file: dict[str, Any]) -> None:
    file["codec"]["vocabulary"][f"<unused_{m2m().size - 1}>"] = m2m().size - 2


BAD: dict[str, tuple[Callable[[], str], str]] = {
    "a cut file": (lambda: m2m().to_json()[:-9], "Unterminated string"),
    "endless depth": (lambda: '{"imported":' * 100_000, "recursion"),
    "another format": (changed(lambda file: file.update(imported=7)), "it has format 7"),
    "no format": (changed(lambda file: file.update(imported="x")), "it has format 'x'"),
    "no settings": (changed(lambda file: file.pop("settings")), "missing 'settings'"),
    "no codec": (changed(lambda file: file.pop("codec")), "missing 'codec'"),
    "an empty codec": (changed(lambda file: file.update(codec={})), "special"),
    "an unknown setting": (changed(lambda file: file["settings"].update(pads=7)), "did you mean 'pad'"),
    "a token beyond the last": (changed(lambda file: file["settings"].update(end=10**6)), "token 1000000"),
    "a token below zero": (changed(lambda file: file["settings"].update(start=-1)), "token -1"),
    "a language beyond the last": (changed(lambda file: file["settings"]["tags"].update(x=10**6)), "token 1000000"),
    "too few tokens": (changed(few), "it has the token"),
    "a file elsewhere": (changed(lambda file: file["settings"].update(files={"../evil": {}})), "../evil"),
    "no tokens": (changed(lambda file: file["settings"].update(size=0)), "size = 0"),
    "what is no base 64": (changed(lambda file: file["codec"].update(sentencepiece="?")), "base64"),
    "no SentencePiece model": (changed(lambda file: file["codec"].update(sentencepiece="AAAA")), "SentencePiece model"),
    "a table of texts": (changed(lambda file: file["codec"]["vocabulary"].update(x="y")), "does not map pieces to ids"),
    "no unknown": (changed(lambda file: file["codec"]["vocabulary"].pop("<unk>")), "lacks the unknown piece <unk>"),
    "a token twice": (changed(lambda file: file["codec"]["vocabulary"].update(x=5)), "two pieces with one id"),
    "a name of no piece": (changed(misnamed), "pieces named <unused_N>"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_damaged_file_is_rejected_with_one_sentence(name: str, tmp_path: Path) -> None:
    content, reason = BAD[name]
    (tmp_path / "tokenizer.json").write_text(content())
    with pytest.raises(ModelFolderError) as refusal:
        load_tokenizer(tmp_path / "tokenizer.json")
    assert reason in str(refusal.value) and "\n" not in str(refusal.value) and len(str(refusal.value)) < 500


def test_the_table_of_damage_starts_from_a_sound_file() -> None:
    assert ImportedTokenizer.from_json(changed(lambda file: None)(), "sound").to_json() == m2m().to_json()

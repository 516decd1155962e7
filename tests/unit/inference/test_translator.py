"""Text in, text out: order, number and text of lines, whatever the tokenizer and however long they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import transduce
from tests.unit.copy_translator import TEXT, copier, tokenizer
from tests.unit.training.example import recipe
from transduce.errors import SettingsError
from transduce.inference.search.options import Hypothesis, Request, SearchOptions
from transduce.inference.segment import MAX_SEGMENT_TOKENS, Translation
from transduce.inference.translator import Translator
from transduce.inspection.maps import AttentionMaps
from transduce.model_folder import ModelFolder, save_model
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import Transformer, TransformerConfig
from transduce.text.constraint import Constraints

KINDS = ["bpe", "unigram", "character", "byte", "word"]
WORDS = TEXT.split()


def requests_of(translator: Translator) -> list[Request]:
    """All that the translator asks of its engine from now on."""
    seen: list[Request] = []
    search = translator.engine.translate

    def watched(requests: Sequence[Request]) -> list[list[Hypothesis]]:
        seen.extend(requests)
        return search(requests)

    translator.engine.translate = watched  # type: ignore[method-assign]
    return seen


def lines(count: int) -> list[str]:
    """Different lines of different lengths, some without any text."""
    made = [" ".join(WORDS[number % 7 : number % 7 + number % 11]) for number in range(count)]
    return ["" if number % 13 == 5 else "  \t" if number % 13 == 7 else line for number, line in enumerate(made)]


@pytest.mark.parametrize("kind", KINDS)
def test_one_text_is_translated_to_one_text(kind: str) -> None:
    assert copier(kind)("ten small cats sleep") == "ten small cats sleep"


def test_texts_of_which_nothing_is_left_are_counted() -> None:
    translator = copier("wordpiece")
    assert translator.translate(["\u200b", "ten cats", "\x01", ""]) == ["", "ten cats", "", ""]
    assert (translator.counts.unread, translator.counts.empty) == (2, 1)


@pytest.mark.parametrize("count", [0, 1, 97])
def test_order_and_number_of_lines_are_kept_and_empty_ones_stay_empty(count: int) -> None:
    translator = copier("bpe")
    given = lines(count)
    assert translator.translate(given) == [line if line.strip() else "" for line in given]
    assert translator.counts.lines == count
    assert translator.counts.empty == sum(not line.strip() for line in given)


def test_lines_may_come_from_anywhere_and_be_more_than_one_window() -> None:
    translator = copier("word", method="greedy")
    given = [WORDS[number % len(WORDS)] for number in range(2500)]
    assert translator.translate(iter(given)) == given
    assert translator.counts.lines == 2500


@pytest.mark.parametrize("kind", [*KINDS, "wordpiece"])
@pytest.mark.parametrize("limit", [5, 8, 17, 40])
def test_a_line_longer_than_the_model_reads_is_translated_in_parts_and_counted(kind: str, limit: int) -> None:
    """A model that copies gives the whole line back, so nothing was lost or doubled where it was cut."""
    translator = copier(kind, limit)
    longest = len(tokenizer(kind).encode(TEXT))
    found = translator(TEXT)
    if kind == "wordpiece":  # this kind does not give back the spaces around signs, whole or in parts
        assert found.replace(" ", "") == TEXT.replace(" ", "")
        if limit > max(len(tokenizer(kind).encode(word)) for word in WORDS):
            assert found == copier(kind)(TEXT)
    else:
        assert found == TEXT
    assert translator.counts.split == (1 if longest > limit - 1 else 0)


@pytest.mark.parametrize("kind", KINDS)
def test_several_spaces_survive_being_cut_in_parts(kind: str) -> None:
    text = "ten  small   cats sleep  under one   old dog"
    expected = text if kind != "word" else " ".join(text.split())
    for limit in range(3, 14):
        assert copier(kind, limit)(text) == expected


def test_parts_are_cut_where_words_begin_if_that_is_possible() -> None:
    translator = copier("character", 12)
    requests = requests_of(translator)
    assert translator("ten small cats sleep under") == "ten small cats sleep under"
    assert [tokenizer("character").decode(part) for part in (request.source for request in requests)] == [
        "ten small",
        "cats sleep",
        "under",
    ]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "character", "byte"])
@pytest.mark.parametrize("limit", [8, 9, 10, 31])
def test_text_without_spaces_is_cut_between_characters(kind: str, limit: int) -> None:
    text = "東京ü都😀港区は東京" * 5
    assert copier(kind, limit)(text) == text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_even_the_smallest_limit_comes_to_an_end(kind: str, limit: int) -> None:
    translator = copier(kind, limit)
    translator("ten small cats")
    assert translator.counts.split == 1


def test_without_a_limit_of_the_model_there_is_one_of_ours() -> None:
    translator = copier("character", method="greedy")
    text = "cats " * (MAX_SEGMENT_TOKENS // 5 + 1) + "cats"
    assert translator(text) == text
    assert translator.counts.split == 1
    word = "t" * (MAX_SEGMENT_TOKENS + 1)
    assert translator(word) == word


def test_a_line_at_the_limit_is_read_whole() -> None:
    translator = copier("character", 10)
    assert translator("ten small") == "ten small"
    assert translator.counts.split == 0
    assert translator("ten small ") == "ten small "
    assert translator.counts.split == 1


def test_n_best_gives_that_many_translations_with_scores_best_first() -> None:
    answers = copier("word").translate(["ten small cats", "", "dog"], beam_size=5, n_best=3)
    assert [len(several) for several in answers] == [3, 1, 3]
    assert [several[0].text for several in answers] == ["ten small cats", "", "dog"]
    assert answers[1] == [Translation("", 0.0, True)]
    for several in answers:
        assert len({answer.text for answer in several}) == len(several)
        assert [a.score for a in several] == sorted((a.score for a in several), reverse=True)


def test_the_translations_of_a_line_in_parts_are_the_parts_translations_joined() -> None:
    whole = copier("word", 4)
    found = whole.translate(["ten small cats sleep under one"], n_best=2)[0]
    left, right = copier("word", 4).translate(["ten small cats", "sleep under one"], n_best=2)
    assert [answer.text for answer in found] == [f"{a.text} {b.text}" for a, b in zip(left, right, strict=True)]
    assert [a.score for a in found] == pytest.approx([a.score + b.score for a, b in zip(left, right, strict=True)])


def test_what_is_cut_off_is_counted() -> None:
    translator = copier("word")
    assert translator.translate(["ten small cats", "dog"], max_length=2) == ["ten small", "dog"]
    assert translator.counts.cut == 1


def test_unknown_words_are_counted_and_stay_visible() -> None:
    translator = copier("word")
    assert translator("ten zebras sleep") == "ten <unk> sleep"
    assert translator.counts.unknown == 1


def test_options_go_over_what_the_model_was_saved_with() -> None:
    translator = copier("word", beam_size=7, length_penalty=1.1)
    assert translator.options() == SearchOptions(beam_size=7, length_penalty=1.1)
    assert translator.options(beam_size=2, length_penalty=None) == SearchOptions(beam_size=2, length_penalty=1.1)
    assert translator.options(n_best=9).beam_size == 9
    assert translator.options(n_best=3).beam_size == 7
    greedy = copier("word", method="greedy")
    assert greedy.options().width == 1
    assert greedy.options(beam_size=3).width == 3
    assert greedy.options(n_best=2).width >= 2


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"bean_size": 3}, "did you mean 'beam_size'?"),
        ({"beam_size": 0}, "beam_size = 0"),
        ({"beam_size": 2, "n_best": 3}, "at least 3"),
    ],
)
def test_an_option_that_makes_no_sense_is_rejected(option: dict[str, int], message: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        copier("word").translate(["dog"], **option)
    assert message in str(refusal.value)


def test_one_text_where_lines_belong_is_rejected() -> None:
    """A string is a sequence of strings too: without a word each letter would be translated."""
    with pytest.raises(TypeError, match="lines"):
        copier("word").translate("dog")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return transduce.train(recipe(training={"updates": 2}), tmp_path_factory.mktemp("runs") / "run")


def test_the_python_interface_is_what_the_documents_say(run: Path) -> None:
    translator = transduce.load(run)
    assert isinstance(translator, transduce.Translator)
    assert isinstance(translator("a b c"), str)
    plain = translator.translate(["a b", "", "c"], beam_size=5)
    assert [type(line) for line in plain] == [str, str, str]
    several = translator.translate(["a b", "c"], beam_size=5, n_best=3)
    assert [len(answers) for answers in several] == [3, 3]
    assert [answers[0].text for answers in several] == [plain[0], plain[2]]
    assert transduce.load(str(run / "model")).translate(["a b"], beam_size=5) == plain[:1]
    assert translator.defaults.beam_size == 2, "the recipe's search is the default"


def test_attention_is_of_the_translation_and_shows_itself_in_a_notebook(run: Path) -> None:
    translator = transduce.load(run)
    maps = translator.attention("a b c")
    assert isinstance(maps, AttentionMaps)
    assert maps.translation == translator("a b c")
    assert list(maps.source_pieces) == ["a", "b", "c", "</s>"]
    assert "<" in maps._repr_html_()


def test_attention_of_a_line_that_is_too_long_is_of_its_first_part(run: Path) -> None:
    translator = transduce.load(run)
    maps = translator.attention("a " * (MAX_SEGMENT_TOKENS + 3), max_length=2)
    assert len(maps.source_pieces) == MAX_SEGMENT_TOKENS + 1
    assert translator.counts.split == 1


def test_public_names_are_loaded_when_they_are_used() -> None:
    assert set(transduce.__all__) >= {"load", "train", "Translator", "__version__"}
    assert transduce.Translator is Translator
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        transduce.lode


def test_a_sampling_option_alone_selects_sampling(run: Path) -> None:
    translator = transduce.load(run)
    assert translator.options(top_k=3).method == "sample"
    assert translator.options(beam_size=3).method == "beam"
    with pytest.raises(SettingsError, match=r"seed .* 'greedy'"):
        translator.options(method="greedy", seed=3)


def test_a_prefix_is_for_the_first_part_of_a_line_that_is_cut() -> None:
    translator = copier("word", 5)
    requests = requests_of(translator)
    translator.translate([" ".join(WORDS[:9]), WORDS[3]], constraints=Constraints(prefixes=[WORDS[1], WORDS[2]]))
    first, second = ([tokenizer("word").encode(word)[0]] for word in WORDS[1:3])
    assert [list(request.prefix) for request in requests] == [first, [], [], second]


def test_a_forbidden_word_that_was_written_in_other_pieces_is_counted() -> None:
    """A model of characters forbids the spelling that its tokenizer gives, at the start of a word or within one."""
    translator = copier("bpe")
    assert translator.translate(["ten small cats sleep"], constraints=Constraints(forbid=["cats"])) != [
        "ten small cats sleep"
    ]
    constraints = translator.constraints(Constraints(forbid=["cat", "sm"]))
    assert [constraints.has_forbidden_word(text) for text in ("a cat.", "cats", "asm", "sm")] == [
        True,
        False,
        False,
        True,
    ]


def test_sentences_of_a_line_are_translated_one_by_one_with_their_white_space() -> None:
    translator = copier("bpe")
    line = "The quick brown fox.  Ten small cats!\t“One old tree?” Yes."
    requests = requests_of(translator)
    assert translator.translate([line, "no end", ""]) == [line, "no end", ""]
    assert len(requests) == 5
    assert (translator.counts.lines, translator.counts.several, translator.counts.empty) == (3, 1, 1)
    assert translator.translate([line], split=False) == [line]
    assert len(requests) == 6
    (several,) = translator.translate([line], n_best=2)
    assert [answer.text == line for answer in several] == [True, False]


def test_what_was_saved_for_another_way_to_search_does_not_stand_in_the_way() -> None:
    translator = copier("word", method="sample", temperature=0.7, seed=1, n_best=4)
    assert translator.options().method == "sample"
    greedy = translator.options(method="greedy")
    assert (greedy.method, greedy.n_best, greedy.temperature, greedy.seed) == ("greedy", 1, 1.0, None)
    assert translator.options(beam_size=5, n_best=3).beam_size == 5
    assert (translator.options(n_best=3).method, translator.options(n_best=3).temperature) == ("sample", 0.7)


def test_one_text_where_several_belong_is_rejected() -> None:
    with pytest.raises(SettingsError, match="must be lists"):
        Constraints(forbid="dog")


def test_one_prefix_is_for_all_lines() -> None:
    found = copier("word").translate(["dog", "cats"], constraints=Constraints(prefixes="the"), max_length=1)
    assert [text.split()[0] for text in found] == ["the", "the"]


def test_a_constraint_among_the_search_options_is_pointed_to_its_place() -> None:
    with pytest.raises(SettingsError, match="is a constraint"):
        copier("word").translate(["the dog"], terms={"dog": "cat"})


def test_words_cannot_be_forbidden_letter_by_letter() -> None:
    with pytest.raises(SettingsError, match="forbidden words need"):
        copier("character").translate(["the dog"], constraints=Constraints(forbid=["he"]))


def test_a_space_where_a_long_line_ends_asks_the_model_nothing() -> None:
    translator = copier("character", 6)
    requests = requests_of(translator)
    assert translator.translate(["abcde "], split=False) == ["abcde "]
    assert [len(request.source) for request in requests] == [5]


def test_a_prefix_does_not_use_up_the_length_of_a_translation() -> None:
    (expected_message,) = copier("word").translate(
        ["the lazy dog"], constraints=Constraints(prefixes=["the " * 80 + "the"]), max_length=2
    )
    assert len(expected_message.split()) in (81, 82, 83)


def test_ctranslate2_leaves_to_pytorch_what_it_would_do_in_another_way(run: Path) -> None:
    """Line by line: one of them has a prefix. A minimum above the usual maximum raises it, in both engines."""
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed; pip install 'transduce[fast]'")
    expected_message = []
    for engine in ("torch", "ctranslate2"):
        translator = transduce.load(run)
        translator.use(engine)  # type: ignore[arg-type]
        lines = ["a b c", "c d", "e"]
        expected_message.append(
            translator.translate(
                lines, constraints=Constraints(prefixes=["", "a b", ""]), method="greedy", max_length=6
            )
        )
        expected_message[-1] += translator.translate(["a"], min_length=70, method="greedy")
        assert (translator.engine.fallback_reason is None) == (engine == "torch")
        assert (translator.engine.fallbacks == 0) == (engine == "torch")
        translator.use("torch")
        assert translator.engine.fallback_reason is None
    assert expected_message[0] == expected_message[1]
    assert expected_message[0][1].startswith("a b")
    assert len(expected_message[0][3].split()) >= 70


def test_models_of_different_tokenizers_are_no_ensemble(tmp_path: Path) -> None:
    """Vocabularies of one size with other pieces in them would pass unnoticed otherwise."""
    for name, kind in (("one", "bpe"), ("other", "unigram")):
        config = TransformerConfig(model_dim=8, num_heads=2, ffn_dim=8, num_layers=1)
        model = Transformer(config, VocabularySizes(tokenizer(kind).size, tokenizer(kind).size))
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
        save_model(tmp_path / name, ModelFolder(model, config, tokenizer(kind), tokenizer(kind)), "a card")
    assert transduce.load(tmp_path / "one", tmp_path / "one")("ten cats") is not None
    with pytest.raises(SettingsError, match=r"other: its source tokenizer is not the one of .*one"):
        transduce.load(tmp_path / "one", tmp_path / "other")


def test_links_of_a_long_text_are_between_its_own_words() -> None:
    """A WordPiece tokenizer would write `tree,`; the words of the text itself are what is counted."""
    maps = copier("wordpiece", limit=12).attention("tree , don't cats , " * 9)
    assert maps.source == "tree , don't cats , tree ,"
    assert maps.links and max(source for source, _ in maps.links) < len(maps.source.split())


@pytest.mark.parametrize("kind", ["bpe", "character", "byte"])
def test_of_a_long_text_without_spaces_only_what_was_read_is_shown(kind: str) -> None:
    maps = copier(kind, limit=12).attention("foxdog" * 40)
    assert maps.source != "foxdog" * 40 and ("foxdog" * 40).startswith(maps.source)
    assert maps.source == "".join(tokenizer(kind).decode(tokenizer(kind).encode("foxdog" * 40)[:11]).split())


@pytest.mark.parametrize(
    "text",
    ["Ten cats.", " Ten cats.  Ten dogs!\n\n\tTen trees \n", "\n\n", "a\nb", "Ten\u2028cats. Ten dogs.\r\nTen trees."],
)
def test_a_text_that_is_cut_and_joined_is_the_text(text: str) -> None:
    leading, sentences = copier("word").cut(text)
    assert leading + "".join(sentence + space for sentence, space in sentences) == text
    assert all(sentence.strip() == sentence and sentence for sentence, _ in sentences)


def test_a_long_sentence_is_cut_into_what_the_model_reads() -> None:
    translator = copier("word", 4)
    _, sentences = translator.cut("ten small cats sleep under ten dog")
    assert [sentence for sentence, _ in sentences] == ["ten small cats", "sleep under ten", "dog"]
    assert [space for _, space in sentences] == [" ", " ", ""]
    assert [len(copier("word").cut("Ten cats. Ten dogs.", split)[1]) for split in (True, False)] == [2, 1]

"""Settings chosen from a corpus: what kind of tokens, how large a model, how long to train, and why."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.recipe import Recipe, read_recipe
from transduce.tasks.translation.defaults import choose_epochs, choose_settings, choose_validation
from transduce.tasks.translation.survey import FEW_WORDS, Side, Survey, survey

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SYMBOLS = Side(characters=9.0, words=5.0, distinct_words=11)
TEXT = Side(characters=61.0, words=11.0, distinct_words=FEW_WORDS + 1)
COMMANDS = Side(characters=47.0, words=8.0, distinct_words=13)
WORD = Side(characters=7.0, words=1.0, distinct_words=FEW_WORDS + 1)


def spelled(draw: random.Random) -> str:
    return "".join(draw.choice(LETTERS) for _ in range(draw.randint(3, 9)))


def single_words(count: int) -> list[tuple[str, str]]:
    draw = random.Random(1)
    return [(word, " ".join(word)) for word in (spelled(draw) for _ in range(count))]


def text(count: int) -> list[tuple[str, str]]:
    draw = random.Random(2)
    sentences = [" ".join(spelled(draw) for _ in range(draw.randint(4, 13))) for _ in range(count)]
    return [(sentence, sentence.upper()) for sentence in sentences]


def test_single_words_are_read_by_characters_and_symbols_are_words(tmp_path: Path) -> None:
    """Spelling to letters, as pronunciation is: one side is words, the other a few symbols over and over."""
    advice = choose_settings(survey(single_words(997)))
    assert advice.tables["tokenizer"]["source_kind"] == "character"
    assert advice.tables["tokenizer"]["target_kind"] == "word"
    assert advice.tables["tokenizer"]["joint"] is False
    assert advice.tables["model"]["tied_embeddings"] == "target"
    assert any("the source is single words" in reason for reason in advice.reasons)
    assert any("the target is symbols, 26 different words" in reason for reason in advice.reasons)


def test_spelled_words_are_learned_with_relative_positions_and_alignments() -> None:
    advice = choose_settings(survey(single_words(997)))
    assert advice.tables["model"]["positions"] == "rotary"
    assert advice.tables["model"]["attention_dropout"] == advice.tables["model"]["activation_dropout"] == 0.2
    found = advice.tables["training"]
    assert (found["guided_alignment"], found["recombination"], found["r_drop"]) == (0.5, 0.25, 1.0)
    assert found["epochs"] == 200 and any("at most 200 epochs" in reason for reason in advice.reasons)
    assert any("guided alignment" in reason for reason in advice.reasons)
    prepared = choose_settings(survey(single_words(997)), aligned=False)
    assert not {"guided_alignment", "recombination"} & prepared.tables["training"].keys()
    assert any("data.align=true" in reason for reason in prepared.reasons)
    for other in (Survey(2_500, WORD, SYMBOLS), Survey(997, WORD, WORD), Survey(997, SYMBOLS, SYMBOLS)):
        training = choose_settings(other).tables["training"]
        assert training["guided_alignment"] == 0.1 and not {"recombination", "r_drop"} & training.keys()
    for found in (survey(text(199)), Survey(400_000, WORD, SYMBOLS), Survey(400_000, COMMANDS, SYMBOLS)):
        tables = choose_settings(found).tables
        assert "positions" not in tables["model"] and "guided_alignment" not in tables["training"]


def test_commands_are_learned_with_relative_positions_and_little_dropout() -> None:
    for pairs, dropout in ((16_729, 0.1), (997, 0.3)):
        advice = choose_settings(Survey(pairs, COMMANDS, SYMBOLS))
        assert advice.tables["model"]["positions"] == "rotary"
        assert advice.tables["model"].get("dropout", 0.3) == dropout and f"dropout {dropout}" in advice.reasons
        assert "guided_alignment" not in advice.tables["training"]


def test_words_that_are_spelled_with_spaces_are_learned_as_those_without() -> None:
    pairs = [(" ".join(word), sounds.upper()) for word, sounds in single_words(997)]
    found = choose_settings(survey(pairs)).tables
    assert (found["tokenizer"]["source_kind"], found["model"]["positions"]) == ("word", "rotary")
    assert found["training"]["guided_alignment"] == 0.1
    inflected = [(f"{source} V.PTCP PST SG", target) for source, target in pairs]
    assert choose_settings(survey(inflected)).tables["model"]["positions"] == "rotary"


def test_text_on_both_sides_is_one_bpe_vocabulary(tmp_path: Path) -> None:
    advice = choose_settings(survey(text(199)))
    assert advice.tables["tokenizer"] == {"kind": "bpe", "joint": True, "vocab_size": 4000}
    assert any("BPE vocabulary" in reason for reason in advice.reasons)


def test_text_without_spaces_is_text() -> None:
    draw = random.Random(4)
    lines = ["".join(chr(draw.randint(0x4E00, 0x9FFF)) for _ in range(draw.randint(9, 40))) for _ in range(400)]
    advice = choose_settings(survey([(latin, line) for (latin, _), line in zip(text(400), lines, strict=True)]))
    assert advice.tables["tokenizer"] == {"kind": "bpe", "joint": True, "vocab_size": 4000}
    short = choose_settings(survey([(line[:3], " ".join(line[:3])) for line in lines]))
    assert short.tables["tokenizer"]["source_kind"] == "character"


def test_sentences_that_are_spelled_are_judged_by_the_loss() -> None:
    given = {"kind": "character"}
    assert "metric" not in choose_settings(survey(text(199)), given, validated=500).tables["training"]
    words = choose_settings(survey(single_words(997)), given, validated=500)
    assert words.tables["training"]["metric"] == "exact_match"


def test_the_pieces_of_the_one_side_that_is_text_grow_with_the_corpus() -> None:
    tables = choose_settings(Survey(400_000, WORD, TEXT)).tables["tokenizer"]
    assert (tables["source_kind"], tables["target_kind"], tables["vocab_size"]) == ("character", "bpe", 32_000)


def test_one_vocabulary_of_characters_is_counted_in_characters() -> None:
    words = Survey(9_000, WORD, WORD)
    apart, joint = (choose_settings(words, given).tables for given in ({}, {"joint": True}))
    assert joint["tokenizer"]["kind"] == "character" and joint["tokenizer"]["joint"] is True
    assert joint["training"]["epochs"] == apart["training"]["epochs"]


def test_few_symbols_on_both_sides_are_words(tmp_path: Path) -> None:
    draw = random.Random(3)
    lines = [" ".join(draw.choice(LETTERS[:7]) for _ in range(5)) for _ in range(101)]
    advice = choose_settings(survey([(line, line[::-1]) for line in lines]))
    kinds = (advice.tables["tokenizer"]["source_kind"], advice.tables["tokenizer"]["target_kind"])
    assert kinds == ("word", "word")


@pytest.mark.parametrize("count", [5, 23, 211])
def test_a_small_corpus_is_not_taken_for_symbols_because_it_is_small(count: int) -> None:
    """Few different words mean symbols only where each stands there often: else no word would ever be seen twice."""
    assert choose_settings(survey(single_words(count))).tables["tokenizer"]["source_kind"] == "character"
    advice = choose_settings(survey(text(count // 5 or 1)))
    assert advice.tables["tokenizer"].get("kind") == "bpe"


@pytest.mark.parametrize(
    ("pairs", "vocabulary", "preset"),
    [(500, 4000, "small"), (19_999, 4000, "small"), (20_000, 10_000, "small"), (300_000, 32_000, "paper_base")],
)
def test_vocabulary_and_model_grow_with_the_corpus(pairs: int, vocabulary: int, preset: str) -> None:
    advice = choose_settings(Survey(pairs, TEXT, TEXT))
    assert advice.tables["tokenizer"]["vocab_size"] == vocabulary
    assert advice.tables["model"]["preset"] == preset
    assert advice.reasons[0].startswith(f"{pairs:,} training pairs")


def test_the_smallest_corpora_get_a_smaller_model() -> None:
    tables = choose_settings(Survey(9_999, TEXT, TEXT)).tables
    assert (tables["model"]["num_layers"], tables["model"]["model_dim"]) == (3, 128)
    assert "num_layers" not in choose_settings(Survey(10_000, TEXT, TEXT)).tables["model"]
    widths = [
        choose_settings(Survey(pairs, TEXT, TEXT)).tables["model"].get("model_dim", 256) for pairs in (49_999, 50_000)
    ]
    assert widths == [128, 256]


def test_a_wider_model_learns_at_a_smaller_rate() -> None:
    rates = [
        choose_settings(Survey(pairs, TEXT, TEXT)).tables["training"]["learning_rate"]
        for pairs in (49_999, 50_000, 300_000)
    ]
    assert rates == [5e-3, 4e-3, 7e-4]


sides = st.sampled_from([SYMBOLS, TEXT, WORD, Side(0.0, 0.0, 0), Side(9e6, 9e5, FEW_WORDS + 1), Side(1.0, 1.0, 1)])


@given(st.integers(1, 1_000_000), sides, sides)
def test_whatever_the_corpus_the_chosen_settings_are_a_recipe(pairs: int, source: Side, target: Side) -> None:
    advice = choose_settings(Survey(pairs, source, target))
    data = {"train": {"source": "a.txt", "target": "b.txt"}}
    made = Recipe.from_tables({"data": data, **advice.tables}, "a test")
    training = made.training
    assert training.epochs is not None and 10 <= training.epochs <= 300
    assert 0 < training.warmup <= 0.2 and 0 < training.validate_every <= 0.1
    planned = made.with_updates(1000).training
    assert (planned.warmup, planned.validate_every, planned.epochs) == (100, 50, None)
    assert training.average_checkpoints <= training.keep_last
    assert all(reason and "\n" not in reason for reason in advice.reasons)


def test_two_files_are_enough_for_a_recipe(tmp_path: Path) -> None:
    for name, side in (("a.txt", 0), ("b.txt", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in text(53)))
    train = {"source": str(tmp_path / "a.txt"), "target": str(tmp_path / "b.txt")}
    found, reasons = read_recipe(None, base={"data": {"train": train}})
    assert found.tokenizer.kind == "bpe"
    assert len(reasons) >= 4


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["training.keep_last=2"], {"keep_last": 2, "average_checkpoints": 2}),
        (["training.average_checkpoints=9"], {"keep_last": 9, "average_checkpoints": 9}),
        (["training.average_checkpoints=1"], {"keep_last": 5, "average_checkpoints": 1}),
    ],
)
def test_what_was_chosen_gives_way_to_what_a_person_gives(
    given: list[str], expected: dict[str, int], tmp_path: Path
) -> None:
    (tmp_path / "a.tsv").write_text("".join("\t".join(pair) + "\n" for pair in text(53)))
    found, reasons = read_recipe(None, given, base={"data": {"train": {"path": str(tmp_path / "a.tsv")}}})
    assert {name: getattr(found.training, name) for name in expected} == expected
    assert reasons[-1] == f"overridden: {given[0].replace('=', ' = ')}"


def test_weight_decay_goes_with_its_optimizer(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text\n" * 50)
    base = {"data": {"train": {"text": str(tmp_path / "a.txt")}}}
    found, reasons = read_recipe(None, ["training.optimizer=adam"], base=base)
    assert (found.training.optimizer, found.training.weight_decay) == ("adam", 0.0)
    assert reasons[-1] == "overridden: training.optimizer = 'adam'"


@pytest.mark.parametrize("given", ["training.updates=77", "training.time_budget='20m'", "training.epochs=3.0"])
def test_a_given_length_replaces_the_chosen_one(given: str, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join("\t".join(pair) + "\n" for pair in text(53)))
    found, reasons = read_recipe(None, [given], base={"data": {"train": {"path": str(tmp_path / "a.tsv")}}})
    assert (found.training.epochs, found.training.time_budget) == (
        3.0 if "epochs" in given else None,
        "20m" if "time" in given else None,
    )
    assert given.split("=")[0] in reasons[-1]


def test_a_model_without_blocks_gets_another_optimizer(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join("\t".join(pair) + "\n" for pair in text(53)))
    base = {"data": {"train": {"path": str(tmp_path / "a.tsv")}}}
    recurrent, reasons = read_recipe(None, ["model.preset=luong"], base=base)
    assert recurrent.training.optimizer == "adamw"
    assert any("no blocks" in reason for reason in reasons)
    assert read_recipe(None, ["model.preset=conv_small"], base=base)[0].training.optimizer == "muon"


def test_exact_matches_select_checkpoints_of_words_where_there_are_enough_to_count(tmp_path: Path) -> None:
    def metric(pairs: list[tuple[str, str]], validated: int, *changes: str) -> str:
        splits = {"train": pairs, "validation": pairs[:validated]}
        for name, rows in splits.items():
            (tmp_path / f"{name}.tsv").write_text("".join("\t".join(pair) + "\n" for pair in rows))
        data = {name: {"path": str(tmp_path / f"{name}.tsv")} for name in splits if splits[name]}
        return read_recipe(None, changes, base={"data": data})[0].training.metric

    words = single_words(997)
    assert metric(words, 100) == "exact_match"
    assert metric(words, 99) == "loss"
    assert metric(words, 0) == "loss"  # fifty are held out
    assert metric(words, 0, "data.validation_fraction=0.2") == "exact_match"
    assert metric(words, 100, "training.decode_examples=0") == "loss"
    assert metric(text(211), 100) == "loss"


@pytest.mark.parametrize(
    ("pairs", "fraction"), [(1, 0.05), (300, 0.05), (2000, 0.05), (3000, 0.034), (4000, 0.025), (9000, 0.012)]
)
def test_of_a_small_corpus_more_is_held_out(pairs: int, fraction: float) -> None:
    chosen = choose_validation(pairs)
    assert chosen.tables == {"data": {"validation_fraction": fraction}} and "held out" in chosen.reasons[0]
    assert not choose_validation(10_000).tables


def test_what_is_held_out_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join("\t".join(pair) + "\n" for pair in text(53)))
    data = {"train": {"path": str(tmp_path / "a.tsv")}}

    def fraction(*changes: str, **more: object) -> float:
        return read_recipe(None, changes, base={"data": {**data, **more}})[0].data.validation_fraction

    assert fraction() == 0.05
    assert fraction("data.validation_fraction=0.3") == 0.3
    assert fraction(validation=data["train"]) == 0.01


def test_characters_are_trained_in_smaller_batches_and_for_fewer_tokens() -> None:
    words, prose = (choose_settings(Survey(20_000, side, side)).tables["training"] for side in (WORD, TEXT))
    assert (words["batch_tokens"], prose["batch_tokens"]) == (2048, 4096)
    assert words["epochs"] == choose_epochs(20_000 * 8, 10e6) and prose["epochs"] == choose_epochs(20_000 * 16.25, 20e6)


def test_a_small_corpus_is_seen_more_often_than_a_large_one() -> None:
    assert [choose_epochs(tokens, 20e6) for tokens in (1, 138_000, 520_000, 10**9)] == [300, 140, 38, 10]

"""Preparing examples: rows, reports that add up, and what is held out, left out or cut."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from transduce.data.prepared import GivenTokenizers, Prepared
from transduce.errors import DataError, SettingsError
from transduce.tasks.catalog import load_prepared, prepare
from transduce.tasks.text_encoding.batches import collate_examples
from transduce.tasks.text_encoding.config import TextEncodingConfig
from transduce.tasks.text_encoding.masking import NOT_NEXT, Masking
from transduce.tasks.text_encoding.preparation import ExamplePreparation
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

PIECES = TokenizerConfig(kind="wordpiece", vocab_size=200, min_frequency=1)
WORDS = ["der", "hund", "läuft", "über", "die", "wiese", "und", "bellt", "laut", "am", "alten", "tor", "vorbei"]


def prepared(folder: Path, size: int = 200, **table: object) -> Prepared:
    data = TextEncodingConfig.from_table({"max_length": 16, **table}, "a test")
    prepare(data, PIECES.but(vocab_size=size), folder / "data")
    return load_prepared(folder / "data", thorough=True)


def test_labelled_texts_become_rows_and_every_line_is_accounted_for(tmp_path: Path) -> None:
    lines = [f"{WORDS[n % 12]} {WORDS[(n // 3) % 12]} {n}\t{'ab'[n % 2]}" for n in range(60)]
    extra = ["\ta", "kein Etikett", lines[0], lines[1], " ".join(WORDS * 3) + "\tc"]
    (tmp_path / "train.tsv").write_text("\n".join([*lines, *extra]) + "\n", encoding="utf-8")
    (tmp_path / "test.tsv").write_text(lines[5].replace("\tb", "\td") + "\n", encoding="utf-8")
    found = prepared(
        tmp_path,
        objective="classify",
        train={"path": str(tmp_path / "train.tsv")},
        test={"path": str(tmp_path / "test.tsv")},
        validation_fraction=0.1,
    )
    report = found.report.train
    dropped = {reason: issue.dropped for reason, issue in report.issues.items() if issue.dropped}
    assert dropped == {"empty": 1, "leaked_source": 1, "duplicate": 2, "columns": 1}
    assert report.issues["cut"].kept == 1
    assert report.read == 65 == report.kept + report.held_out + report.dropped
    assert found.report.labels == ("a", "b", "c", "d")
    assert found.validation is not None and len(found.validation) == report.held_out == 6
    examples = list(found.train.examples())
    texts = {example.texts for example in examples}
    assert not texts & {example.texts for example in found.validation.examples()}
    batch = collate_examples(found.train, np.arange(4), found.source_tokenizer.specials, "classify")
    for row in range(4):
        example = examples[row]
        assert found.report.labels[int(batch.labels[row, 0])] == example.labels[0]
        real = batch.tokens[row][batch.allowed[row]].tolist()
        tokenizer = found.source_tokenizer
        assert real == [tokenizer.start, *tokenizer.encode(example.texts[0]), tokenizer.end]


def test_pairs_have_their_second_text_in_the_second_segment(tmp_path: Path) -> None:
    lines = [f"{word} hund\t{word} tor {n}\tx" for n, word in enumerate(WORDS)]
    (tmp_path / "a.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = prepared(
        tmp_path,
        objective="classify",
        train={"path": str(tmp_path / "a.tsv"), "second_text": 2},
        validation_fraction=0.0,
    )
    tokenizer = found.source_tokenizer
    framed = [tokenizer(*line.split("\t")[:2]) for line in lines]
    batch = collate_examples(found.train, np.arange(len(lines)), tokenizer.specials, "classify")
    for row, expected in enumerate(framed):
        assert batch.tokens[row][batch.allowed[row]].tolist() == expected["input_ids"]
        assert batch.segments[row][batch.allowed[row]].tolist() == expected["token_type_ids"]
    assert int(batch.segments[~batch.allowed].sum()) == 0


def test_words_have_their_label_at_their_first_piece_and_long_sentences_are_split(tmp_path: Path) -> None:
    sentences = [WORDS[:n] for n in range(1, 13)] + [WORDS * 3]
    text = "\n\n".join("\n".join(f"{word} T{len(word)}" for word in words) for words in sentences)
    (tmp_path / "a.conll").write_text(text + "\n", encoding="utf-8")
    found = prepared(tmp_path, objective="tag", train={"path": str(tmp_path / "a.conll")}, validation_fraction=0.0)
    assert found.report.train.issues["split"].kept >= 1
    assert found.report.train.rows is not None and found.report.train.rows > found.report.train.kept == 13
    tokenizer, labels = found.source_tokenizer, found.report.labels or ()
    message: list[str] = []
    batch = collate_examples(found.train, np.arange(len(found.train)), tokenizer.specials, "tag")
    for row in range(len(found.train)):
        for place in np.flatnonzero(batch.labels[row].numpy() >= 0).tolist():
            assert not tokenizer.vocabulary[int(batch.tokens[row, place])].startswith("##")
            message.append(labels[int(batch.labels[row, place])])
    assert sorted(message) == sorted(f"T{len(word)}" for words in sentences for word in words)
    assert batch.num_target_tokens == len(message)
    assert batch.tokens.shape[1] <= 16


def test_an_example_is_no_duplicate_of_one_that_cannot_be_used(tmp_path: Path) -> None:
    context = " ".join(WORDS)
    places = (0, context.index("tor"), context.index("tor"))
    lines = [
        {"question": "wo?", "context": context, "answers": [{"text": "tor", "answer_start": place}]} for place in places
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    found = prepared(tmp_path, objective="answer", train={"path": str(tmp_path / "a.jsonl")}, validation_fraction=0.0)
    dropped = {reason: issue.dropped for reason, issue in found.report.train.issues.items() if issue.dropped}
    assert dropped == {"no_place": 1, "duplicate": 1} and found.report.train.kept == 1


def test_an_answer_stands_in_the_windows_that_hold_all_of_it(tmp_path: Path) -> None:
    context = " ".join(WORDS * 4)
    start = context.index("alten tor", 100)
    example = {"question": "wo?", "context": context, "answers": [{"text": "alten tor", "answer_start": start}]}
    (tmp_path / "a.jsonl").write_text(json.dumps(example) + "\n", encoding="utf-8")
    found = prepared(
        tmp_path, objective="answer", train={"path": str(tmp_path / "a.jsonl")}, validation_fraction=0.0, stride=6
    )
    tokenizer = found.source_tokenizer
    batch = collate_examples(found.train, np.arange(len(found.train)), tokenizer.specials, "answer")
    hits = 0
    for tokens, (first, last) in zip(batch.tokens.tolist(), batch.labels.tolist(), strict=True):
        if first:
            assert tokenizer.decode(tokens[first : last + 1]) == "alten tor"
            hits += 1
    assert 1 <= hits < len(found.train)
    seen = {token for row in batch.tokens.tolist() for token in row}
    assert seen >= set(tokenizer.encode(context))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("plain")
    lines = []
    for n in range(120):
        lines += [" ".join(WORDS[(n + shift) % 12] for shift in range(4 + n % 5)) for _ in range(3)] + [""]
    (folder / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    return prepared(folder, 50, objective="mask", train={"path": str(folder / "a.txt")}, validation_fraction=0.05)


def masking(plain: Prepared, seed: int = 3, **changes: object) -> Masking:
    assert isinstance(plain.data, TextEncodingConfig)
    return Masking(plain.data.but(**changes), plain.source_tokenizer, seed)


def test_hidden_pieces_are_a_function_of_seed_epoch_and_row(plain: Prepared) -> None:
    first = masking(plain).examples(plain.train, [5, 9, 2], 4)
    again = masking(plain).examples(plain.train, [9], 4)
    assert [first[0][1]] == again[0] and [first[1][1]] == again[1]
    assert masking(plain).examples(plain.train, [5, 9, 2], 5) != first
    assert masking(plain, seed=4).examples(plain.train, [5, 9, 2], 4) != first


def test_pieces_are_hidden_at_the_paper_rates(plain: Prepared) -> None:
    """15 % are asked for; of them 80 % are hidden, 10 % exchanged, 10 % left; half of the pairs are foreign."""
    make, tokenizer = masking(plain, mask_probability=0.15), plain.source_tokenizer
    rows = range(len(plain.train))
    asked = hidden = kept = total = foreign = pairs = 0
    for epoch in range(30):
        for read, wanted in zip(*make.examples(plain.train, rows, epoch), strict=True):
            pairs += 1
            foreign += wanted[0] == 1 + NOT_NEXT
            for token, true in zip(read, wanted[1:], strict=True):
                total += token != tokenizer.end
                asked += true > 0
                hidden += true > 0 and token == tokenizer.mask
                kept += true > 0 and token == true - 1
                assert true > 0 or token != tokenizer.mask
    assert asked / total == pytest.approx(0.15, abs=0.02)
    assert hidden / asked == pytest.approx(0.8, abs=0.02)
    assert kept / asked == pytest.approx(0.1, abs=0.02)
    assert foreign / pairs == pytest.approx(0.5, abs=0.04)


def test_what_was_hidden_restores_the_row_and_foreign_halves_are_of_other_documents(plain: Prepared) -> None:
    end = plain.source_tokenizer.end
    for row, (read, wanted) in enumerate(
        zip(*masking(plain).examples(plain.train, range(len(plain.train)), 0), strict=True)
    ):
        restored = [true - 1 if true else token for token, true in zip(read, wanted[1:], strict=True)]
        original = plain.train.tokens[row].tolist()
        cut = original.index(end)
        assert restored[: cut + 1] == original[: cut + 1]
        if wanted[0] == 1 + NOT_NEXT:
            others = [
                other
                for other in range(len(plain.train))
                if plain.train.tokens[other].tolist()[plain.train.tokens[other].tolist().index(end) :] == restored[cut:]
            ]
            assert any(plain.train.groups[other] != plain.train.groups[row] for other in others)
        else:
            assert restored == original


def test_whole_word_masking_are_hidden_or_none_of_them(plain: Prepared) -> None:
    make, tokenizer = masking(plain, whole_word_masking=True, mask_probability=0.3), plain.source_tokenizer
    starts = {n for n, piece in enumerate(tokenizer.vocabulary) if not piece.startswith("##")}
    several = 0
    for _, wanted, row in zip(*make.examples(plain.train, range(80), 0), range(80), strict=True):
        if wanted[0] == 1 + NOT_NEXT:
            continue
        tokens, asked = plain.train.tokens[row].tolist(), [true > 0 for true in wanted[1:]]
        for place in range(1, len(tokens)):
            if tokens[place] not in starts and tokens[place - 1] != tokenizer.end:
                assert asked[place] == asked[place - 1]
                several += asked[place]
    assert several > 0


def test_one_document_cannot_be_asked_whether_sentences_follow(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(" ".join(WORDS) for _ in range(9)), encoding="utf-8")
    table = {"objective": "mask", "train": {"path": str(tmp_path / "a.txt")}, "validation_fraction": 0.0}
    with pytest.raises(DataError, match="two training documents"):
        prepared(tmp_path, **table)
    found = prepared(tmp_path, **table, next_sentence=False)
    read, wanted = masking(found).examples(found.train, [0], 0)
    assert wanted[0][0] == 0 and len(read[0]) <= 14


def test_a_tokenizer_that_was_given_is_kept_and_must_be_able_to_hide(tmp_path: Path, plain: Prepared) -> None:
    (tmp_path / "a.txt").write_text("der hund\nbellt laut\n\nam tor\nvorbei am tor\n", encoding="utf-8")
    table = {"objective": "mask", "train": {"path": str(tmp_path / "a.txt")}, "validation_fraction": 0.0}
    data = TextEncodingConfig.from_table(table, "a test")
    given = GivenTokenizers(plain.source_tokenizer, plain.source_tokenizer)
    ExamplePreparation(data, PIECES, given=given).run(tmp_path / "data")
    assert load_prepared(tmp_path / "data").source_tokenizer.to_json() == plain.source_tokenizer.to_json()
    plainer = train_tokenizer("wordpiece", WORDS, PIECES)
    with pytest.raises(SettingsError, match="no mask token"):
        ExamplePreparation(data, PIECES, given=GivenTokenizers(plainer, plainer)).run(tmp_path / "data")


def test_corpora_are_mixed_by_weight(tmp_path: Path) -> None:
    for name, count in (("a", 6), ("b", 4)):
        lines = [f"{WORDS[n]} {name}\t{name}" for n in range(count)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    train = [{"path": str(tmp_path / "a.tsv")}, {"path": str(tmp_path / "b.tsv"), "weight": 2.0}]
    found = prepared(tmp_path, objective="classify", train=train, validation_fraction=0.0)
    assert [(corpus.size, corpus.weight) for corpus in found.train.corpora] == [(6, 1.0), (4, 2.0)]


def test_an_empty_result_is_reported_with_its_reasons(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("x\ta\ny\tb\n", encoding="utf-8")
    (tmp_path / "b.tsv").write_text("no label\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"no test example is left of 1: 1 dropped because a column"):
        prepared(
            tmp_path,
            objective="classify",
            train={"path": str(tmp_path / "a.tsv")},
            test={"path": str(tmp_path / "b.tsv")},
            validation_fraction=0.0,
        )


def test_questions_that_are_cut_are_counted(tmp_path: Path) -> None:
    long = {"question": " ".join(WORDS), "context": "am tor", "answers": [{"text": "tor", "answer_start": 3}]}
    (tmp_path / "a.jsonl").write_text(json.dumps(long) + "\n", encoding="utf-8")
    found = prepared(tmp_path, objective="answer", train={"path": str(tmp_path / "a.jsonl")}, validation_fraction=0.0)
    assert found.report.train.issues["question_cut"].kept == 1


def test_words_that_are_cut_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("hund\tA\ntor\tB\n", encoding="utf-8")
    (tmp_path / "b.conll").write_text(f"{'hundtor' * 4}\tA\n", encoding="utf-8")
    train, test = ({"path": str(tmp_path / f"{name}.conll"), "format": "conll"} for name in "ab")
    data = TextEncodingConfig.from_table({"max_length": 8, "objective": "tag", "train": train, "test": test}, "a test")
    prepare(data, PIECES.but(kind="character", vocab_size=300), tmp_path / "data")
    report = load_prepared(tmp_path / "data").report
    assert report.test is not None
    assert report.test.issues["word_cut"].kept == 1 and "word_cut" not in report.train.issues


def test_questions_without_an_answer_need_a_setting(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"question": "wo?", "context": "am tor", "answers": []}) + "\n")
    with pytest.raises(DataError, match=r"none of the 1 examples can be used .*, or set data\.allow_no_answer=true"):
        prepared(tmp_path, objective="answer", train={"path": str(tmp_path / "a.jsonl")})


def test_an_answer_longer_than_what_is_read_at_once_is_not_taught_as_none(tmp_path: Path) -> None:
    context = " ".join(WORDS * 4)
    rows = [("tor", context.index("tor")), (context[:200], 0)]
    lines = [
        json.dumps({"question": "wo?", "context": context, "answers": [{"text": text, "answer_start": at}]})
        for text, at in rows
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    found = prepared(tmp_path, objective="answer", train={"path": str(tmp_path / "a.jsonl")}, validation_fraction=0.0)
    report = found.report.train
    assert (report.kept, report.issues["no_window"].dropped, report.issues["split"].kept) == (1, 1, 1)


def test_two_answers_to_one_question_are_two_examples(tmp_path: Path) -> None:
    rows = [("am", 0), ("tor", 3), ("tor", 3)]
    lines = [
        json.dumps({"question": "wo?", "context": "am tor", "answers": [{"text": text, "answer_start": at}]})
        for text, at in rows
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    report = prepared(tmp_path, objective="answer", train={"path": str(tmp_path / "a.jsonl")}).report.train
    assert (report.kept + report.held_out, report.issues["duplicate"].dropped) == (2, 1)


def test_a_pipe_is_rejected_since_examples_are_read_several_times(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.tsv")
    for path in (str(tmp_path / "a.tsv"), "-"):
        with pytest.raises(DataError, match="give a file"):
            prepared(tmp_path, objective="classify", train={"path": path, "format": "tsv"})


def test_a_file_that_changes_while_it_is_read_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("am tor\ta\nam hund\tb\n")

    def learn(*_: object) -> object:
        path.write_text(path.read_text() + "die wiese\ta\n")
        return train_tokenizer("wordpiece", ["am tor hund wiese"], PIECES)

    monkeypatch.setattr("transduce.tasks.text_encoding.preparation.train_encoder_tokenizer", learn)
    with pytest.raises(DataError, match="changed while it was being read"):
        prepared(tmp_path, objective="classify", train={"path": str(path)}, validation_fraction=0.0)


def test_what_has_no_answer_is_not_held_out(tmp_path: Path) -> None:
    """Half of the questions cannot be learnt from; whichever are held out, they are of the other half."""
    lines = []
    for number in range(20):
        context = f"am tor {number}"
        answers = [{"text": "tor", "answer_start": 3}] if number % 2 else []
        lines.append(json.dumps({"question": "wo?", "context": context, "answers": answers}))
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    found = prepared(tmp_path, objective="answer", train={"path": str(tmp_path / "a.jsonl")}, validation_fraction=0.5)
    assert found.report.validation is not None
    assert (found.report.train.kept, found.report.validation.kept) == (5, 5)
    assert found.report.train.issues["unanswered"].dropped == 10


def test_a_token_that_is_left_over_when_sentences_are_paired_is_counted(tmp_path: Path) -> None:
    """Six tokens fit a half: of the first document "tor" makes no pair, of the second the thirteenth word of one."""
    documents = ["\n".join([" ".join(WORDS[:6]), " ".join(WORDS[6:12]), "tor"]), " ".join([*WORDS[:12], "tor"])]
    (tmp_path / "a.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    data = {
        "objective": "mask",
        "train": {"path": str(tmp_path / "a.txt")},
        "validation_fraction": 0.0,
        "max_length": 15,
    }
    prepare(
        TextEncodingConfig.from_table(data, "a test"), TokenizerConfig(kind="word", min_frequency=1), tmp_path / "data"
    )
    found = load_prepared(tmp_path / "data")
    report = found.report.train
    assert report.issues["left_over"].dropped == 1
    assert report.issues["left_over"].examples[0].source == "tor"
    assert report.issues["cut"].kept == 1 and report.issues["cut"].dropped == 0
    assert (report.read, report.kept, report.dropped) == (4, 3, 1)
    assert len(found.train) == 2
    assert found.train.source_lengths[:].sum() == 2 * 13  # twelve words and the mark between two halves

"""Trees as sequences: written, read, scored by hand-made cases; treebanks, generated and in CoNLL-U."""

from __future__ import annotations

from pathlib import Path

import pytest

from transduce.errors import DataError, MissingInput
from transduce.experiments.grammar import Grammar, Node
from transduce.experiments.treebank import (
    BracketingF1,
    brackets,
    convert_treebank,
    generate_treebank,
    is_balanced,
    linearise,
    read_conllu,
)

TREE = Node("S", (Node("NP", ("the", "dog")), Node("VP", ("sees", Node("NP", ("her",)), Node("ADVP", ("today",))))))
SYMBOLS = "(S (NP w w ) (VP w NP ADVP ) )"


def test_a_tree_is_written_and_read() -> None:
    assert linearise(TREE) == SYMBOLS
    found = {("S", 0, 5), ("NP", 0, 2), ("VP", 2, 5), ("NP", 3, 4), ("ADVP", 4, 5)}
    assert set(brackets(SYMBOLS)) == found and brackets(SYMBOLS).total() == 5


def test_malformed_brackets_are_read_as_far_as_they_go() -> None:
    assert set(brackets("(S (NP w w ) w")) == {("S", 0, 3), ("NP", 0, 2)}
    assert set(brackets(") ) NP )")) == {("NP", 0, 1)}
    assert not brackets("")
    assert [is_balanced(text) for text in (SYMBOLS, "(S w", "(S w ) )", "(S w ) NP", "", "NP")] == [
        True,
        False,
        False,
        False,
        False,
        True,
    ]


def test_f1_by_hand() -> None:
    metric = BracketingF1()
    assert metric.score([SYMBOLS], [[SYMBOLS]]).value == 100
    # one of two predicted brackets is among the five true ones: F1 = 2 · 1 / (2 + 5)
    assert metric.score(["(S (VP w w ) w w w )"], [[SYMBOLS]]).value == pytest.approx(200 / 7)
    # right words, wrong label; and a bracket that is predicted twice counts once
    assert metric.score(["(X (NP w w ) w w w )"], [[SYMBOLS]]).value == pytest.approx(200 / 7)
    assert metric.score(["(S (S w w w w w ) )"], [[SYMBOLS]]).value == pytest.approx(200 / 7)
    # over the corpus, not the mean of sentences: 2 · (5 + 0) / (10 + 5)
    assert metric.score([SYMBOLS, ""], [[SYMBOLS], [SYMBOLS]]).value == pytest.approx(1000 / 15)
    assert metric.score([""], [[SYMBOLS]]).value == 0


def test_a_generated_treebank_has_a_bracket_for_every_phrase(tmp_path: Path) -> None:
    corpus = generate_treebank(tmp_path, train=20, held_out=3)
    assert {split: len(corpus.test_set(split).sources) for split in corpus.files} == {
        "train": 20,
        "validation": 3,
        "test": 3,
    }
    test = corpus.test_set("train")
    drawn = [sentence.tree for sentence in Grammar("train").sentences(20)]
    for words, [symbols], tree in zip(test.sources, test.references, drawn, strict=True):
        assert is_balanced(symbols) and max(end for _, _, end in brackets(symbols)) == len(words.split())
        assert brackets(symbols).total() == _count(tree)


def _count(node: Node) -> int:
    return 1 + sum(_count(part) for part in node.parts if isinstance(part, Node))


def _sentence(*words: tuple[str, int, str]) -> str:
    rows = [f"{i}\t{w}\t_\t_\t_\t_\t{head}\t{label}\t_\t_" for i, (w, head, label) in enumerate(words, start=1)]
    return "# text = it\n" + "\n".join(["1-2\tab\t_\t_\t_\t_\t_\t_\t_\t_", *rows, "1.1\te\t_\t_\t_\t_\t_\t_\t_\t_"])


PROJECTIVE = _sentence(("the", 2, "det"), ("dog", 3, "nsubj:pass"), ("sleeps", 0, "root"), (".", 3, "punct"))
CROSSING = _sentence(("a", 3, "det"), ("b", 4, "nsubj"), ("c", 0, "root"), ("d", 3, "obj"))
FILES = ("x-ud-train.conllu", "x-ud-dev.conllu", "x-ud-test.conllu")


def test_dependencies_become_brackets_and_crossing_ones_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "ud").mkdir()
    for name in FILES:
        (tmp_path / "ud" / name).write_text(f"{PROJECTIVE}\n\n{CROSSING}\n\n{PROJECTIVE}\n")
    assert [tree is None for tree in read_conllu(tmp_path / "ud" / FILES[0])] == [False, True, False]
    corpus, left_out = convert_treebank(tmp_path / "ud", tmp_path, train=1)
    assert left_out == 3 and len(corpus.test_set("train").sources) == 1
    test = corpus.test_set("test")
    assert test.sources == ["the dog sleeps ."] * 2
    assert test.references[0] == ["(root (nsubj det w ) w punct )"]


def test_a_folder_without_a_treebank_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match="nowhere"):
        convert_treebank(tmp_path / "nowhere", tmp_path)
    with pytest.raises(MissingInput, match="0 files for train"):
        convert_treebank(tmp_path, tmp_path)
    (tmp_path / FILES[0]).write_text("1\tword\n")
    with pytest.raises(DataError, match=r"train\.conllu:1"):
        convert_treebank(tmp_path, tmp_path)


def test_ud_english_lines_is_read_if_it_is_there(tmp_path: Path) -> None:
    folder = Path(__file__).resolve().parents[4] / "shared" / "data" / "ud-english-lines"
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing; CONTRIBUTING.md lists the corpora")
    tree = next(found for found in read_conllu(folder / "en_lines-ud-dev.conllu.gz") if found is not None)
    assert is_balanced(linearise(tree))

"""Trees as sequences: brackets written and read, labelled bracketing F1, and treebanks, generated or in CoNLL-U.

A tree becomes a sequence of symbols without the words, as in Vinyals et al. (2015): an opening bracket with a label,
`w` for each word, and a closing bracket. A bracket around one word is written as its label alone, which shortens the
sequence by a third:

    the dog sees her today         (S (NP w w ) (VP w NP ADVP ) )

A dependency tree is written the same way: each word's subtree is a bracket with its relation, and `w` is its head.
Trees that are not projective have no such brackets and are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transduce import __version__
from transduce.errors import DataError, MissingInput
from transduce.evaluation.metrics import Counts, Metric, References, Score, check_references, reference_count
from transduce.experiments.grammar import Grammar, Node
from transduce.experiments.study_corpus import StudyCorpus, write_splits
from transduce.text.lines import read_lines

WORD, CLOSE = "w", ")"
MAX_WORDS = 40
"""Longer sentences of a treebank are left out."""
EXPECTED = "one file each that ends in train.conllu, dev.conllu and test.conllu, plain or .gz"

Bracket = tuple[str, int, int]
"""Label, first word, word after the last."""


def linearise(node: Node) -> str:
    """Write a tree as a sequence of symbols."""
    return " ".join(_symbols(node))


def _symbols(node: Node) -> Iterator[str]:
    if len(node.parts) == 1 and isinstance(node.parts[0], str):
        yield node.label
        return
    yield f"({node.label}"
    for part in node.parts:
        if isinstance(part, str):
            yield WORD
        else:
            yield from _symbols(part)
    yield CLOSE


def brackets(symbols: str) -> Counter[Bracket]:
    """Read a sequence as labelled brackets over word positions.

    A model may write anything: a closing bracket without an opening one is ignored, and brackets that are never closed
    end with the sequence.
    """
    found: Counter[Bracket] = Counter()
    opened: list[tuple[str, int]] = []
    place = 0
    for symbol in symbols.split():
        if symbol == WORD:
            place += 1
        elif symbol == CLOSE:
            if opened:
                label, start = opened.pop()
                found[label, start, place] += 1
        elif symbol.startswith("("):
            opened.append((symbol[1:], place))
        else:
            found[symbol, place, place + 1] += 1
            place += 1
    for label, start in opened:
        found[label, start, place] += 1
    return found


@dataclass(frozen=True)
class BracketingF1(Metric):
    """Labelled bracketing F1 (PARSEVAL): brackets with the same label and the same words, over the whole corpus.

    Unlike EVALB it ignores nothing: the outermost bracket and punctuation count, too.
    """

    name: str = "bracketing_f1"
    higher_is_better: bool = True

    def statistics(self, hypotheses: Sequence[str], references: References) -> Counts:
        """Count (matched, predicted, true) brackets of each sentence, against its first reference."""
        rows = []
        for hypothesis, several in zip(hypotheses, check_references(hypotheses, references), strict=True):
            predicted, true = brackets(hypothesis), brackets(several[0])
            rows.append(((predicted & true).total(), predicted.total(), true.total()))
        return np.array(rows, dtype=np.float64)

    def value(self, total: Counts) -> float:
        matched, predicted, true = total.tolist()
        return float(200.0 * matched / max(predicted + true, 1.0))

    def show(self, value: float) -> str:
        return f"{value:.2f}"

    def score(self, hypotheses: Sequence[str], references: References) -> Score:
        value = self.value(self.statistics(hypotheses, references).sum(axis=0))
        signature = f"nrefs:{reference_count(references)}|rule:labelled-brackets|version:{__version__}"
        return Score(self.name, value, signature, self.show(value))


def is_balanced(symbols: str) -> bool:
    """Whether the brackets of a sequence are those of one tree."""
    depth, closed = 0, False
    for symbol in symbols.split():
        if closed:
            return False
        depth += symbol.startswith("(") - (symbol == CLOSE)
        closed = depth == 0
    return closed


# Treebanks


def generate_treebank(folder: Path, train: int, held_out: int) -> StudyCorpus:
    """Write sentences of the generated grammar with their trees."""

    def pairs(split: str, size: int) -> list[tuple[str, str]]:
        drawn = Grammar(split).sentences(size)
        return [(" ".join(sentence.tree.words()), linearise(sentence.tree)) for sentence in drawn]

    sizes = {"train": train, "validation": held_out, "test": held_out}
    splits = {split: pairs(split, size) for split, size in sizes.items()}
    return write_splits(folder / f"trees-{train}-{held_out}", splits, ("words", "tree"), "generated")


def convert_treebank(data: Path, folder: Path, train: int | None = None) -> tuple[StudyCorpus, int]:
    """Write the sentences of a CoNLL-U treebank with their trees; return the number of those left out, too.

    `train` limits the training sentences to the first ones.
    """
    if not data.is_dir():
        raise MissingInput(f"{data}: no such folder; --data needs one with {EXPECTED}")
    splits, left_out = {}, 0
    for split, ending in (("train", "train"), ("validation", "dev"), ("test", "test")):
        found = sorted([*data.glob(f"*{ending}.conllu"), *data.glob(f"*{ending}.conllu.gz")])
        if len(found) != 1:
            raise MissingInput(f"{data}: has {len(found)} files for {split}; --data needs {EXPECTED}")
        trees = list(read_conllu(found[0]))
        kept = [(" ".join(tree.words()), linearise(tree)) for tree in trees if tree is not None]
        left_out += len(trees) - len(kept)
        splits[split] = kept[:train] if split == "train" else kept
    return write_splits(folder / f"trees-{data.name}-{train or 'all'}", splits, ("words", "tree"), data.name), left_out


def read_conllu(path: Path) -> Iterator[Node | None]:
    """Yield the trees of a file; None for one that is not projective, or too long."""
    rows: list[list[str]] = []
    for number, line in enumerate([*read_lines(str(path)), ""], start=1):
        columns = line.split("\t")
        if columns == [""]:
            if rows:
                yield _dependency_tree(rows)
            rows = []
        elif not line.startswith("#") and columns[0].isdecimal():  # not 3-4 (contractions) or 3.1 (empty nodes)
            if len(columns) != 10 or not columns[6].isdecimal():
                raise DataError(f"{path}:{number}: is not a line of CoNLL-U; it needs ten columns and a head")
            rows.append(columns)


def _dependency_tree(rows: Sequence[Sequence[str]]) -> Node | None:
    """Return the tree of one sentence: subtrees with the universal relation (the part before a colon) as labels."""
    heads = [int(columns[6]) for columns in rows]
    dependents: dict[int, list[int]] = {}
    for place, head in enumerate(heads, start=1):
        dependents.setdefault(head, []).append(place)
    if len(rows) > MAX_WORDS or len(dependents.get(0, ())) != 1:
        return None

    def subtree(place: int) -> tuple[Node, list[int]]:
        parts, covered = list[Node | str](), list[int]()
        for each in sorted([place, *dependents.get(place, ())]):
            part, places = (rows[place - 1][1].replace(" ", "_"), [place]) if each == place else subtree(each)
            parts.append(part)
            covered += places
        return Node(rows[place - 1][7].partition(":")[0], tuple(parts)), covered

    tree, covered = subtree(dependents[0][0])
    return tree if covered == list(range(1, len(rows) + 1)) else None

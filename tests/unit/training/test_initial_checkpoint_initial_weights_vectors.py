"""Embeddings that start from a file of word vectors."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.unit.training.example import recipe
from transduce.config import Table
from transduce.errors import DataError, MissingInput, ModelFolderError
from transduce.nn.embedding import Embedding
from transduce.run import train
from transduce.text.tokenizer.tokenizer import Tokenizer, TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer
from transduce.training.initial_checkpoint import start_from_vectors

LINES = ["cat 1 2 3.5", "dog -4 5e-1 6", "zebra 7 8 9"]


def words(kind: str = "word") -> Tokenizer:
    config = TokenizerConfig(kind=kind, min_frequency=1, vocab_size=400)
    return train_tokenizer(kind, ["the cat saw the dog", "the dog saw the cat"] * 3, config)


def embedding(tokenizer: Tokenizer, scaled: bool = True) -> Embedding:
    made = Embedding(tokenizer.size, 3, scaled=scaled)
    torch.nn.init.normal_(made.weight, generator=torch.Generator().manual_seed(1))
    return made


def write(folder: Path, *lines: str) -> str:
    path = folder / "vectors.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("scaled", [True, False])
def test_covered_tokens_come_out_as_the_file_says_and_the_others_as_they_were(tmp_path: Path, scaled: bool) -> None:
    tokenizer = words()
    table = embedding(tokenizer, scaled)
    before = table.weight.detach().clone()
    found = start_from_vectors(table, tokenizer, write(tmp_path, *LINES))
    cat, dog = tokenizer.encode("cat dog")
    assert found == 2
    assert table(torch.tensor([cat, dog])).tolist() == [
        pytest.approx([1, 2, 3.5], rel=1e-6),
        pytest.approx([-4, 0.5, 6], rel=1e-6),
    ]
    others = [token for token in range(tokenizer.size) if token not in (cat, dog)]
    assert torch.equal(table.weight[others], before[others])


def test_the_first_line_of_word2vec_is_skipped_and_spaces_at_the_end_too(tmp_path: Path) -> None:
    tokenizer = words()
    table = embedding(tokenizer)
    assert start_from_vectors(table, tokenizer, write(tmp_path, "3 3", *(f"{line} " for line in LINES))) == 2


def test_a_word_may_have_spaces_in_it_but_not_numbers_at_its_end(tmp_path: Path) -> None:
    tokenizer = words()
    lines = [". . . 1 2 3", "at a@b.org 4 5 6", *LINES]
    assert start_from_vectors(embedding(tokenizer), tokenizer, write(tmp_path, *lines)) == 2
    with pytest.raises(DataError, match=r"vectors.txt:3: has 4 numbers for 'mouse'"):
        start_from_vectors(embedding(tokenizer), tokenizer, write(tmp_path, *LINES[:2], "mouse 1 2 3 4"))


def test_a_gzipped_file_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt.gz"
    path.write_bytes(gzip.compress("\n".join(LINES).encode()))
    tokenizer = words()
    assert start_from_vectors(embedding(tokenizer), tokenizer, str(path)) == 2


def test_a_piece_is_looked_up_without_its_mark_for_a_space(tmp_path: Path) -> None:
    tokenizer = words("bpe")
    table = embedding(tokenizer)
    (cat,) = tokenizer.encode("cat")
    assert tokenizer.pieces([cat]) == ["▁cat"]
    start_from_vectors(table, tokenizer, write(tmp_path, *LINES))
    assert table(torch.tensor(cat)).tolist() == pytest.approx([1, 2, 3.5], rel=1e-6)


def test_a_word_that_stands_there_twice_counts_once(tmp_path: Path) -> None:
    tokenizer = words()
    assert start_from_vectors(embedding(tokenizer), tokenizer, write(tmp_path, *LINES, *LINES)) == 2


@pytest.mark.parametrize("freeze", [True, False])
def test_a_run_goes_on_without_the_file_it_began_with_and_not_with_another(tmp_path: Path, freeze: bool) -> None:
    path = write(tmp_path, *(f"{symbol} {' '.join(['0.5'] * 14)}" for symbol in "abcd"))
    training = {"source_vectors": path, "freeze_vectors": freeze, "updates": 10}
    untied: Table = {"model": {"tied_embeddings": "target"}, "tokenizer": {"joint": False}}
    for name in ("whole", "run", "other"):
        train(recipe(training=training, **untied), tmp_path / name)
    weights = load_file(tmp_path / "run/model/model.safetensors")["source_embedding.weight"]
    assert int(weights.unique(dim=0, return_counts=True)[1].max()) == (4 if freeze else 1)
    longer = recipe(training={**training, "updates": 15}, **untied)
    train(longer, tmp_path / "whole", resume=True)
    write(tmp_path, "a " + " ".join(["0.25"] * 14))
    with pytest.raises(ModelFolderError, match="was saved with source_vectors"):
        train(longer, tmp_path / "other", resume=True)
    Path(path).unlink()
    train(longer, tmp_path / "run", resume=True)
    files = [(tmp_path / name / "model/model.safetensors").read_bytes() for name in ("whole", "run")]
    assert files[0] == files[1]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["cat 1 2"], "vectors.txt:1: has 2 numbers for 'cat', but the embedding is 3 wide"),
        (["cat 1 2 3", "dog 1 2 3 4"], "vectors.txt:2: has 4 numbers for 'dog', but the embedding is 3 wide"),
        (["cat 1 x 3"], "vectors.txt:1: not all of its values are numbers"),
        (["cat 1 nan 3"], "vectors.txt:1: not all of its values are finite"),
        (["zebra 1 2 3"], "none of the"),
        ([], "none of the"),
    ],
    ids=str,
)
def test_a_file_that_does_not_fit_is_rejected_with_its_line(tmp_path: Path, lines: list[str], message: str) -> None:
    tokenizer = words()
    with pytest.raises(DataError) as refusal:
        start_from_vectors(embedding(tokenizer), tokenizer, write(tmp_path, *lines))
    assert message in str(refusal.value)


def test_a_missing_file_is_reported_as_missing(tmp_path: Path) -> None:
    tokenizer = words()
    with pytest.raises(MissingInput):
        start_from_vectors(embedding(tokenizer), tokenizer, str(tmp_path / "none.txt"))

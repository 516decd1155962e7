"""The batches of translation, with BPE-dropout: every pair once, whatever its tokens in this epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from transduce.data.batching import PairBatch
from transduce.data.order import Position
from transduce.data.prepared import Prepared
from transduce.errors import SettingsError
from transduce.tasks.catalog import load_prepared, prepare, task_for
from transduce.tasks.translation.config import TranslationConfig
from transduce.tasks.translation.task import BpeDropoutRows, Limits
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.training.config import TrainingConfig
from transduce.training.task import BatchSource


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """211 pairs of words that a BPE tokenizer joins."""
    folder = tmp_path_factory.mktemp("corpus")
    words = ["lantern", "harbour", "winter", "letter", "garden", "silver", "morning"]
    sources = [
        " ".join(words[(row + place * row) % 7] for place in range(1 + row % 5)) + f" {row}" for row in range(211)
    ]
    (folder / "source").write_text("\n".join(sources) + "\n", encoding="utf-8")
    (folder / "target").write_text("\n".join(line.upper() for line in sources) + "\n", encoding="utf-8")
    files = {"source": str(folder / "source"), "target": str(folder / "target")}
    data = TranslationConfig.from_table({"train": files, "validation_fraction": 0.0}, "a test")
    prepare(data, TokenizerConfig(kind="bpe", vocab_size=400), folder / "prepared")
    return load_prepared(folder / "prepared")


def config(rate: float, **changes: object) -> TrainingConfig:
    return TrainingConfig(batch_tokens=211, bpe_dropout=rate, **changes)


def feed(corpus: Prepared, rate: float, limits: Limits = (None, None), **changes: object) -> BatchSource:
    """The batches of a run; the model is only asked for its limits and its device."""
    model = SimpleNamespace(max_source=limits[0], max_target=limits[1], device=torch.device("cpu"))
    return task_for(corpus.data).batch_source(corpus, config(rate, **changes), model)  # type: ignore[arg-type]


def one_epoch(feeding: BatchSource, number: int = 0) -> Iterator[tuple[Position, PairBatch]]:
    for after, batch in feeding.starting(Position(epoch=number)):
        yield after, batch
        if after.epoch > number:
            return


def texts(corpus: Prepared, batches: Iterator[tuple[Position, PairBatch]]) -> Counter[tuple[str, str]]:
    source, target = corpus.source_tokenizer, corpus.target_tokenizer
    return Counter(
        (source.decode(line), target.decode(other))
        for _, batch in batches
        for line, other in zip(batch.source.tolist(), batch.target.tolist(), strict=True)
    )


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_an_epoch_has_every_pair_once_and_reads_the_same(corpus: Prepared, rate: float) -> None:
    found = texts(corpus, one_epoch(feed(corpus, rate)))
    assert found == Counter(corpus.train.text(row) for row in range(211))


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_batches_have_no_more_pairs_than_they_may(corpus: Prepared, rate: float) -> None:
    sizes = [len(batch.source) for _, batch in one_epoch(feed(corpus, rate, max_batch_size=5))]
    assert max(sizes) == 5 and sum(sizes) == 211
    assert max(len(batch.source) for _, batch in one_epoch(feed(corpus, rate))) > 5


def test_dropped_merges_make_more_tokens_and_each_epoch_has_its_own(corpus: Prepared) -> None:
    tokens = [
        sorted(tuple(line) for _, batch in one_epoch(feed(corpus, rate), epoch) for line in batch.source.tolist())
        for rate, epoch in ((0.0, 0), (0.3, 0), (0.3, 1), (0.3, 0))
    ]
    end = corpus.source_tokenizer.end
    lengths = [sum(line.index(end) for line in epoch) for epoch in tokens]
    assert lengths[0] == corpus.train.source_lengths[:].sum()
    assert lengths[1] > 1.2 * lengths[0]
    assert tokens[1] != tokens[2]
    assert tokens[1] == tokens[3]


def test_a_batch_stays_within_the_budget(corpus: Prepared) -> None:
    for _, batch in one_epoch(feed(corpus, 0.3)):
        assert batch.source.numel() <= 211
        assert len(batch.target) * (batch.target.shape[1] - 1) <= 211


def test_from_a_position_on_the_batches_are_the_same(corpus: Prepared) -> None:
    whole = list(one_epoch(feed(corpus, 0.3)))
    position = whole[4][0]
    again = feed(corpus, 0.3).starting(position)
    for _, expected in whole[5:9]:
        _, found = next(again)
        assert torch.equal(found.source, expected.source)
        assert torch.equal(found.target, expected.target)


def test_a_line_that_would_grow_beyond_the_models_positions_keeps_its_tokens(corpus: Prepared) -> None:
    longest = int(corpus.train.source_lengths[:].max())
    limit = longest + 2
    for _, batch in one_epoch(feed(corpus, 0.9, limits=(limit, None))):
        assert batch.source.shape[1] <= limit


def test_source_and_target_of_a_line_are_cut_independently(corpus: Prepared) -> None:
    """The same words on both sides are not cut alike: the sides have keys of their own."""
    dropout, other = BpeDropoutRows(corpus, config(0.5), (None, None))._dropouts
    line = "lantern harbour winter letter"
    pairs = [(dropout.encode(line, 0, 2 * place), other.encode(line, 0, 2 * place + 1)) for place in range(50)]
    assert sum(first == second for first, second in pairs) < 25


def test_other_tokenizers_have_no_merges_to_leave_out(prepared: Prepared) -> None:
    with pytest.raises(SettingsError, match=r"tokenizer of kind word"):
        feed(prepared, 0.1)

"""Our update beside the loop that everybody writes: the same first weights and batches give the same losses."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from transduce.data.batching import PairBatch, collate, cut_by_budget
from transduce.data.store import PairStore
from transduce.models.catalog import build
from transduce.models.interface import AnyTransducer, VocabularySizes
from transduce.models.transformer import TransformerConfig
from transduce.tasks.transducer import transducer_loss
from transduce.text.tokenizer.special import Specials
from transduce.training.config import TrainingConfig
from transduce.training.step import TrainStep

VOCABULARY = 53
SPECIALS = Specials(pad=0, start=1, end=2)
SMOOTHING = 0.1
UPDATES = 8


def model(**changes: object) -> AnyTransducer:
    config = TransformerConfig(model_dim=16, ffn_dim=29, num_heads=2, num_layers=2, dropout=0.0).but(**changes)
    return build(config, VocabularySizes(VOCABULARY, VOCABULARY), seed=3)


def batches() -> list[PairBatch]:
    """Pairs of all lengths, so that there is padding to get wrong."""
    draw = np.random.default_rng(5)
    rows = [[draw.integers(3, VOCABULARY, size=draw.integers(1, 12)).tolist() for _ in range(90)] for _ in range(2)]
    store = PairStore.of(*rows)
    cut = cut_by_budget(np.arange(90), store.source_lengths[:], store.target_lengths[:], 120)
    return [collate(store, some, SPECIALS, SPECIALS) for some in cut][:UPDATES]


def plain_losses(trained: AnyTransducer, every: list[PairBatch]) -> list[float]:
    """torch's loss, torch's Adam, the mean over all real tokens."""
    optimizer = torch.optim.Adam(trained.parameters(), lr=0.01, betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for batch in every:
        entered, expected = batch.target[:, :-1], batch.target[:, 1:]
        logits = trained.logits(trained(entered, trained.encode(batch.source, batch.source_allowed)))
        loss = F.cross_entropy(
            logits.flatten(0, 1), expected.flatten(), ignore_index=SPECIALS.pad, label_smoothing=SMOOTHING
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize(("threads", "micro_batch_tokens"), [(1, 2048), (1, 40), (2, 40)])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_losses_are_those_of_the_plain_loop(norm: str, threads: int, micro_batch_tokens: int) -> None:
    ours, every = model(norm=norm), batches()
    expected = plain_losses(copy.deepcopy(ours).train(), every)
    config = TrainingConfig(
        threads=threads,
        micro_batch_tokens=micro_batch_tokens,
        learning_rate=0.01,
        label_smoothing=SMOOTHING * (VOCABULARY - 1) / VOCABULARY,  # of the others alone, as the paper has it
    )
    train_step, losses = TrainStep(ours, transducer_loss, config), []
    for update, batch in enumerate(every, start=1):
        outcome = train_step.run([batch], update, rate=0.01, micro_batch_tokens=micro_batch_tokens)
        losses.append(outcome.loss / outcome.tokens)
    train_step.workers.close()
    assert losses == pytest.approx(expected, rel=1e-5)
    assert max(losses) - min(losses) > 0.01, "the weights moved"

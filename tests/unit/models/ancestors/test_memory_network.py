"""The memory network: its equations by hand, one story at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from transduce.errors import SettingsError
from transduce.models.ancestors.memory_network import AnswerHead, MemoryNetwork, MemoryNetworkConfig
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.nn.dropout import DropoutKey, set_dropout_key

STORY = [[7, 3, 11], [5, 2], [13, 17, 19, 4], [6, 8]]
"""Three facts, the oldest first, and a question."""


def network(**changes: object) -> MemoryNetwork:
    model = build(
        MemoryNetworkConfig(model_dim=5, max_facts=7, head="labels", num_labels=3).but(**changes),
        VocabularySizes(23, 23),
        1,
    )
    assert isinstance(model, MemoryNetwork)
    return model.double().eval()


def inputs(story: list[list[int]]) -> tuple[Tensor, Tensor, Tensor]:
    tokens = torch.tensor([[token for text in story for token in text]])
    segments = torch.tensor([[number for number, text in enumerate(story) for _ in text]])
    return tokens, torch.ones_like(tokens, dtype=torch.bool), segments


def summed(table: Tensor, text: list[int]) -> Tensor:
    """Section 4.1 of the paper, word by word and channel by channel."""
    dim, total = table.shape[1], torch.zeros(table.shape[1], dtype=table.dtype)
    for j, token in enumerate(text, start=1):
        for k in range(1, dim + 1):
            share = j / len(text)
            total[k - 1] += ((1 - share) - k / dim * (1 - 2 * share)) * table[token, k - 1]
    return total


@pytest.mark.parametrize("empty", [False, True], ids=["real facts", "empty facts too"])
@pytest.mark.parametrize("tying", ["adjacent", "layerwise"])
def test_a_story_is_read_as_the_paper_says(tying: str, empty: bool) -> None:
    model = network(tying=tying, empty_facts=empty)
    *facts, question = STORY
    words, times = [table.weight for table in model.embeddings], [table.weight for table in model.time_embeddings]
    u = summed(words[0] if model.question_embedding is None else model.question_embedding.weight, question)
    for hop in range(3):
        a, c = (hop, hop + 1) if model.hop_proj is None else (0, 1)
        m, o = (
            torch.stack([summed(words[k], fact) + times[k][2 - place] for place, fact in enumerate(facts)])
            for k in (a, c)
        )
        if empty:  # seven places, of which four have no fact
            m, o = (torch.cat([real, torch.zeros(4, 5, dtype=real.dtype)]) for real in (m, o))
        u = (m @ u).softmax(0) @ o + (u if model.hop_proj is None else model.hop_proj.weight @ u)
    reading = model(*inputs(STORY))
    torch.testing.assert_close(reading.pooled[0], u)
    torch.testing.assert_close(model.head(reading)[0], model.head.output.weight @ u + model.head.output.bias)


def test_an_answer_that_is_a_word_has_its_vector_in_the_last_table() -> None:
    model = network(label_tokens=(11, -1, 2))
    assert isinstance(model.head, AnswerHead) and model.head.label_embedding is not None
    reading = model(*inputs(STORY))
    last = model.embeddings[-1].weight
    expected = torch.stack([last[11], model.head.label_embedding.weight[0], last[2]]) @ reading.pooled[0]
    torch.testing.assert_close(model.head(reading)[0], expected)
    model.head(reading)[0, 0].backward()
    assert last.grad is not None and bool(last.grad[11].abs().sum() > 0)
    without = sum(parameter.numel() for parameter in network(head="none").parameters())
    assert sum(parameter.numel() for parameter in model.parameters()) == without + 5  # one vector of its own


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"label_tokens": (1, 2)}, "label_tokens has 2 .* num_labels is 3"),
        ({"label_tokens": (1, 2, 3), "tying": "layerwise"}, "needs tying = .adjacent."),
        ({"label_tokens": (1, 2, 23)}, "token 23 "),
    ],
)
def test_impossible_answers_are_rejected(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        network(**changes)


def test_a_full_memory_has_no_empty_facts() -> None:
    full, real = network(max_facts=3, empty_facts=True), network(max_facts=3)
    torch.testing.assert_close(full(*inputs(STORY)).pooled, real(*inputs(STORY)).pooled)
    roomy = network(max_facts=4, empty_facts=True)
    assert roomy(*inputs(STORY[-1:])).pooled.isfinite().all()


def test_adjacent_hops_share_their_matrices_and_layerwise_ones_do_more() -> None:
    words, times, dim = 23, 7, 5
    count = {
        tying: sum(p.numel() for p in network(tying=tying, head="none").parameters())
        for tying in ("adjacent", "layerwise")
    }
    assert count == {"adjacent": 4 * (words + times) * dim, "layerwise": (3 * words + 2 * times) * dim + dim * dim}


def test_the_oldest_facts_have_no_place() -> None:
    model = network(max_facts=2)
    torch.testing.assert_close(model(*inputs(STORY)).pooled, model(*inputs(STORY[1:])).pooled)
    assert not torch.allclose(model(*inputs(STORY)).pooled, model(*inputs(STORY[2:])).pooled)


def test_a_linear_start_leaves_out_the_softmax_and_ends() -> None:
    model = network(hops=1, linear_updates=5, random_noise=0.0).train()
    tokens = inputs(STORY)
    set_dropout_key(model, DropoutKey(1, 5))
    linear = model(*tokens).pooled
    set_dropout_key(model, DropoutKey(1, 6))
    bent = model(*tokens).pooled
    assert not torch.allclose(linear, bent)
    torch.testing.assert_close(bent, model.eval()(*tokens).pooled)


def test_noise_pushes_facts_back_in_time_while_training_only() -> None:
    model, tokens = network(random_noise=0.5).train(), inputs(STORY)
    found = []
    for update in range(4):
        set_dropout_key(model, DropoutKey(1, update))
        found.append(model(*tokens).pooled)
    assert len({tuple(vector[0].tolist()) for vector in found}) > 1
    slots = model._slots(torch.ones(64, 7, dtype=torch.bool), torch.float64)
    assert bool((slots.diff(dim=1) >= 0).all()) and int(slots.max()) == 6 and not bool((slots == torch.arange(7)).all())
    assert torch.equal(model.eval()(*tokens).pooled, model(*tokens).pooled)

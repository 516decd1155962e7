"""Embeddings and the output layer against indexing and products done by hand."""

from __future__ import annotations

import math

import pytest
import torch

from transduce.nn.embedding import Embedding, Output, set_sparse_gradients


def filled_embedding(size: int = 11, dim: int = 7, scaled: bool = True) -> Embedding:
    embedding = Embedding(size, dim, scaled)
    torch.nn.init.normal_(embedding.weight, generator=torch.Generator().manual_seed(3))
    return embedding


def test_a_token_is_its_row_times_the_root_of_the_width() -> None:
    embedding = filled_embedding()
    vectors = embedding(torch.tensor([[2, 10, 0], [5, 5, 1]]))
    assert vectors.shape == (2, 3, 7)
    torch.testing.assert_close(vectors[0, 1], embedding.weight[10] * math.sqrt(7))
    torch.testing.assert_close(vectors[1, 0], vectors[1, 1])


def test_an_unscaled_token_is_its_row() -> None:
    embedding = filled_embedding(scaled=False)
    assert torch.equal(embedding(torch.tensor([3])), embedding.weight[3:4])


@pytest.mark.parametrize("bias", [False, True])
def test_scores_are_dot_products_with_every_row(bias: bool) -> None:
    output = Output(11, 5, bias=bias)
    torch.nn.init.normal_(output.weight)
    if output.bias is not None:
        torch.nn.init.normal_(output.bias)
    hidden = torch.randn(2, 3, 5)
    scores = output(hidden)
    assert scores.shape == (2, 3, 11)
    by_hand = sum(hidden[1, 2, d] * output.weight[7, d] for d in range(5))
    by_hand = by_hand + (output.bias[7] if output.bias is not None else 0)
    torch.testing.assert_close(scores[1, 2, 7], by_hand)


@pytest.mark.parametrize("bias", [False, True])
def test_a_shortlist_scores_its_own_tokens_in_its_own_order(bias: bool) -> None:
    output = Output(13, 5, bias=bias).double()
    for parameter in output.parameters():
        torch.nn.init.normal_(parameter)
    hidden = torch.randn(2, 3, 5, dtype=torch.float64)
    shortlist = torch.tensor([11, 0, 7])
    torch.testing.assert_close(output(hidden, shortlist), output(hidden)[..., shortlist], rtol=0, atol=1e-12)


def test_a_tied_output_is_the_embedding_itself() -> None:
    embedding = filled_embedding()
    output = Output(11, 7, tied=embedding)
    assert output.weight is embedding.weight
    (output(torch.ones(1, 7)).sum() + embedding(torch.tensor([4])).sum()).backward()
    grad = embedding.weight.grad
    assert grad is not None
    torch.testing.assert_close(grad[4], torch.full((7,), 1 + math.sqrt(7)))
    torch.testing.assert_close(grad[3], torch.ones(7))


def test_what_they_print_says_their_sizes() -> None:
    assert repr(Embedding(11, 7)) == "Embedding(11, 7)"
    assert repr(Output(11, 7, bias=True)) == "Output(11, 7, bias=True)"


def test_a_gradient_of_few_rows_adds_up_to_the_same_matrix() -> None:
    tokens, hidden = torch.tensor([[3, 1, 3], [0, 1, 4]]), torch.randn(2, 7, requires_grad=True)

    def gradient(sparse: bool) -> torch.Tensor:
        embedding = Embedding(5, 7)
        output = Output(5, 7, tied=embedding)
        torch.nn.init.constant_(embedding.weight, 0.5)
        if sparse:
            set_sparse_gradients(torch.nn.ModuleList([embedding, output]))
        (embedding(tokens).sin().sum() + output(hidden).square().sum()).backward()
        assert embedding.weight.grad is not None
        assert not embedding.weight.grad.is_sparse
        return embedding.weight.grad

    torch.testing.assert_close(gradient(sparse=True), gradient(sparse=False))


def test_an_embedding_of_its_own_keeps_its_whole_gradient() -> None:
    alone, tied = Embedding(5, 7), Embedding(5, 7)
    set_sparse_gradients(torch.nn.ModuleList([alone, tied, Output(5, 7, tied=tied)]))
    assert not alone.sparse
    assert tied.sparse

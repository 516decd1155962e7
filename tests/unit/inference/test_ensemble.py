"""Several models that answer as one."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.unit.inference.search.toy import SPECIALS, Toy, every_hypothesis, random_table, translate
from transduce.errors import SettingsError
from transduce.inference.ensemble import Ensemble
from transduce.inference.scoring import score_targets
from transduce.inference.search.options import SearchOptions
from transduce.models.interface import AnyTransducer, VocabularySizes
from transduce.models.rnn import Rnn, RnnConfig
from transduce.models.transformer import Transformer, TransformerConfig


class ToyEnsemble(Ensemble):
    """Hidden vectors of toys are scores already, as wide as the vocabulary."""

    def __init__(self, toys: list[Toy]) -> None:
        super().__init__(toys)
        self.widths = [toy.sizes.target for toy in toys]


@pytest.mark.parametrize("seed", range(3))
def test_an_exact_search_finds_the_best_by_the_mean_of_the_probabilities(seed: int) -> None:
    tables = [random_table(seed), random_table(seed + 100), random_table(seed + 200)]

    def mean(source: tuple[int, ...], prefix: tuple[int, ...]) -> torch.Tensor:
        return torch.stack([table(source, prefix).exp() for table in tables]).mean(dim=0).log()

    options = SearchOptions(beam_size=27, stop_rule="exact", max_length=4)
    best = next(found for found in every_hypothesis(mean, [4], options, 4) if found.ended)
    (found, *_) = translate(
        ToyEnsemble([Toy(table) for table in tables]), [4], beam_size=27, stop_rule="exact", max_length=4
    )  # type: ignore[arg-type]
    assert found.tokens == best.tokens
    assert found.log_probability == pytest.approx(best.log_probability, abs=1e-5)


def members() -> list[AnyTransducer]:
    torch.manual_seed(1)
    sizes = VocabularySizes(11, 11)
    built: list[AnyTransducer] = [
        Transformer(TransformerConfig(model_dim=14, num_heads=2, ffn_dim=19, num_layers=2), sizes),
        Rnn(RnnConfig(embedding_dim=7, hidden_dim=13), sizes),
    ]
    for parameter in itertools.chain.from_iterable(model.parameters() for model in built):
        torch.nn.init.normal_(parameter, std=0.5)
    for model in built:
        model.eval()
    return built


def test_different_models_search_and_score_alike() -> None:
    """A step of the ensemble is what its forward says, and both are the mean of the members' probabilities."""
    models = members()
    ensemble = Ensemble(models).eval()
    sources, targets = [[4, 5, 1], [7]], [[8, 9], [10, 4, 4]]
    together = score_targets(ensemble, sources, targets, SPECIALS, SPECIALS)
    apart = [score_targets(model, sources, targets, SPECIALS, SPECIALS) for model in models]
    for place, found in enumerate(together):
        single = torch.tensor([scored[place].token_scores for scored in apart])
        torch.testing.assert_close(torch.tensor(found.token_scores), single.exp().mean(dim=0).log(), rtol=0, atol=1e-5)
    answers = translate(ensemble, [4, 5, 1], beam_size=3, n_best=3, max_length=7)  # type: ignore[arg-type]
    for answer in answers:
        (scored,) = score_targets(ensemble, [[4, 5, 1]], [answer.tokens], SPECIALS, SPECIALS)
        of_all = sum(scored.token_scores[: len(answer.tokens) + answer.ended])
        assert answer.log_probability == pytest.approx(of_all, abs=1e-4)


def test_a_model_with_itself_has_its_own_scores() -> None:
    """So that what changes raw scores, as the repetition penalty does, means the same to an ensemble."""
    (model, _) = members()
    hidden = torch.randn(3, 5, 14, generator=torch.Generator().manual_seed(1))
    twice = Ensemble([model, model]).logits(torch.cat([hidden, hidden], dim=-1))
    torch.testing.assert_close(twice, model.logits(hidden), rtol=1e-5, atol=1e-5)


def test_models_of_different_vocabularies_are_rejected() -> None:
    with pytest.raises(SettingsError, match="must have the same vocabularies"):
        Ensemble([Toy(random_table(1)), Toy(random_table(1, 7), 7)])


def test_an_ensemble_reads_no_more_than_its_smallest_member() -> None:
    ensemble = Ensemble([Toy(random_table(1), limit=9), Toy(random_table(2)), Toy(random_table(3), limit=5)])
    assert (ensemble.max_source, ensemble.max_target) == (5, 5)
    assert Ensemble([Toy(random_table(1))]).max_source is None

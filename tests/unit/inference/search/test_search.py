"""Search against exhaustive search: on a small table everything that could be said can be written down."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.inference.search.toy import (
    END,
    PAD,
    SPECIALS,
    START,
    VOCABULARY,
    WORDS,
    Prefix,
    Row,
    Toy,
    every_hypothesis,
    random_table,
    search_all,
    translate,
    written_table,
)
from transduce.errors import TransduceError
from transduce.inference.padding import source_batch
from transduce.inference.search.options import Hypothesis, Request, SearchOptions
from transduce.inference.search.penalty import LENGTH_PENALTIES
from transduce.inference.search.search import Search
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import Transformer, TransformerConfig
from transduce.nn.initialization import initialize

SOURCE = (4, 1, 5)


def close(found: Sequence[Hypothesis], expected: Sequence[Hypothesis]) -> None:
    """The same tokens in the same order, with the same numbers up to float32."""
    assert [(h.tokens, h.ended) for h in found] == [(h.tokens, h.ended) for h in expected]
    assert [h.score for h in found] == pytest.approx([h.score for h in expected], rel=1e-5)
    assert [h.log_probability for h in found] == pytest.approx([h.log_probability for h in expected], rel=1e-5)


def plain_beam(row: Row, source: Sequence[int], options: SearchOptions, max_length: int) -> list[Hypothesis]:
    """Beam search once more, with lists, as one would explain it: the truth for beams that miss the best."""
    penalty = LENGTH_PENALTIES[options.length_normalization]
    read = (*source, END)
    alive: list[tuple[float, Prefix]] = [(0.0, ())]
    finished: list[Hypothesis] = []
    for length in range(max_length):
        every = [
            (total + float(row(read, prefix)[token]), prefix, token)
            for total, prefix in alive
            for token in (*WORDS, END)
        ]
        ranked = sorted(every, key=lambda candidate: -candidate[0])
        for total, prefix, token in ranked[: options.beam_size]:
            if token == END:
                finished.append(Hypothesis(list(prefix), total / penalty(length + 1, options.length_penalty), total))
        going = [candidate for candidate in ranked if candidate[2] != END][: options.beam_size]
        alive = [(total, (*prefix, token)) for total, prefix, token in going]
        finished.sort(key=lambda hypothesis: -hypothesis.score)
        if len(finished) >= options.beam_size:
            best = alive[0][0] / penalty(length + 1, options.length_penalty)
            if (
                options.stop_rule == "beam_finished"
                or options.beam_size == 1
                or best <= finished[options.n_best - 1].score
            ):
                break
    else:
        for total, prefix in alive if len(finished) < options.n_best else ():
            finished.append(
                Hypothesis(list(prefix), total / penalty(max_length, options.length_penalty), total, ended=False)
            )
    return sorted(finished, key=lambda hypothesis: (not hypothesis.ended, -hypothesis.score))[: options.n_best]


def test_a_beam_of_one_is_greedy_even_where_the_runner_up_would_grow_better() -> None:
    """The end is likelier than the other token by a hair, and what follows the other token is certain."""
    row = written_table({(): {END: 0.40, 4: 0.39, 5: 0.21}, (4,): {5: 1.0}, (4, 5): {1: 1.0}, (4, 5, 1): {END: 1.0}})
    greedy = translate(Toy(row), SOURCE, method="greedy")
    assert greedy[0].tokens == []
    close(translate(Toy(row), SOURCE, beam_size=1), greedy)


def test_a_hypothesis_that_was_cut_off_never_beats_one_that_ended() -> None:
    row = written_table({(): {END: 0.3, 4: 0.7}, (4,): {4: 1.0}, (4, 4): {4: 1.0}, (4, 4, 4): {4: 1.0}})
    best = translate(Toy(row), SOURCE, beam_size=2, max_length=3)[0]
    assert (best.tokens, best.ended) == ([], True)


@pytest.mark.parametrize("seed", range(17))
@pytest.mark.parametrize("penalty", LENGTH_PENALTIES)
def test_the_exact_rule_stops_only_when_nothing_could_become_better(seed: int, penalty: str) -> None:
    """With a beam that misses nothing, the best by the exact rule is the best of all that end."""
    options = SearchOptions(
        beam_size=41, length_normalization=penalty, length_penalty=1.3, max_length=4, stop_rule="exact"
    )
    row = random_table(seed)
    found = translate(Toy(row), SOURCE, **options.model_dump())
    close(found, every_hypothesis(row, SOURCE, options, 4)[:1])


def test_a_source_batch_has_an_end_after_each_source_and_padding_after_that() -> None:
    tokens, allowed = source_batch([[4, 5, 1], [], [5]], SPECIALS, torch.device("cpu"))
    assert tokens.tolist() == [[4, 5, 1, END], [END, PAD, PAD, PAD], [5, END, PAD, PAD]]
    assert allowed.tolist() == [[True] * 4, [True, False, False, False], [True, True, False, False]]


@pytest.mark.parametrize("penalty", LENGTH_PENALTIES)
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.7])
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_a_wide_beam_finds_every_hypothesis_in_its_true_order(penalty: str, alpha: float, seed: int) -> None:
    """There are 1 + 3 + 9 that end and 27 that are cut off: a beam of 41 misses none, and ranks them by the score."""
    options = SearchOptions(beam_size=41, n_best=41, length_normalization=penalty, length_penalty=alpha, max_length=3)
    row = random_table(seed)
    found = translate(Toy(row), SOURCE, **options.model_dump())
    assert len(found) == 40
    close(found, every_hypothesis(row, SOURCE, options, 3))


@pytest.mark.parametrize("stop", ["heuristic", "beam_finished"])
@pytest.mark.parametrize("beam", [1, 2, 3, 5])
def test_a_narrow_beam_finds_what_the_rule_says(beam: int, stop: str) -> None:
    for seed in range(31):
        options = SearchOptions(beam_size=beam, n_best=beam, max_length=7, stop_rule=stop)
        row = random_table(seed)
        close(translate(Toy(row), SOURCE, **options.model_dump()), plain_beam(row, SOURCE, options, 7))


def test_a_wider_beam_can_find_what_greedy_misses() -> None:
    """The first token of the best answer is not the best first token."""
    row = written_table({(): {4: 0.6, 5: 0.4}, (4,): {1: 0.5, END: 0.5}, (5,): {END: 1.0}, (4, 1): {END: 1.0}})
    plain = {"length_penalty": 0.0, "max_length": 5}
    greedy, beam = (
        translate(Toy(row), SOURCE, **option, **plain)[0] for option in ({"method": "greedy"}, {"beam_size": 2})
    )
    assert (greedy.tokens, beam.tokens) == ([4, 1], [5])
    assert greedy.log_probability == pytest.approx(torch.tensor(0.3).log().item(), rel=1e-6)
    assert beam.log_probability == pytest.approx(torch.tensor(0.4).log().item(), rel=1e-6)


def test_the_length_penalty_decides_between_a_short_and_a_long_hypothesis() -> None:
    row = written_table({(): {4: 0.55, END: 0.45}, (4,): {5: 1.0}, (4, 5): {1: 0.8, 5: 0.2}, (4, 5, 1): {END: 1.0}})
    # The empty answer: ln 0.45 = -0.799. Three tokens and the end: ln 0.44 = -0.821; (9/6)^1.1 = 1.562, (6/6)^1.1 = 1.
    short = translate(Toy(row), SOURCE, beam_size=2, length_penalty=0.0)
    assert (short[0].tokens, short[0].score) == ([], pytest.approx(-0.7985, abs=1e-4))
    long = translate(Toy(row), SOURCE, beam_size=2, length_penalty=1.1)
    assert (long[0].tokens, long[0].score) == ([4, 5, 1], pytest.approx(-0.8210 / 1.5621, abs=1e-4))
    mean = translate(Toy(row), SOURCE, beam_size=2, length_penalty=1.0, length_normalization="power")
    assert (mean[0].tokens, mean[0].score) == ([4, 5, 1], pytest.approx(-0.8210 / 4, abs=1e-4))


def test_a_search_stops_when_as_many_are_finished_as_the_beam_is_wide_and_none_alive_is_better() -> None:
    """ln 0.14 is -1.97: of two tokens worse than what has ended, of four better. By the rule it now looks worse."""
    row = written_table(
        {
            (): {END: 0.4, 4: 0.35, 5: 0.25},
            (4,): {END: 0.6, 1: 0.4},
            (5,): {1: 0.01, END: 0.98},
            (4, 1): {1: 1.0},
            (4, 1, 1): {1: 1.0},
            (4, 1, 1, 1): {END: 1.0},
        }
    )
    model = Toy(row)
    found = translate(model, SOURCE, beam_size=2, n_best=2, length_penalty=1.0)
    assert [hypothesis.tokens for hypothesis in found] == [[], [5]]
    assert len(model.steps) == 2


def sure(length: int) -> Row:
    """A model that is sure of an answer of some tokens, and each time finds the end the likeliest of the rest."""

    def row(_: Prefix, prefix: Prefix) -> torch.Tensor:
        wanted = 4 if len(prefix) < length else END
        score_V = torch.full((VOCABULARY,), -30.0)
        score_V[END] = -9.0
        score_V[wanted] = 0.0
        return score_V.log_softmax(dim=-1)

    return row


@pytest.mark.parametrize("beam", [1, 2, 4, 7])
@pytest.mark.parametrize("n_best", [1, 2])
def test_endings_that_nobody_wants_do_not_stop_the_search_for_a_good_one(beam: int, n_best: int) -> None:
    """They are among the best of each step only because there is nothing else; greedy would not fall for them."""
    if n_best <= beam:
        found = translate(Toy(sure(11)), SOURCE, beam_size=beam, n_best=n_best)
        assert found[0].tokens == translate(Toy(sure(11)), SOURCE, method="greedy")[0].tokens == [4] * 11


def test_counting_endings_alone_stops_as_soon_as_the_beam_is_full_of_them() -> None:
    model = Toy(sure(11))
    found = translate(model, SOURCE, beam_size=2, stop_rule="beam_finished")
    assert (found[0].tokens, len(model.steps)) == ([4], 2)


def test_hypotheses_are_distinct_and_sorted_and_as_many_as_requested() -> None:
    for seed in range(17):
        found = translate(Toy(random_table(seed)), SOURCE, beam_size=5, n_best=3, max_length=6)
        assert len(found) == 3
        assert len({tuple(hypothesis.tokens) for hypothesis in found}) == 3
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)


def test_fewer_hypotheses_come_back_where_fewer_are_possible() -> None:
    row = written_table({(): {4: 1.0}, (4,): {END: 0.75, 5: 0.25}, (4, 5): {END: 1.0}})
    found = translate(Toy(row), SOURCE, beam_size=5, n_best=5)
    assert [hypothesis.tokens for hypothesis in found] == [[4], [4, 5]]


def test_greedy_takes_the_best_token_each_time() -> None:
    for seed in range(31):
        row, prefix, total = random_table(seed), [], 0.0
        for _ in range(11):
            scores = {token: float(row((*SOURCE, END), tuple(prefix))[token]) for token in (*WORDS, END)}
            best = max(scores, key=lambda token: scores[token])
            total += scores[best]
            if best == END:
                break
            prefix.append(best)
        found = translate(Toy(row), SOURCE, method="greedy", max_length=11)
        assert len(found) == 1
        assert found[0].tokens == prefix
        assert found[0].log_probability == pytest.approx(total, rel=1e-5)


def test_a_beam_of_one_is_greedy() -> None:
    for seed in range(31):
        model = Toy(random_table(seed))
        one, greedy = translate(model, SOURCE, beam_size=1), translate(model, SOURCE, method="greedy")
        assert one == greedy


def endless(favourite: int = 4) -> Row:
    return lambda source, prefix: torch.tensor([-9.0, -9.0, -torch.inf, -9.0, -9.0, -9.0]).index_fill(
        0, torch.tensor([favourite]), 0.0
    )


@pytest.mark.parametrize("method", ["greedy", "beam"])
@pytest.mark.parametrize(
    ("source", "option", "limit", "expected"),
    [
        (SOURCE, {}, None, 53),
        ((), {}, None, 50),
        (SOURCE, {"max_extra": 4}, None, 7),
        (SOURCE, {"max_extra": 0}, None, 3),
        ((), {"max_extra": 0}, None, 1),
        (SOURCE, {"max_length": 5}, None, 5),
        (SOURCE, {"max_length": 101}, None, 101),
        (SOURCE, {}, 7, 6),
        (SOURCE, {"max_length": 11}, 7, 6),
        (SOURCE, {"max_length": 2}, 7, 2),
    ],
    ids=str,
)
def test_a_hypothesis_without_end_is_cut_off_at_the_maximum_length(
    method: str, source: Prefix, option: dict[str, int], limit: int | None, expected: int
) -> None:
    """Input plus 50, or plus another number, or a number, and never beyond what the model has positions for."""
    model = Toy(endless(), limit=limit)
    best = translate(model, source, method=method, beam_size=3, **option)[0]
    assert (best.tokens, best.ended) == ([4] * expected, False)
    assert len(model.steps) == expected


@pytest.mark.parametrize("method", ["greedy", "beam"])
@pytest.mark.parametrize("special", [PAD, START])
def test_padding_and_start_are_never_written(method: str, special: int) -> None:
    best = translate(Toy(endless(favourite=special)), SOURCE, method=method, max_length=7)[0]
    assert len(best.tokens) == 7
    assert set(best.tokens) <= set(WORDS)


def test_a_model_whose_scores_are_not_numbers_is_rejected() -> None:
    model = Toy(lambda source, prefix: torch.full((VOCABULARY,), torch.nan))
    for method in ("greedy", "beam"):
        with pytest.raises(TransduceError, match="not finite"):
            translate(model, SOURCE, method=method)


WISHES = [
    {"method": "greedy"},
    {"beam_size": 3, "n_best": 3},
    {"beam_size": 3, "length_penalty": 0.0, "max_length": 4},
    {"beam_size": 3, "length_normalization": "power", "max_extra": 1},
    {"beam_size": 5, "n_best": 2},
    {"beam_size": 1},
]
Arrival = tuple[int, Prefix, int]
"""(after how many steps it comes, source, which wish)."""
arrivals = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.lists(st.sampled_from(WORDS), max_size=5).map(tuple),
        st.integers(0, len(WISHES) - 1),
    ),
    min_size=1,
    max_size=7,
)


def together(model: Toy, coming: list[Arrival], dropped: dict[int, int] | None = None) -> dict[int, list[Hypothesis]]:
    """Admit each request at its time, and drop some after a number of steps."""
    search = Search(model, SPECIALS, SPECIALS)
    found: dict[int, list[Hypothesis]] = {}
    for step in range(200):
        due = [
            Request(number, source, SearchOptions.from_table(WISHES[option], "a test"))
            for number, (time, source, option) in enumerate(coming)
            if time == step
        ]
        search.admit(due)
        search.drop([number for number, time in (dropped or {}).items() if time == step])
        found |= {result.id: result.hypotheses for result in search.advance()}
    assert not search.active
    return found


@given(arrivals)
@settings(max_examples=60, deadline=None)
def test_options_of_neighbours_and_times_of_arrival_change_nothing(coming: list[Arrival]) -> None:
    """Greedy and beams of several widths in one search, rows at different positions: each answer as if alone."""
    row = random_table(seed=23)
    found = together(Toy(row), coming)
    for number, (_, source, option) in enumerate(coming):
        assert found[number] == translate(Toy(row), source, **WISHES[option])


@given(arrivals, st.dictionaries(st.integers(0, 6), st.integers(0, 8), max_size=4))
@settings(max_examples=40, deadline=None)
def test_dropping_some_changes_nothing_for_the_others(coming: list[Arrival], dropped: dict[int, int]) -> None:
    row = random_table(seed=29)
    found = together(Toy(row), coming, dropped)
    for number, (_, source, option) in enumerate(coming):
        if number not in dropped:
            assert found[number] == translate(Toy(row), source, **WISHES[option])


def test_what_was_dropped_does_not_come_out_and_costs_nothing() -> None:
    model = Toy(endless())
    search = Search(model, SPECIALS, SPECIALS)
    search.admit([Request(number, SOURCE, SearchOptions(beam_size=3)) for number in (17, 5, 11)])
    search.advance()
    assert (search.active, model.steps) == (3, [9])
    search.drop([5, 99])
    search.advance()
    assert (search.active, model.steps) == (2, [9, 6])
    search.drop([11, 17])
    assert search.active == 0
    assert search.advance() == []


def test_a_finished_sentence_leaves_the_batch() -> None:
    model = Toy(endless())
    search = Search(model, SPECIALS, SPECIALS)
    for number, length in ((1, 2), (2, 5), (3, 3)):
        search.admit([Request(number, SOURCE, SearchOptions(method="greedy", max_length=length))])
    came = [[result.id for result in search.advance()] for _ in range(5)]
    assert came == [[], [1], [3], [], [2]]
    assert model.steps == [3, 3, 2, 1, 1]


def test_a_search_that_ran_dry_takes_new_requests() -> None:
    row = random_table(seed=31)
    search = Search(Toy(row), SPECIALS, SPECIALS)
    for number in range(3):
        search.admit([Request(number, SOURCE[number:], SearchOptions())])
        assert search_all(search)[number] == translate(Toy(row), SOURCE[number:])


def test_rows_of_a_real_model_may_stand_at_different_positions() -> None:
    """The same on a Transformer, whose state must really keep the rows apart: later arrivals, longer and shorter."""
    model = Transformer(
        TransformerConfig(model_dim=22, num_heads=2, ffn_dim=37, num_layers=2, tied_embeddings="none"),
        VocabularySizes(23, 19),
    )
    initialize(model, seed=5)
    model.eval()
    generator = torch.Generator().manual_seed(7)
    sources = [torch.randint(4, 23, (length,), generator=generator).tolist() for length in (7, 2, 11, 1, 5)]
    options = SearchOptions(beam_size=3, n_best=3, max_length=13)
    alone = Search(model, SPECIALS, SPECIALS)
    expected = {}
    for number, source in enumerate(sources):
        alone.admit([Request(number, source, options)])
        expected |= search_all(alone)
    search, found = Search(model, SPECIALS, SPECIALS), {}
    for number, source in enumerate(sources):
        search.admit([Request(number, source, options)])
        for _ in range(3):
            found |= {result.id: result.hypotheses for result in search.advance()}
    found |= search_all(search)
    assert found.keys() == expected.keys()
    for number in found:
        close(found[number], expected[number])

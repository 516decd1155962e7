"""What a translator tells about itself: beam trees, interventions, lens, attribution, heads; by hand arithmetic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from tests.unit.inference.random_translator import HEADS, OPTIONS, OTHER, TEXT, VALUE, random_rnn, random_translator
from transduce.errors import SettingsError
from transduce.inference.ensemble import Ensemble
from transduce.inference.scoring import score_pairs
from transduce.inference.translator import Translator
from transduce.inspection.drawing import Picture
from transduce.inspection.intervention import Intervention
from transduce.nn.hook import is_hooked, record, replace


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def translator() -> Translator:
    return random_translator()


def token_scores(translator: Translator, text: str, tokens: tuple[int, ...]) -> list[float]:
    """Log-probabilities of given target tokens, without the end token, by scoring."""
    ended = list(tokens[:-1] if tokens[-1] == translator.target.end else tokens)
    source, target = translator.source.specials, translator.target.specials
    (scored,) = score_pairs(translator.model, [translator.source.encode(text)], [ended], source, target)
    assert scored is not None
    return scored.token_scores[: len(tokens)]


def compared(found: Intervention, intact: Translator, changed: Translator, text: str = TEXT) -> None:
    """Check an intervention against a model whose weights, or whose source, are changed instead."""
    for output in (found.original, found.changed):
        np.testing.assert_allclose(output.before, token_scores(intact, TEXT, output.tokens), atol=2e-5)
        np.testing.assert_allclose(output.after, token_scores(changed, text, output.tokens), atol=2e-5)
        assert output.difference == pytest.approx(sum(output.after) - sum(output.before))
    assert found.original.text == intact.translate([TEXT], **OPTIONS)[0]
    assert found.changed.text == changed.translate([text], **OPTIONS)[0]


def test_the_path_of_every_hypothesis_is_the_hypothesis_and_its_score(translator: Translator) -> None:
    tree = translator.beam_tree(TEXT, n_best=2, **OPTIONS)
    expected = translator.translate([TEXT], n_best=2, **OPTIONS)[0]
    assert [one.text for one in tree.hypotheses[:2]] == [one.text for one in expected]
    assert len(tree.hypotheses) > 2
    for found, one in zip(tree.hypotheses, expected, strict=False):
        assert found.score == one.score
    for found in tree.hypotheses:
        assert found.node is not None
        *path, last = tree.path(found.node)[1:]
        assert last.outcome == "finished" and all(node.outcome == "kept" for node in path)
        scores = [node.token_log_probability for node in (*path, last)]
        np.testing.assert_allclose(scores, token_scores(translator, TEXT, tree.tokens(last.id)), atol=2e-5)
        assert last.log_probability == pytest.approx(sum(scores), abs=1e-5)
        assert found.score == pytest.approx(last.log_probability / ((5 + len(scores)) / 6) ** 0.6, abs=1e-5)
        assert translator.target.decode(found.tokens) == found.text
    assert [one.rank for one in tree.hypotheses] == list(range(1, len(tree.hypotheses) + 1))


def test_a_step_keeps_as_many_as_the_beam_and_says_why_others_are_pruned(translator: Translator) -> None:
    tree = translator.beam_tree(TEXT, **OPTIONS)
    for step in range(1, max(node.step for node in tree.nodes)):
        own = [node for node in tree.nodes if node.step == step]
        assert len({(node.parent, node.token) for node in own}) == len(own)
        assert sum(node.outcome == "kept" or node.reason == "stopped" for node in own) <= 3
        assert all((node.reason is None) == (node.outcome != "pruned") for node in own)
        worst = min(node.log_probability for node in own if node.outcome == "kept")
        assert all(node.log_probability <= worst for node in own if node.reason == "outscored")
    assert tree.pruned()[0].score == max(node.score for node in tree.nodes if node.outcome == "pruned")


@pytest.mark.parametrize("kind", ["word", "byte"])
def test_a_pruned_branch_is_forced_by_its_tokens(kind: str) -> None:
    translator = random_translator(kind)
    tree = translator.beam_tree(TEXT, **OPTIONS)
    branch = next(node for node in tree.pruned() if node.reason == "outscored" and node.token is not None)
    tokens = tree.tokens(branch.id)
    (forced,) = translator.continue_from(TEXT, tokens, **OPTIONS)
    assert forced.tokens[: len(tokens)] == tokens and forced.rank == 1
    scores = token_scores(translator, TEXT, (*forced.tokens, *([translator.target.end] if forced.ended else [])))
    assert forced.log_probability == pytest.approx(sum(scores), abs=5e-5)
    again = translator.beam_tree(TEXT, prefix=tokens, **OPTIONS)
    assert again.hypotheses[0].tokens == forced.tokens and again.nodes[0].outcome == "root"
    assert again.nodes[0].log_probability == pytest.approx(branch.log_probability, abs=2e-5)
    assert again.tokens(0) == tokens


def test_a_prefix_may_be_text_and_a_cut_off_hypothesis_is_in_the_tree(translator: Translator) -> None:
    by_text = translator.continue_from(TEXT, "fox SLEEP", **OPTIONS)[0]
    assert by_text.text.startswith("fox SLEEP")
    assert by_text == translator.continue_from(TEXT, translator.target.encode("fox SLEEP"), **OPTIONS)[0]
    short = translator.beam_tree(TEXT, method="greedy", max_length=2, min_length=2)
    assert [one.ended for one in short.hypotheses] == [False]
    assert short.nodes[short.hypotheses[0].node or 0].outcome == "cut_off"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "sample"}, "no beam tree"),
        ({"prefix": [2, 9999]}, "token 9999"),
        ({"prefix": "zzz"}, "not in the model's vocabulary"),
    ],
)
def test_what_has_no_beam_tree_is_rejected(translator: Translator, options: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        translator.beam_tree(TEXT, **options)
    with pytest.raises(SettingsError, match="end token"):
        translator.continue_from(TEXT, [translator.target.end])


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("encoder", "encoder.1.self_attention"),
        ("decoder", "decoder.1.self_attention"),
        ("cross", "decoder.1.cross_attention"),
    ],
)
def test_an_ablated_head_is_one_whose_columns_of_the_output_projection_are_zero(kind: str, path: str) -> None:
    intact, changed = random_translator(), random_translator()
    with torch.no_grad():
        changed.model.get_submodule(path).out_proj.weight[:, VALUE : 2 * VALUE] = 0.0  # type: ignore[union-attr,operator,index]
    found = intact.ablate(TEXT, heads=[(kind, 2, 2)], **OPTIONS)
    compared(found, intact, changed)
    assert abs(found.original.difference) > 1e-3


def test_layers_are_switched_off_by_zeros_in_their_last_projection() -> None:
    intact, changed = random_translator(), random_translator()
    with torch.no_grad():
        for path in ("decoder.2.cross_attention.out_proj", "encoder.0.feed_forward.down"):
            changed.model.get_submodule(path).weight.zero_()  # type: ignore[union-attr,operator]
            changed.model.get_submodule(path).bias.zero_()  # type: ignore[union-attr,operator]
    found = intact.ablate(TEXT, attention=[("cross", 3)], feed_forward=[("encoder", 1)], **OPTIONS)
    compared(found, intact, changed)
    assert found.changes == ("cross-attention layer 3 off", "encoder layer 1 feed-forward network off")
    other = intact.ablate(TEXT, attention=[("encoder", 1)], **OPTIONS)
    assert other.changes == ("encoder self-attention layer 1 off",)


def test_a_masked_word_is_a_word_that_is_not_there() -> None:
    """Without positions, nothing else tells that a word is missing."""
    translator = random_translator(positions="none")
    found = translator.ablate(TEXT, words=[2], **OPTIONS)
    compared(found, translator, translator, TEXT.replace(" dog", ""))
    assert found == translator.ablate(TEXT, tokens=[2], **OPTIONS)
    assert "dog" in found.changes[0]


@pytest.mark.parametrize("where", ["memory", ("encoder", 2), ("decoder", 3)])
def test_patching_everything_gives_the_other_translation(translator: Translator, where: str | tuple[str, int]) -> None:
    found = translator.patch(TEXT, OTHER, where, **OPTIONS)
    compared(found, translator, translator, OTHER)
    assert found.has_changed


def test_a_patched_memory_is_that_of_both_texts_word_by_word(translator: Translator) -> None:
    found = translator.patch(TEXT, OTHER, words=[1, 2], **OPTIONS)
    model, real = translator.model, torch.ones(1, 8, dtype=torch.bool)
    ours, theirs = (torch.tensor([[*translator.source.encode(text), translator.source.end]]) for text in (TEXT, OTHER))
    with torch.no_grad():
        memory, other = model.encode(ours, real), model.encode(theirs, real)
        memory.states[:, 1:3] = other.states[:, 1:3]
        tokens = found.original.tokens
        read = torch.tensor([[translator.target.start, *tokens[:-1]]])
        log_TV = model.logits(model(read, memory))[0].log_softmax(dim=-1)
    np.testing.assert_allclose(found.original.after, log_TV[range(len(tokens)), tokens].tolist(), atol=2e-5)
    same = translator.patch(TEXT, TEXT, ("cross", 1, 2), steps=[0, 1], **OPTIONS)
    np.testing.assert_allclose(same.original.after, same.original.before, atol=2e-5)
    assert not same.has_changed


def test_a_patched_head_computes_what_it_would_for_the_other_text(translator: Translator) -> None:
    found = translator.patch(TEXT, OTHER, ("cross", 2, 1), **OPTIONS)
    model, path, real = translator.model, "decoder.1.cross_attention.head", torch.ones(1, 8, dtype=torch.bool)
    ours, theirs = (torch.tensor([[*translator.source.encode(text), translator.source.end]]) for text in (TEXT, OTHER))
    tokens = found.original.tokens
    read = torch.tensor([[translator.target.start, *tokens[:-1]]])
    with torch.no_grad(), record(model, ("head",)) as recorded:
        model(read, model.encode(theirs, real))
    other_1HTV = recorded[path]

    def exchange(value_1HTV: torch.Tensor) -> torch.Tensor:
        return torch.cat([other_1HTV[:, :1], value_1HTV[:, 1:]], dim=1)

    with torch.no_grad(), replace(model, {path: exchange}):
        log_TV = model.logits(model(read, model.encode(ours, real)))[0].log_softmax(dim=-1)
    np.testing.assert_allclose(found.original.after, log_TV[range(len(tokens)), tokens].tolist(), atol=2e-5)
    assert abs(found.original.difference) > 1e-3


def test_other_texts_may_be_longer_and_wrong_places_are_rejected(translator: Translator) -> None:
    longer = OTHER + " the fox"
    compared(translator.patch(TEXT, longer, **OPTIONS), translator, translator, longer)
    for where, options, message in (
        (("encoder", 1), {}, "8 and 10 source tokens"),
        (("encoder", 3), {"words": [0]}, "no layer 3"),
        (("cross", 1, 4), {}, "no head 4"),
        ("memory", {"steps": [1]}, "words or tokens"),
        (("decoder", 1), {"words": [1]}, "steps of the target"),
        ("weights", {}, "cannot patch 'weights'"),
    ):
        with pytest.raises(SettingsError, match=message):
            translator.patch(TEXT, longer, where, **options)  # type: ignore[arg-type]


def test_the_lens_of_the_last_layer_is_the_model_s_own_distribution(translator: Translator) -> None:
    lens, maps = translator.logit_lens(TEXT, top=7, **OPTIONS), translator.attention(TEXT, top=7, **OPTIONS)
    assert len(lens.layers) == 4 and lens.ranks.shape == (4, len(maps.steps))
    for found, expected in zip(lens.layers[-1], maps.steps, strict=True):
        assert [one.token for one in found.top] == [one.token for one in expected.top]
        assert (found.rank, found.chosen and found.chosen.token) == (
            expected.rank,
            expected.chosen and expected.chosen.token,
        )
        for one, other in zip(found.top, expected.top, strict=True):
            assert one.probability == pytest.approx(other.probability, abs=1e-6)
    assert lens.pieces == maps.rows("cross")
    assert {stack: values.shape for stack, values in lens.norms.items()} == {
        "encoder": (3, len(maps.source_pieces)),
        "decoder": (4, len(maps.steps)),
    }
    embedding = translator.model.source_embedding.weight[translator.source.encode(TEXT)[0]] * 22**0.5  # type: ignore[union-attr,operator,index]
    embedding = embedding + torch.tensor([0.0, 1.0] * 11)  # position 0: sines are 0, cosines 1
    assert lens.norms["encoder"][0, 0] == pytest.approx(float(embedding.detach().norm()), rel=1e-5)


@pytest.mark.parametrize(("instead_of", "step"), [(None, 0), ("fox", 1)])
def test_gradient_x_input_is_what_autograd_gives_for_the_embeddings(
    translator: Translator, instead_of: str | None, step: int
) -> None:
    """The source has each word once, so the gradient of its row of the matrix belongs to one position."""
    found = translator.attribute(TEXT, step, instead_of, **OPTIONS)
    plain = random_translator()
    forced = plain.attention(TEXT, **OPTIONS)
    tokens = [one.chosen.token for one in forced.steps if one.chosen]
    source = torch.tensor([[*plain.source.encode(TEXT), plain.source.end]])
    read = torch.tensor([[plain.target.start, *tokens[:step]]])
    log_V = plain.model.logits(plain.model(read, plain.model.encode(source, source > -1)))[0, -1].log_softmax(dim=-1)
    objective = log_V[tokens[step]]
    if instead_of is not None:
        objective = objective - log_V[plain.target.encode(instead_of)[0]]
    objective.backward()
    for embedding, values, row in (
        ("source_embedding", found.source, source),
        ("target_embedding", found.prefix, read),
    ):
        weight = plain.model.get_submodule(embedding).weight
        product_V = (weight * weight.grad).sum(dim=-1)  # type: ignore[operator,union-attr]
        np.testing.assert_allclose(sum(values), float(product_V.detach().sum()), atol=1e-4)
        if row is source:
            np.testing.assert_allclose(values, product_V.detach()[source[0]].tolist(), atol=1e-4)
    assert found.objective == pytest.approx(float(objective.detach()), abs=1e-5)
    total = sum(map(abs, found.source)) + sum(map(abs, found.prefix))
    assert found.source_share == pytest.approx(sum(map(abs, found.source)) / total)
    assert found.instead_of == instead_of and len(found.prefix) == len(found.prefix_pieces) == step + 1


def test_value_zeroing_is_zeros_in_the_values_of_one_position() -> None:
    """Zeros in the value projection of all positions are the same, if there is only one."""
    intact, changed = random_translator(), random_translator()
    with torch.no_grad():
        for block in changed.model.decoder:  # type: ignore[union-attr]
            projection = block.self_attention.qkv_proj
            projection.weight[-HEADS * VALUE :], projection.bias[-HEADS * VALUE :] = 0.0, 0.0
    found = intact.attribute(TEXT, 0, method="value_zeroing", **OPTIONS)
    tokens = intact.ablate(TEXT, heads=[("cross", 1, 1)], **OPTIONS).original.tokens
    before, after = (token_scores(one, TEXT, tokens)[0] for one in (intact, changed))
    assert found.prefix == pytest.approx([before - after], abs=2e-5)
    assert len(found.source) == 8 and found.objective == pytest.approx(before, abs=1e-5)


@pytest.mark.parametrize("positions", ["sinusoidal", "alibi"])
@pytest.mark.parametrize(("kind", "layer"), [("encoder", 2), ("decoder", 3), ("cross", 1)])
def test_the_neuron_view_multiplies_out_to_the_attention_map(kind: str, layer: int, positions: str) -> None:
    translator = random_translator(positions=positions)
    maps = translator.attention(TEXT, **OPTIONS)
    view = translator.neuron_view(TEXT, kind, layer, 3, 1, **OPTIONS)  # type: ignore[arg-type]
    product_MK = view.query[None] * view.key
    np.testing.assert_array_equal(view.product, product_MK)
    score_M = np.where(view.allowed, product_MK.sum(axis=1) / 7**0.5 + view.bias, -np.inf)
    np.testing.assert_allclose(view.score, score_M, rtol=1e-4, atol=1e-4)
    weight_M = np.exp(score_M - score_M.max())
    np.testing.assert_allclose(view.weight, weight_M / weight_M.sum(), atol=1e-5)
    np.testing.assert_allclose(view.weight, maps.head(kind, layer, 3)[1], atol=1e-6)  # type: ignore[arg-type]
    np.testing.assert_allclose(view.output, view.weight @ view.value, atol=1e-5)
    assert (view.columns, view.row_piece) == (maps.columns(kind), maps.rows(kind)[1])  # type: ignore[arg-type]
    assert view.allowed.tolist() == [kind != "decoder" or place <= 1 for place in range(len(view.columns))]
    assert view.bias.any() == (positions == "alibi" and kind != "cross")


def test_heads_are_summarised_on_a_sample(translator: Translator) -> None:
    summary = translator.head_summary([TEXT, OTHER])
    assert summary.texts == 2 and len(summary.heads) == HEADS * (2 + 3 + 3)
    maps = [translator.attention(text) for text in (TEXT, OTHER)]
    weights = np.concatenate([one.head("encoder", 2, 1)[range(1, 8), range(7)] for one in maps])
    head = next(one for one in summary.heads if (one.kind, one.layer, one.number) == ("encoder", 2, 1))
    assert head.shares["previous"] == pytest.approx(float(weights.mean()), abs=1e-6)
    ends = np.concatenate([one.head("cross", 1, 2)[:, -1] for one in maps])
    head = next(one for one in summary.heads if (one.kind, one.layer, one.number) == ("cross", 1, 2))
    assert head.shares["end"] == pytest.approx(float(ends.mean()), abs=1e-6)
    aligned = [
        one.head("cross", 1, 2)[target, source] for one in maps for source, target in one.links
    ]  # a token is a word here
    assert head.shares["aligned"] == pytest.approx(float(np.mean(aligned)), abs=1e-6)


def test_everything_has_a_picture_and_json_and_the_model_is_as_it_was(translator: Translator) -> None:
    before = translator.translate([TEXT, OTHER], **OPTIONS)
    pictures: list[Picture] = [
        translator.beam_tree(TEXT, **OPTIONS),
        translator.ablate(TEXT, heads=[("encoder", 1, 1)], **OPTIONS),
        translator.patch(TEXT, OTHER, words=[1], **OPTIONS),
        translator.logit_lens(TEXT, **OPTIONS),
        translator.attribute(TEXT, 1, "fox", **OPTIONS),
        translator.neuron_view(TEXT, "decoder", 1, 1, 1, **OPTIONS),
        translator.head_summary([TEXT]),
    ]
    for picture in pictures:
        json.dumps(picture.to_json(), allow_nan=False)  # type: ignore[attr-defined]
        assert ElementTree.fromstring(picture.to_svg()).tag.endswith("svg")
        assert repr(picture)
    assert translator.translate([TEXT, OTHER], **OPTIONS) == before
    assert not is_hooked(translator.model) and not translator.model.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in translator.model.parameters())


def test_models_without_the_parts_are_rejected_in_one_sentence(translator: Translator) -> None:
    rnn = random_rnn()
    for call, message in (
        (lambda one: one.ablate(TEXT, heads=[("encoder", 1, 1)]), "no attention heads"),
        (lambda one: one.ablate(TEXT, words=[1]), "self-attention in its encoder"),
        (lambda one: one.logit_lens(TEXT), "stack of decoder layers"),
        (lambda one: one.attribute(TEXT, 0, method="value_zeroing"), "attention with values"),
        (lambda one: one.neuron_view(TEXT), "no attention heads"),
        (lambda one: one.patch(TEXT, OTHER), "with multi-head attention"),
    ):
        with pytest.raises(SettingsError, match=message):
            call(rnn)
    assert rnn.beam_tree(TEXT, max_length=3).nodes and len(rnn.attribute(TEXT, 0, max_length=3).source) == 8
    several = random_translator()
    several.model = Ensemble([translator.model, translator.model])
    for call in (
        lambda: several.logit_lens(TEXT),
        lambda: several.ablate(TEXT, words=[1]),
        lambda: several.attention(TEXT),
    ):
        with pytest.raises(SettingsError, match="one of them at a time"):
            call()


def test_wrong_names_are_rejected(translator: Translator) -> None:
    for call, message in (
        (lambda: translator.ablate(TEXT), "nothing to switch off"),
        (lambda: translator.ablate(TEXT, heads=[("cros", 1, 1)]), "did you mean 'cross'"),
        (lambda: translator.ablate(TEXT, heads=[("cross", 9, 1)]), "layers 1 to 3"),
        (lambda: translator.ablate(TEXT, heads=[("cross", 1)]), r"\(kind, layer, head\)"),  # type: ignore[list-item]
        (lambda: translator.ablate(TEXT, feed_forward=[("middle", 1)]), "named 'middle'"),
        (lambda: translator.ablate(TEXT, words=[9]), "words 0 to 6"),
        (lambda: translator.ablate(TEXT, tokens=range(8)), "leave at least one"),
        (lambda: translator.attribute(TEXT, 99), "no position 99"),
        (lambda: translator.attribute(TEXT, 0, "zzz"), "not in the vocabulary"),
        (lambda: translator.attribute(TEXT, 0, method="gradient"), "unknown attribution method"),  # type: ignore[arg-type]
        (lambda: translator.neuron_view(TEXT, "cross", 1, 1, 99), "no row 99"),
        (lambda: translator.head_summary([]), "sample of texts is empty"),
        (lambda: translator.beam_tree(TEXT, **OPTIONS).path(9999), "no node 9999"),
    ):
        with pytest.raises(SettingsError, match=message):
            call()

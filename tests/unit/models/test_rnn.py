"""The recurrent models against torch's own cells, against the papers' equations, and against themselves."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from transduce.errors import SettingsError
from transduce.models.catalog import build, preset
from transduce.models.interface import VocabularySizes
from transduce.models.rnn import Rnn, RnnConfig, RnnState, bahdanau, cho, luong, sutskever
from transduce.nn.hook import HookPoint

SIZES = VocabularySizes(source=31, target=29)
SOURCE_LENGTHS = (13, 2, 1, 7)
TARGET_LENGTH = 5
SMALL = {"embedding_dim": 11, "hidden_dim": 7}

CONFIGS = {
    "sutskever": sutskever().but(**SMALL),
    "cho": cho().but(**SMALL),
    "bahdanau": bahdanau().but(**SMALL),
    "luong": luong().but(**SMALL),
    "luong without feeding": luong().but(**SMALL, input_feeding=False),
    "dot in both orders": luong().but(**SMALL, attention="dot", reverse_source=False),
    "plain, both directions": RnnConfig(**SMALL, cell="rnn", attention="none", num_layers=2),
    "context of a deep two-way LSTM": RnnConfig(**SMALL, cell="lstm", attention="context", num_layers=3),
    "additive, deep LSTM, backwards": RnnConfig(**SMALL, cell="lstm", num_layers=2, reverse_source=True),
    "general, two-way GRU, tied": RnnConfig(
        embedding_dim=7, hidden_dim=7, attention="general", tied_embeddings="target"
    ),
}


def model_of(config: RnnConfig) -> Rnn:
    model = build(config, SIZES, seed=3).double().eval()
    assert isinstance(model, Rnn)
    with torch.no_grad():
        for parameter in model.parameters():  # wider than the first values, so that a mistake shows
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5)))
    return model


@pytest.fixture(params=CONFIGS)
def model(request: pytest.FixtureRequest) -> Rnn:
    return model_of(CONFIGS[request.param])


def sentences(lengths: tuple[int, ...] = SOURCE_LENGTHS, seed: int = 7) -> tuple[Tensor, Tensor]:
    """(tokens, allowed); the padding is filled with tokens that must not matter."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(SIZES.source, (len(lengths), max(lengths)), generator=generator)
    return tokens, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def targets(rows: int, length: int = TARGET_LENGTH) -> Tensor:
    return torch.randint(SIZES.target, (rows, length), generator=torch.Generator().manual_seed(11))


def steps(model: Rnn, tokens: Tensor, state: RnnState) -> tuple[Tensor, RnnState]:
    read = []
    for token in tokens.unbind(1):
        hidden, state = model.step(token, state)
        read.append(hidden)
    return torch.stack(read, dim=1), state


def same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


@torch.no_grad()
def test_step_equals_forward(model: Rnn) -> None:
    memory, target = model.encode(*sentences()), targets(4)
    read, _ = steps(model, target, model.start(memory))
    same(read, model(target, memory))
    assert model.logits(read).shape == (4, TARGET_LENGTH, SIZES.target)


@torch.no_grad()
def test_a_padded_batch_equals_each_sentence_alone(model: Rnn) -> None:
    source, allowed = sentences()
    target = targets(4)
    together = model(target, model.encode(source, allowed))
    for row, length in enumerate(SOURCE_LENGTHS):
        alone = model.encode(source[row : row + 1, :length], allowed[row : row + 1, :length])
        same(together[row : row + 1], model(target[row : row + 1], alone))


@torch.no_grad()
def test_the_future_does_not_leak(model: Rnn) -> None:
    memory, target = model.encode(*sentences()), targets(4)
    changed = target.clone()
    changed[:, 3:] = (changed[:, 3:] + 1) % SIZES.target
    before, after = model(target, memory), model(changed, memory)
    same(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


@torch.no_grad()
def test_rows_read_as_many_tokens_as_their_lengths_say(model: Rnn) -> None:
    memory, target = model.encode(*sentences()), targets(8)
    lengths = torch.tensor([3, 0, 1, 5, 2, 2, 0, 4])
    repeated = model.encode(*(part.repeat_interleave(2, dim=0) for part in sentences()))
    whole = model(target, repeated)

    read, state = model.extend(target, lengths, model.start(memory, width=2))

    for row, length in enumerate(lengths.tolist()):
        same(read[row, :length], whole[row, :length])
    following = target.gather(1, lengths.clamp(max=TARGET_LENGTH - 1)[:, None])[:, 0]
    hidden, _ = model.step(following, state)
    for row, length in enumerate(lengths.tolist()):
        if length < TARGET_LENGTH:
            same(hidden[row], whole[row, length])


@torch.no_grad()
def test_a_whole_prefix_is_read_at_once(model: Rnn) -> None:
    memory, target = model.encode(*sentences()), targets(4)
    read, state = model.extend(target[:, :3], torch.full((4,), 3), model.start(memory))
    rest, _ = steps(model, target[:, 3:], state)
    same(torch.cat([read, rest], dim=1), model(target, memory))


@torch.no_grad()
def test_selected_rows_go_on_as_the_rows_they_were(model: Rnn) -> None:
    width, target = 3, targets(12)
    memory = model.encode(*(part.repeat_interleave(width, dim=0) for part in sentences()))
    whole = model(target, memory)
    _, state = steps(model, target[:, :2], model.start(model.encode(*sentences()), width))
    for rows in ([1, 1, 0, 5, 4, 3, 6, 7, 8, 11, 9, 9], [8, 6, 6, 2, 1, 0], [9, 10, 11, 3, 4, 5, 0, 1, 2, 6, 7, 8]):
        chosen = torch.tensor(rows)
        hidden, after = model.step(target[chosen, 2], state.select(chosen))
        assert after.num_rows == len(rows) and after.width == width
        same(hidden, whole[chosen, 2])


@torch.no_grad()
def test_states_of_different_ages_join(model: Rnn) -> None:
    first, second, target = sentences((5, 3)), sentences((11,), seed=13), targets(6)
    _, older = steps(model, target[:4, :3], model.start(model.encode(*first), width=2))
    younger = model.start(model.encode(*second), width=2)
    joined = older.join(younger)
    assert joined.num_rows == 6

    hidden, _ = model.step(torch.cat([target[:4, 3], target[4:, 0]]), joined)

    old = model(target[:4], model.encode(*(part.repeat_interleave(2, dim=0) for part in first)))[:, 3]
    young = model(target[4:], model.encode(*(part.repeat_interleave(2, dim=0) for part in second)))[:, 0]
    same(hidden, torch.cat([old, young]))


def test_gradients_reach_every_parameter(model: Rnn) -> None:
    hidden = model(targets(4), model.encode(*sentences()))
    model.logits(hidden).log_softmax(-1)[..., 0].sum().backward()
    assert [name for name, value in model.named_parameters() if value.grad is None or not value.grad.any()] == []


@torch.no_grad()
def test_beams_of_a_sentence_share_its_memory() -> None:
    model = model_of(CONFIGS["bahdanau"])
    state = model.start(model.encode(*sentences()), width=5)
    assert state.num_rows == 20 and len(state.source.key) == 4
    stayed = state.select(torch.arange(20).flip(0).view(4, 5).flip(0).flatten())
    assert stayed.source is state.source


@torch.no_grad()
def test_without_attention_encoder_and_decoder_are_torch_lstms() -> None:
    model = model_of(CONFIGS["sutskever"])
    source, allowed = sentences((13, 13, 13))
    twins = []
    for ours in (model.encoder, model.decoder.recurrence):
        twin = nn.LSTM(11, 7, num_layers=2, batch_first=True).double()
        for layer in (0, 1):
            for name, value in ours.layers[layer].state_dict().items():
                getattr(twin, name.replace("_l0", f"_l{layer}")).copy_(value)
        twins.append(twin)
    target = targets(3)
    _, final = twins[0](model.source_embedding.weight[source.flip(1)])
    expected, _ = twins[1](model.target_embedding.weight[target], final)
    same(model(target, model.encode(source, allowed)), expected)


@torch.no_grad()
def test_cho_reads_the_context_at_every_step_and_in_the_output() -> None:
    model = model_of(CONFIGS["cho"])
    source, allowed = sentences((13, 13, 13))
    target = targets(3)
    _, context = model.encoder.layers[0](model.source_embedding.weight[source])
    cell = cell_of(nn.GRUCell(11 + 7, 7), model)
    hidden, expected = context[0], []
    for token in model.target_embedding.weight[target].unbind(1):
        hidden = cell(torch.cat([token, context[0]], dim=-1), hidden)
        expected.append(torch.cat([token, hidden, context[0]], dim=-1))
    same(model(target, model.encode(source, allowed)), torch.stack(expected, dim=1))


@torch.no_grad()
def test_bahdanau_asks_with_the_state_before_the_token() -> None:
    model = model_of(CONFIGS["bahdanau"])
    source, allowed = sentences((13, 13, 13))
    target = targets(3)
    states, final = model.encoder.layers[0](model.source_embedding.weight[source])
    attention, bridge = model.decoder.cross_attention, model.bridge.linears[0]
    cell = cell_of(nn.GRUCell(11 + 14, 7), model)
    hidden, expected = torch.tanh(bridge(torch.cat([final[0], final[1]], dim=-1))), []
    for token in model.target_embedding.weight[target].unbind(1):
        bent = torch.tanh(attention.q_proj(hidden)[:, None] + attention.k_proj(states))
        context = (attention.score_proj(bent).softmax(dim=1) * states).sum(dim=1)
        hidden = cell(torch.cat([token, context], dim=-1), hidden)
        expected.append(torch.cat([hidden, context, token], dim=-1))
    same(model(target, model.encode(source, allowed)), torch.stack(expected, dim=1))


@torch.no_grad()
@pytest.mark.parametrize("feeding", [True, False])
def test_luong_asks_with_the_state_after_the_token(feeding: bool) -> None:
    model = model_of(luong().but(**SMALL, num_layers=1, reverse_source=False, input_feeding=feeding))
    source, allowed = sentences((13, 13, 13))
    target = targets(3)
    states, final = model.encoder.layers[0](model.source_embedding.weight[source])
    cell = cell_of(nn.LSTMCell(11 + 7 if feeding else 11, 7), model)
    hidden, inner, fed = final[0][0], final[1][0], torch.zeros(3, 7, dtype=torch.float64)
    expected = []
    for token in model.target_embedding.weight[target].unbind(1):
        hidden, inner = cell(torch.cat([token, fed], dim=-1) if feeding else token, (hidden, inner))
        score = torch.einsum("bd,de,bme->bm", hidden, model.decoder.cross_attention.k_proj.weight, states)
        context = torch.einsum("bm,bme->be", score.softmax(dim=-1), states)
        fed = torch.tanh(torch.cat([context, hidden], dim=-1) @ model.decoder.out_proj.weight.T)
        expected.append(fed)
    same(model(target, model.encode(source, allowed)), torch.stack(expected, dim=1))


def cell_of(cell: nn.RNNCellBase, model: Rnn) -> nn.RNNCellBase:
    """Torch's one-step cell with the weights of the model's single decoder layer."""
    weights = model.decoder.recurrence.layers[0].state_dict()
    cell.double().load_state_dict({name.removesuffix("_l0"): value for name, value in weights.items()})
    return cell


@torch.no_grad()
@pytest.mark.parametrize("name", ["bahdanau", "luong", "luong without feeding"])
def test_listeners_see_the_weights_of_a_whole_pass_at_once(name: str) -> None:
    model, recorded = model_of(CONFIGS[name]), []
    taps = {path: module for path, module in model.named_modules() if isinstance(module, HookPoint)}
    assert set(taps) == {"decoder.cross_attention.score", "decoder.cross_attention.weight"}
    unheard = model(targets(4), model.encode(*sentences()))
    handle = taps["decoder.cross_attention.weight"].register_forward_hook(lambda *call: recorded.append(call[2]))
    memory = model.encode(*sentences())
    listened = model(targets(4), memory)
    handle.remove()

    same(listened, unheard)
    (weight,) = recorded
    assert weight.shape == (4, 1, TARGET_LENGTH, 13)
    same(weight.sum(dim=-1), torch.ones(4, 1, TARGET_LENGTH, dtype=torch.float64))
    assert not weight.masked_select(~memory.allowed[:, None, None]).any()
    if name == "bahdanau":  # its output reads [hidden; context; embedding], so the weights can be checked from outside
        same(weight[:, 0] @ memory.states, listened[..., 7 : 7 + 14])


@torch.no_grad()
def test_memory_stands_in_the_order_of_the_source_even_when_read_backwards() -> None:
    model = model_of(CONFIGS["luong"])
    source, allowed = sentences((5, 3))
    memory = model.encode(source, allowed)
    backwards, _ = model.encoder(model.source_embedding(source[1:, :3].flip(1)))
    same(memory.states[1, :3], backwards[0].flip(0))


def test_there_is_no_limit_to_length() -> None:
    model = model_of(CONFIGS["cho"])
    assert model.max_source is None and model.max_target is None


def test_a_seed_means_one_model() -> None:
    first, second = (build(CONFIGS["bahdanau"], SIZES, seed=17).state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert all(value.isfinite().all() for value in first.values())


def test_presets_go_by_name() -> None:
    for function in (sutskever, cho, bahdanau, luong):
        assert preset(function.__name__) == ("rnn", function())


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"attention": "dot"}, "set attention = 'general' or bidirectional = false"),
        ({"input_feeding": True}, "input_feeding needs attention 'dot' or 'general', not 'additive'"),
        ({"tied_embeddings": "target"}, "embedding_dim = 256, not 1792"),
        ({"hidden_dim": 0}, "hidden_dim = 0"),
        ({"dropout": -0.1}, "dropout = -0.1"),
        ({"num_layers": 1_000_000}, "num_layers = 1000000"),
        ({"cell": "gruu"}, "cell = 'gruu'"),
        ({"hiden_dim": 7}, "unknown setting 'hiden_dim'; did you mean 'hidden_dim'?"),
    ],
)
def test_settings_that_make_no_sense_are_rejected(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        RnnConfig.from_table(settings, "recipe.toml [model]")
    assert complaint in str(refusal.value)

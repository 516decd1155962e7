"""Kernels against torch's plain attention: when each becomes full attention, both faces, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from transduce.errors import DataError
from transduce.nn.attention.feature import EluFeatures, FeatureAttention, LowRank, RandomFeatures
from transduce.nn.attention.hashed import ITSELF, Hashed
from transduce.nn.attention.kernel import Kernel, KernelAttention, NewToken
from transduce.nn.attention.multi_head import HeadShape
from transduce.nn.attention.pattern import Strided, Window
from transduce.nn.dropout import Dropout
from transduce.nn.hook import record
from transduce.nn.initialization import initialize

BATCH, HEADS, LENGTH, KEY_DIM, VALUE_DIM = 2, 3, 19, 5, 7
SCALE = KEY_DIM**-0.5
EXACT = {"rtol": 0.0, "atol": 1e-12}
NOTHING = Dropout(0.0)


def made(kernel: Kernel) -> Kernel:
    initialize(kernel, seed=3)
    return kernel.double().eval()


KERNELS: dict[str, Callable[[], Kernel]] = {
    "window": lambda: Window(SCALE, 3),
    "window-dilated-global": lambda: Window(SCALE, 2, dilation=3, global_tokens=2),
    "strided": lambda: Strided(SCALE, 4),
    "low_rank": lambda: LowRank(SCALE, 5, 23),
    "linear": lambda: FeatureAttention(EluFeatures(KEY_DIM)),
    "performer": lambda: FeatureAttention(RandomFeatures(KEY_DIM, 11, SCALE)),
    "hashed": lambda: Hashed(SCALE, KEY_DIM, 4, 2, 3),
}
DECODING = [name for name in KERNELS if name != "low_rank"]


def draw(length: int = LENGTH, shares_query_and_key: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(length)
    shapes = [(BATCH, HEADS, length, KEY_DIM)] * 2 + [(BATCH, HEADS, length, VALUE_DIM)]
    query, key, value = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return query, F.normalize(query, dim=-1) if shares_query_and_key else key, value


PADDED = torch.arange(LENGTH) < torch.tensor([LENGTH, 11])[:, None]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "kernel",
    [
        Window(SCALE, LENGTH - 1),
        Window(SCALE, 10**6),
        Window(SCALE, 2, 1, LENGTH),
        Strided(SCALE, LENGTH),
        Strided(SCALE, 10**12),
    ],
    ids=["window", "wide_window", "all_global", "stride", "long_stride"],
)
def test_a_window_or_a_stride_as_long_as_the_text_is_full_attention(kernel: Kernel, causal: bool) -> None:
    query, key, value = draw()
    expected = F.scaled_dot_product_attention(query, key, value, is_causal=causal)
    torch.testing.assert_close(kernel(query, key, value, None, causal, NOTHING), expected, **EXACT)


def test_one_bucket_is_full_attention_of_shared_queries_and_keys() -> None:
    query, key, value = draw(shares_query_and_key=True)
    bias_NN = torch.zeros(LENGTH, LENGTH, dtype=torch.float64).fill_diagonal_(-1e9)
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=bias_NN)
    for rounds in (1, 3):
        kernel = made(Hashed(SCALE, KEY_DIM, 1, rounds, LENGTH))
        torch.testing.assert_close(kernel(query, key, value, None, False, NOTHING), expected, **EXACT)
    causal = F.scaled_dot_product_attention(
        query, key, value, attn_mask=bias_NN.masked_fill(torch.ones(LENGTH, LENGTH).triu(1) > 0, -torch.inf)
    )
    torch.testing.assert_close(kernel(query, key, value, None, True, NOTHING), causal, **EXACT)
    assert ITSELF < -1e4


def test_sums_of_one_position_each_are_full_attention() -> None:
    query, key, value = draw()
    kernel = made(LowRank(SCALE, LENGTH, LENGTH))
    assert isinstance(kernel, LowRank)
    with torch.no_grad():
        kernel.keys.copy_(torch.eye(LENGTH))
        kernel.values.copy_(torch.eye(LENGTH))
    expected = F.scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(kernel(query, key, value, None, False, NOTHING), expected, **EXACT)
    with pytest.raises(DataError, match="a text of 20 tokens does not fit low-rank attention that learned sums"):
        kernel(*draw(20), None, False, NOTHING)


@pytest.mark.parametrize("causal", [False, True])
def test_linear_attention_is_the_formula_of_its_paper(causal: bool) -> None:
    """Katharopoulos et al., equation 4, with no sum taken first; longer than a chunk."""
    query, key, value = draw(131)
    weight = (F.elu(query) + 1) @ (F.elu(key) + 1).transpose(-2, -1)
    weight = weight.tril() if causal else weight
    expected = weight / weight.sum(dim=-1, keepdim=True) @ value
    found = made(KERNELS["linear"]())(query, key, value, None, causal, NOTHING)
    torch.testing.assert_close(found, expected, **EXACT)


def test_a_performers_error_falls_with_its_features() -> None:
    query, key, value = draw()
    query, key = query / 2, key / 2
    expected, errors = F.scaled_dot_product_attention(query, key, value), []
    for features in (16, 256, 4096):
        kernel = made(FeatureAttention(RandomFeatures(KEY_DIM, features, SCALE)))
        errors.append(float((kernel(query, key, value, None, False, NOTHING) - expected).square().mean().sqrt()))
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[2] < 0.01


def test_features_of_huge_vectors_are_finite_in_single_precision() -> None:
    features = RandomFeatures(64, 128, 64**-0.5)
    initialize(features, seed=1)
    query, key, value = (100 * torch.randn(1, 2, 9, 64) for _ in range(3))
    assert FeatureAttention(features)(query, key, value, None, True, NOTHING).isfinite().all()


def steps(kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The recurrent form.  (B H N K) … -> (B H N V)."""
    past = kernel.empty(BATCH, HeadShape.plain(HEADS, KEY_DIM, VALUE_DIM), query)
    mixed = []
    for place in range(query.shape[2]):
        vectors = query[:, :, place], key[:, :, place], value[:, :, place]
        position = torch.full((BATCH,), place)
        found, past = kernel.step(NewToken(*vectors, position, position >= 0, place), past)
        mixed.append(found)
    return torch.stack(mixed, dim=2), past


@pytest.mark.parametrize("name", DECODING)
def test_the_recurrent_form_equals_the_parallel_form(name: str) -> None:
    kernel = made(KERNELS[name]())
    query, key, value = draw(143, kernel.shares_query_and_key)
    found, _ = steps(kernel, query, key, value)
    torch.testing.assert_close(found, kernel(query, key, value, None, True, NOTHING), **EXACT)


@pytest.mark.parametrize("name", DECODING)
def test_what_is_remembered_of_a_prompt_is_what_stepping_through_it_leaves(name: str) -> None:
    """The next token finds the same, after prompts of different lengths; the second row is its first 11 tokens."""
    kernel, lengths = made(KERNELS[name]()), torch.tensor([LENGTH, 11])
    query, key, value = draw(LENGTH + 1, kernel.shares_query_and_key)
    parts = [each[:, :, :LENGTH] for each in (query, key, value)]
    past = kernel.remember(*parts, lengths)
    expected = kernel(query, key, value, None, True, NOTHING)
    vectors = [each[[0, 1], :, lengths] for each in (query, key, value)]
    found, _ = kernel.step(NewToken(*vectors, lengths, lengths > 0, LENGTH), past)
    torch.testing.assert_close(found, expected[[0, 1], :, lengths], **EXACT)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_weights_that_are_shown_are_those_that_were_used(name: str, padded: bool, causal: bool) -> None:
    if causal and name == "low_rank":
        return  # encoders only
    kernel = made(KERNELS[name]())
    query, key, value = draw(shares_query_and_key=kernel.shares_query_and_key)
    allowed = PADDED if padded else None
    weight = kernel.weights(kernel.scores(query, key, allowed, causal), key, allowed)
    found = kernel(query, key, value, allowed, causal, NOTHING)
    real = PADDED if padded else torch.ones_like(PADDED)
    torch.testing.assert_close(found.transpose(1, 2)[real], (weight @ value).transpose(1, 2)[real], **EXACT)
    assert found.isfinite().all()
    if name != "low_rank":
        torch.testing.assert_close(weight.sum(-1), torch.ones_like(weight[..., 0]), **EXACT)
    if padded:
        assert weight[1, :, :11, 11:].abs().max() == 0
    if causal:
        assert weight.triu(1).abs().max() == 0


def test_patterns_are_what_their_settings_say() -> None:
    place = torch.arange(9)
    window, strided = Window(1.0, 1, dilation=2, global_tokens=1), Strided(1.0, 3)
    assert window.attends(place[5:6, None], place)[0].nonzero().flatten().tolist() == [0, 3, 5, 7]
    assert window.attends(place[:1, None], place).all()
    assert strided.attends(place[4:5, None], place)[0].nonzero().flatten().tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert strided.attends(place[8:9, None], place)[0].nonzero().flatten().tolist() == [2, 5, 6, 7, 8]


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_flow_past_padding(name: str) -> None:
    kernel = made(KERNELS[name]())
    query, key, value = (each.requires_grad_() for each in draw(shares_query_and_key=kernel.shares_query_and_key))
    kernel(query, key, value, PADDED, False, NOTHING).transpose(1, 2)[PADDED].sum().backward()
    for each in (query, value) if kernel.shares_query_and_key else (query, key, value):
        assert each.grad is not None and each.grad.isfinite().all() and each.grad.abs().max() > 0
        assert each.grad[1, :, 11:].abs().max() == 0


class Largest(TorchDispatchMode):
    """Remembers how many numbers the largest tensor had that any operation made."""

    numbers = 0

    def __torch_dispatch__(self, function, types, given=(), named=None):  # type: ignore[no-untyped-def]
        made = function(*given, **(named or {}))
        for each in made if isinstance(made, tuple | list) else (made,):
            if isinstance(each, Tensor) and not function.is_view and not function._schema.is_mutable:
                self.numbers = max(self.numbers, each.numel())
        return made


def largest(work: Callable[[], object]) -> int:
    with torch.no_grad(), Largest() as mode:
        work()
    return mode.numbers


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["window-dilated-global", "low_rank", "linear", "performer", "hashed", "strided"])
def test_no_tensor_grows_with_the_square_of_the_length_not_even_a_mask(name: str, causal: bool) -> None:
    if causal and name == "low_rank":
        return  # encoders only
    kernel = made(LowRank(SCALE, 5, 2048) if name == "low_rank" else KERNELS[name]())
    sizes = []
    for length in (512, 2048):
        query, key, value = draw(length, kernel.shares_query_and_key)
        allowed = torch.arange(length) < torch.tensor([length, length - 3])[:, None]
        sizes.append(largest(lambda: kernel(query, key, value, allowed, causal, NOTHING)))  # noqa: B023
    if name == "strided":  # n·n / stride; a stride of √n is the user's choice
        assert sizes[1] <= 2 * BATCH * HEADS * 2048 * 2048 / 4
    else:
        assert sizes[1] <= 4.3 * sizes[0]


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("window", BATCH * HEADS * 16 * VALUE_DIM),  # room for sixteen, of which a ring of four is used
        ("window-dilated-global", BATCH * HEADS * 16 * VALUE_DIM),
        ("linear", BATCH * HEADS * KEY_DIM * (VALUE_DIM + 1)),
        ("performer", BATCH * HEADS * 11 * (VALUE_DIM + 1)),
    ],
)
def test_a_window_forgets_and_a_sum_has_one_size_however_long_the_text(name: str, numbers: int) -> None:
    kernel = made(KERNELS[name]())
    _, past = steps(kernel, *draw(143))
    assert max(kept.numel() for kept in past) == numbers


@pytest.mark.parametrize("name", ["window-dilated-global", "linear", "performer", "hashed", "strided"])
def test_a_step_reads_no_more_than_its_pattern(name: str) -> None:
    """After 600 tokens the largest tensor that a step makes is not larger than after 300, but for every stride-th."""
    kernel, most = made(KERNELS[name]()), []
    for length in (300, 600):
        query, key, value = draw(length + 1, kernel.shares_query_and_key)
        first = (query[:, :, :length], key[:, :, :length], value[:, :, :length])
        past = steps(kernel, *first)[1]
        if name in ("hashed", "strided"):  # which remember every token: room for it is made before the measured step
            past = (*(F.pad(kept, (0, 0, 0, 1)) for kept in past[:2]), *past[2:])
        vectors, position = [each[:, :, length] for each in (query, key, value)], torch.full((BATCH,), length)
        new = NewToken(*vectors, position, position >= 0, length)
        most.append(largest(lambda: kernel.step(new, past)))  # noqa: B023
    assert most[1] <= (2.1 if name == "strided" else 1.0) * most[0]
    assert most[1] < BATCH * HEADS * 600 * VALUE_DIM


@pytest.mark.parametrize("name", ["window", "strided", "low_rank", "hashed"])
def test_weights_are_dropped_out_while_training(name: str) -> None:
    kernel = made(KERNELS[name]())
    query, key, value = draw(shares_query_and_key=kernel.shares_query_and_key)
    value = torch.ones_like(value)
    torch.manual_seed(5)
    dropped = kernel(query, key, value, None, False, Dropout(0.5)).detach()
    assert float(dropped.std()) > 0.05
    if name != "low_rank":
        assert float(dropped.mean()) == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_heads_may_share_keys_and_listening_changes_nothing(groups: int) -> None:
    shape = HeadShape(4, KEY_DIM, VALUE_DIM, groups)
    for make in (lambda: Window(SCALE, 3, 1, 1), lambda: FeatureAttention(EluFeatures(KEY_DIM))):
        attention = KernelAttention(11, shape, True, 0.0, make())
        initialize(attention, seed=1)
        hidden = torch.randn(2, 13, 11, dtype=torch.float64)
        quiet = attention.double()(hidden, None, True)
        with record(attention, ("weight", "score")) as recorded:
            loud = attention(hidden, None, True)
        torch.testing.assert_close(loud, quiet, **EXACT)
        torch.testing.assert_close(recorded["score"].softmax(dim=-1), recorded["weight"], **EXACT)
        assert recorded["weight"].shape == (2, 4, 13, 13)


@pytest.mark.parametrize("key_dim", [64, 128, 256])
def test_a_performers_wide_heads_say_in_float32_what_they_say_in_float64(key_dim: int) -> None:
    features = RandomFeatures(key_dim, 32, key_dim**-0.5)
    initialize(features, seed=3)
    kernel, generator = FeatureAttention(features), torch.Generator().manual_seed(1)
    vectors = [torch.randn(2, 2, 9, dim, generator=generator) for dim in (key_dim, key_dim, 7)]
    single, double = (
        kernel.to(dtype)(*(vector.to(dtype) for vector in vectors), None, True, NOTHING).double()
        for dtype in (torch.float32, torch.float64)
    )
    assert float(double.abs().max()) > 0.1
    torch.testing.assert_close(single, double, rtol=1e-3, atol=1e-3)


def test_a_performers_gradients_are_finite_where_keys_are_large() -> None:
    features = RandomFeatures(64, 128, 64**-0.5)
    initialize(features, seed=3)
    generator = torch.Generator().manual_seed(1)
    vectors = [(size * torch.randn(2, 2, 20, 64, generator=generator)).requires_grad_() for size in (5.0, 5.0, 1.0)]
    found = FeatureAttention(features)(*vectors, None, True, NOTHING)
    found.sum().backward()
    assert bool(found.isfinite().all())
    assert all(vector.grad is not None and bool(vector.grad.isfinite().all()) for vector in vectors)


def test_a_hashed_step_does_not_compare_all_that_it_reads_with_one_another() -> None:
    rounds, reach = 3, 256
    kernel = made(Hashed(SCALE, KEY_DIM, 4, rounds, reach))
    query, key, value = draw(5, kernel.shares_query_and_key)
    past = steps(kernel, query[:, :, :4], key[:, :, :4], value[:, :, :4])[1]
    vectors, position = [each[:, :, 4] for each in (query, key, value)], torch.full((BATCH,), 4)
    most = largest(lambda: kernel.step(NewToken(*vectors, position, position >= 0, 4), past))
    assert most <= BATCH * HEADS * 4 * rounds * (reach + 1) * VALUE_DIM


@pytest.mark.parametrize("name", DECODING)
def test_a_step_in_bfloat16_is_the_step_in_float64_rounded(name: str) -> None:
    kernel = made(KERNELS[name]())
    vectors = draw(shares_query_and_key=kernel.shares_query_and_key)
    exact, _ = steps(kernel, *vectors)
    rounded, _ = steps(kernel.bfloat16(), *(vector.bfloat16() for vector in vectors))
    assert rounded.dtype == torch.bfloat16
    assert float((rounded.double() - exact).abs().mean()) < 0.25


def test_directions_of_random_features_are_orthogonal_and_as_long_as_gaussian_vectors() -> None:
    features = RandomFeatures(16, 512, 0.25)
    initialize(features, seed=1)
    block = features.projection[16:32]
    gram = block @ block.t()
    assert (gram - gram.diag().diag()).abs().max() < 1e-4
    assert float(features.projection.norm(dim=1).mean()) == pytest.approx(math.sqrt(16), rel=0.03)
    assert not features.projection.requires_grad

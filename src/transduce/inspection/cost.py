"""Cost estimates of a model before training: parameters, operations, memory.

Everything is measured on the real model, built on torch's `meta` device: tensors with shapes and no values, so that a
billion parameters take no memory and a forward pass no time. The code that is counted is the code that will run, so a
new model in the catalog needs no formula of its own. The rules:

- *operations* are those of matrix products (a multiply-add is two); the rest is a few per cent. Masked attention
  counts whole. Training a token costs three times its forward pass (Kaplan et al. 2020, section 2.1: twice the forward
  for the gradients), the source's share included. Decoding a token is one step, which reads the state of all before it.
- *memory to train* is weights, gradients and Adam's two moments (each as large as the weights), the activations that
  autograd saves for a batch, and the batch's scores over the vocabulary, once: 16 bytes for each parameter, the rest
  in proportion to the tokens. It is an estimate: attention weights count as kept, where a fused kernel keeps none,
  and so do all scores, where a fused loss keeps a part.
- *memory to decode* is the weights and one row's state (multiply that by sentences and beams).

All numbers are float32, four bytes each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Annotated, Any, TypeVar, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from transduce.config import Config
from transduce.errors import SettingsError
from transduce.models import catalog
from transduce.models.interface import AnyTransducer, EncoderModel, Model, VocabularySizes

Length = Annotated[int, Field(ge=1, le=20_000)]
LARGEST_VOCABULARY = 100_000_000
FLOAT_BYTES = 4


class Workload(Config):
    """Lengths and batch size that costs are computed for."""

    source_length: Length = 32
    """Tokens of a source sentence."""
    target_length: Length = 32
    """Tokens of a target sentence."""
    tokens: Annotated[int, Field(ge=1, le=10**9)] = 4096
    """Target tokens of a training batch."""
    kernel: Annotated[int, Field(ge=2, le=10_000)] = 3
    """Table 1's k, the kernel width of the compared convolution."""
    window: Annotated[int, Field(ge=1, le=20_000)] = 64
    """Table 1's r, the neighbourhood of the compared restricted attention."""


@dataclass(frozen=True)
class Cost:
    """The estimate."""

    parameters: int
    parts: dict[str, int]
    """Parameters by part; a matrix with two uses counts once, where it stands first."""
    flops_per_token: dict[str, int]
    """`train` and `decode` per target token, `encode` per source token."""
    memory_bytes: dict[str, dict[str, int]]
    """`train` and `decode`, each by kind with its `total`."""
    table_1: list[LayerCost]
    workload: Workload
    """What the estimate is for; the target of a text encoder is as long as its input."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "workload": self.workload.to_table()}


def estimate(config: Config, sizes: VocabularySizes, workload: Workload) -> Cost:
    """Return the cost of a model with these settings."""
    for size in sizes:
        if not 1 <= size <= LARGEST_VOCABULARY:
            raise SettingsError(f"invalid vocabulary size {size:,}; give 1 to {LARGEST_VOCABULARY:,}")
    with torch.device("meta"):
        model = catalog.build(config, sizes)
        if not model.has_target:  # an encoder model learns from its input
            workload = workload.but(target_length=workload.source_length)
        _check_lengths(model, workload)
        seen = observe(model, workload.source_length, workload.target_length)
    parts = parameters_by_part(model)
    parameters = sum(parts.values())
    return Cost(
        parameters=parameters,
        parts=parts,
        flops_per_token=flops_per_token(seen, workload),
        memory_bytes=memory_bytes(seen, parameters, workload),
        table_1=table_1(workload.source_length, layer_width(config), workload.kernel, workload.window),
        workload=workload,
    )


def parameters_by_part(model: nn.Module) -> dict[str, int]:
    """Count parameters by part of the model; a shared one counts once."""
    parts = {"embeddings": 0}
    for name, parameter in model.named_parameters():
        part = _part(name)
        parts[part] = parts.get(part, 0) + parameter.numel()
    parts["output"] = parts.pop("output", 0)  # last, and 0 where it is an embedding's matrix
    return parts


def flops_per_token(seen: Observation, workload: Workload) -> dict[str, int]:
    """Return the operations of training, decoding and encoding, each per token."""
    return {
        "train": 3 * (seen.encode_flops + seen.forward_flops) // workload.target_length,
        "decode": seen.step_flops,
        "encode": seen.encode_flops // workload.source_length,
    }


def memory_bytes(seen: Observation, parameters: int, workload: Workload) -> dict[str, dict[str, int]]:
    """Return the bytes that an update and that decoding need, by kind."""
    weights = FLOAT_BYTES * parameters
    train = {
        "weights": weights,
        "gradients": weights,
        "moments": 2 * weights,
        "activations": seen.kept_bytes * workload.tokens // workload.target_length,
        "scores": seen.score_bytes * workload.tokens // workload.target_length,
    }
    decode = {"weights": weights, "state": seen.state_bytes}
    return {"train": {**train, "total": sum(train.values())}, "decode": {**decode, "total": sum(decode.values())}}


def layer_width(config: Config) -> int:
    """Return the paper's d: the width of a Transformer's positions, or of a recurrent state."""
    return int(getattr(config, "model_dim", None) or config.hidden_dim)  # type: ignore[attr-defined]


def _check_lengths(model: Model, workload: Workload) -> None:
    limits = {"source": (workload.source_length, model.max_source)}
    if model.has_target:
        limits["target"] = (workload.target_length, model.max_target)
    for side, (length, limit) in limits.items():
        if limit is not None and length > limit:
            raise SettingsError(
                f"a {side} of {length:,} tokens does not fit this model, which has {limit:,} positions; "
                f"give --{side}-length {limit} or a larger model.max_positions"
            )


def _part(name: str) -> str:
    """Return the part of a parameter: decoder.3.cross_attention.q_proj.weight -> decoder_cross_attention."""
    side, *inner = name.split(".")
    if side.endswith("embedding"):
        return "embeddings"
    if side.endswith("positions"):
        return "positions"
    if "norm" in inner or side.endswith("norm"):
        return f"{side.removesuffix('_norm')}_norms"
    if any(word.startswith(("weight_hh", "weight_ih", "bias_hh", "bias_ih")) for word in inner):
        return f"{side}_recurrence"
    words = [word for word in inner[:-1] if not word.isdecimal()]
    return f"{side}_{words[0]}" if words and side in ("encoder", "decoder") else side


# Table 1 of "Attention Is All You Need": the cost of one layer of each kind, for a length and a width.
#
# Vaswani et al. (2017), section 4. The numbers are the orders' own arguments, without the constants that the paper's
# O(…) leaves out: they rank the layers and show how each grows; `cost` counts a real model's operations.


@dataclass(frozen=True)
class LayerCost:
    """One row of the table, as formulas and as numbers."""

    layer: str
    complexity: str
    operations: int
    sequential: str
    sequential_operations: int
    path: str
    path_length: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def table_1(length: int, model_dim: int, kernel: int = 3, window: int = 64) -> list[LayerCost]:
    """Return the table's four rows for n = `length`, d = `model_dim`, k = `kernel` and r = `window`.

    Convolutions are dilated, as in ByteNet, hence log_k(n); contiguous kernels need n/k layers. A window wider than
    the sequence is the whole sequence.
    """
    if min(length, model_dim, window) < 1:
        raise SettingsError(
            f"Table 1 needs a length, width and window of at least 1, not {length}, {model_dim} and {window}"
        )
    if kernel < 2:
        raise SettingsError(f"a convolution of width {kernel} does not connect positions; give a width of at least 2")
    n, d, k, r = length, model_dim, kernel, min(window, length)
    return [
        LayerCost("self-attention", "n²·d", n * n * d, "1", 1, "1", 1),
        LayerCost("recurrent", "n·d²", n * d * d, "n", n, "n", n),
        LayerCost("convolutional", "k·n·d²", k * n * d * d, "1", 1, "log_k(n)", _layers_to_reach(n, k)),
        LayerCost("self-attention (restricted)", "r·n·d", r * n * d, "1", 1, "n/r", -(-n // r)),
    ]


def _layers_to_reach(length: int, kernel: int) -> int:
    """Return log_kernel(length) rounded up, in whole numbers: how many dilated layers connect all positions."""
    layers, reach = 1, kernel
    while reach < length:
        layers, reach = layers + 1, reach * kernel
    return layers


# Dry runs: a model on the meta device, to count FLOPs and bytes without computing.
#
# The model stands on torch's `meta` device, where tensors have shapes and no values. Every matrix product passes the
# counter there, also those that a CPU's fused kernels would hide from it (attention, LSTM).

Outcome = TypeVar("Outcome")


class Unpadded(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives values to the masks and lengths of tensors that have none: the one sentence run here has no padding.

    A boolean scalar is True, `nonzero` finds every position, and any other scalar is `length`; so is every number that
    is copied to the CPU.
    """

    def __init__(self, length: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.length = length

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            return True if args[0].dtype == torch.bool else self.length
        if func is torch.ops.aten.nonzero.default and args[0].is_meta:
            return args[0].new_empty(args[0].numel(), args[0].dim(), dtype=torch.long)
        if func is torch.ops.aten._to_copy.default and args[0].is_meta and _is_cpu((kwargs or {}).get("device")):
            return torch.full(args[0].shape, self.length, dtype=args[0].dtype)
        return func(*args, **(kwargs or {}))


def _is_cpu(device: torch.device | None) -> bool:
    return device is not None and device.type == "cpu"


@dataclass(frozen=True)
class Observation:
    """Measured costs of one sentence pair."""

    encode_flops: int
    """Encoding the source."""
    forward_flops: int
    """Forward pass of the whole target with all scores, as in training."""
    step_flops: int
    """One step at the last target token with its scores, as in search."""
    kept_bytes: int
    """Activations that autograd saves of both for the backward pass, without weights."""
    score_bytes: int
    """The scores over the vocabulary of the whole target."""
    state_bytes: int
    """Decoding state before the last step, for one row."""


def observe(model: Model, source_length: int, target_length: int) -> Observation:
    """Run one pair of sentences, or for a text encoder one text, through a model on the meta device."""
    if model.has_target:
        return _observe_transducer(cast("AnyTransducer", model), source_length, target_length)
    return _observe_encoder(cast("EncoderModel", model), source_length)


def _observe_encoder(model: EncoderModel, length: int) -> Observation:
    """Only encoding: the cost of the head per token counts as a step."""
    model.train()
    with Unpadded(length), kept_for_backward(model) as kept:
        allowed_BN = torch.ones(1, length, dtype=torch.bool, device="meta")
        encoding, encoded = counted(lambda: model(_tokens(length), allowed_BN))
        scores, headed = counted(lambda: encoding.states if model.head is None else model.head(encoding))
    kept_bytes = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    return Observation(encoded, headed, (encoded + headed) // length, kept_bytes, size([scores]), 0)


def _observe_transducer(model: AnyTransducer, source_length: int, target_length: int) -> Observation:
    """First as training does, then as search does."""
    model.train()
    with Unpadded(source_length), kept_for_backward(model) as kept:
        allowed_BS = torch.ones(1, source_length, dtype=torch.bool, device="meta")
        memory, encode = counted(lambda: model.encode(_tokens(source_length), allowed_BS))
    with Unpadded(target_length), kept_for_backward(model, kept):
        score_BTV, forward = counted(lambda: model.logits(model(_tokens(target_length), memory)))
    model.eval()
    before = target_length - 1
    with torch.no_grad(), Unpadded(source_length):
        memory = model.encode(_tokens(source_length), allowed_BS)  # without the graph that training needs
    with torch.no_grad(), Unpadded(before):
        state = model.start(memory, 1)
        if before:
            _, state = model.extend(_tokens(before), torch.full((1,), before, device="meta"), state)
        state_bytes = size(tensors(state))
        _, step = counted(lambda: model.logits(model.step(_tokens(1)[:, 0], state)[0]))
    kept_bytes = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    return Observation(encode, forward, step, kept_bytes, size([score_BTV]), state_bytes)


def training_flops(model: AnyTransducer, source_length: int, target_length: int) -> int:
    """Return the operations of training on one pair, with a model on the meta device: three times the forward pass."""
    model.train()
    with torch.no_grad(), Unpadded(source_length):
        allowed_BS = torch.ones(1, source_length, dtype=torch.bool, device="meta")
        memory, encode = counted(lambda: model.encode(_tokens(source_length), allowed_BS))
    with torch.no_grad(), Unpadded(target_length):
        _, forward = counted(lambda: model.logits(model(_tokens(target_length), memory)))
    return 3 * (encode + forward)


def counted(work: Callable[[], Outcome]) -> tuple[Outcome, int]:
    """Call a function; return its result and the operations of its matrix products."""
    with FlopCounterMode(display=False) as counter:
        outcome = work()
    return outcome, int(counter.get_total_flops())


@contextmanager
def kept_for_backward(model: nn.Module, kept: dict[int, Tensor] | None = None) -> Iterator[dict[int, Tensor]]:
    """Collect what autograd saves, by storage: views of one tensor are kept once, and weights are there anyway."""
    kept = {} if kept is None else kept
    weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()._cdata
        if storage not in weights:
            kept.setdefault(storage, tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield kept


def tensors(value: object) -> Iterator[Tensor]:
    """Yield the tensors in a state of nested dataclasses and sequences."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from tensors(getattr(value, field.name))


def size(values: Iterable[Tensor]) -> int:
    """Return the bytes of some tensors."""
    return sum(value.numel() * value.element_size() for value in values)


def _tokens(length: int) -> Tensor:
    return torch.zeros(1, length, dtype=torch.long, device="meta")

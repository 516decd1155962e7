"""Transformer blocks, and the settings of one stack of them.

A block is attention and a feed-forward network, each in a residual connection (section 3.1 of the paper). The defaults
are the paper's; with other settings the same blocks make BERT, GPT, T5, Marian's models or a modern decoder.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from transduce.config import Config
from transduce.nn.attention.feature import EluFeatures, FeatureAttention, LowRank, RandomFeatures
from transduce.nn.attention.hashed import Hashed
from transduce.nn.attention.kernel import Kernel, KernelAttention, RowPast
from transduce.nn.attention.multi_head import CrossAttention, HeadShape, SelfAttention
from transduce.nn.attention.pattern import Strided, Window
from transduce.nn.device import is_full
from transduce.nn.dropout import Dropout
from transduce.nn.hook import HookPoint
from transduce.nn.position import (
    UNRELATED,
    Alibi,
    Buckets,
    Clipped,
    LearnedPositions,
    NoPositions,
    Positions,
    Relation,
    RelativeEmbeddings,
    RelativePositions,
    Rotary,
    SinusoidalPositions,
    Unrelated,
    halved_sinusoids,
    shifted_sinusoids,
    sinusoids,
)
from transduce.nn.state import KeyValues
from transduce.nn.sublayer import FEED_FORWARD, GATED, RESIDUAL, MakeNorm, norms

AttentionName = Literal["full", "window", "strided", "low_rank", "linear", "performer", "hashed"]
"""Kernels by name; full is `nn.attention.multi_head` itself."""
WITH_DISTANCES = ("alibi", "shaw", "buckets")
"""Position encodings that need the score of every pair."""


def make_kernel(config: BlockConfig) -> Kernel | None:
    """Return the kernel of one layer, None for full attention."""
    shape = config.head_shape
    scale = shape.scale
    if config.attention == "window":
        return Window(scale, config.window, config.dilation, config.global_tokens)
    if config.attention == "strided":
        return Strided(scale, config.stride)
    if config.attention == "low_rank":
        return LowRank(scale, config.rank, config.max_positions)
    if config.attention == "linear":
        return FeatureAttention(EluFeatures(shape.key_dim))
    if config.attention == "performer":
        return FeatureAttention(RandomFeatures(shape.key_dim, config.features, scale))
    if config.attention == "hashed":
        return Hashed(scale, shape.key_dim, config.hash_buckets, config.hash_rounds, config.hash_reach)
    return None


def incompatibility(config: BlockConfig) -> str | None:
    """Return why this attention is incompatible with other settings, or None."""
    name = config.attention
    if name == "full":
        return None
    if config.positions in WITH_DISTANCES:
        return (
            f"attention = '{name}' does not support {config.positions} positions, which need the score of every pair; "
            "choose sinusoidal, learned or rotary ones"
        )
    if name in ("linear", "low_rank") and config.positions == "rotary":
        return f"attention = '{name}' does not support rotary positions; choose sinusoidal or learned ones"
    if name in ("linear", "performer") and config.attention_dropout > 0:
        return f"attention = '{name}' never computes the weights; attention_dropout must be 0"
    if name == "hashed" and config.key_value_heads not in (None, config.num_heads):
        return "attention = 'hashed' shares queries and keys; leave out key_value_heads"
    if name == "hashed" and config.hash_buckets > 1 and config.hash_buckets % 2:
        return f"hash_buckets must be even or 1, not {config.hash_buckets}"
    return None


Width = Annotated[int, Field(ge=1, le=65_536)]
Layers = Annotated[int, Field(ge=1, le=1_000)]
Rate = Annotated[float, Field(ge=0.0, lt=1.0)]
Reach = Annotated[int, Field(ge=1, le=1_000_000)]
Past = KeyValues | RowPast
"""What decoding keeps: keys and values of full attention, or the states of efficient attention kernels."""

ActivationName = Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"]

SINUSOIDS = {
    "sinusoidal": sinusoids,
    "sinusoidal_marian": halved_sinusoids,
    "sinusoidal_fairseq": shifted_sinusoids,
}


class BlockConfig(Config):
    """Settings of a stack of blocks; the defaults are the paper's base model."""

    model_dim: Width = 512
    """Width of the residual stream; the paper's d_model."""
    num_heads: Width = 8
    """Attention heads; the paper's h."""
    key_value_heads: Width | None = None
    """Heads of keys and values: 1 is multi-query, a divisor of num_heads is grouped-query attention; num_heads by
    default."""
    key_dim: Width | None = None
    """Width of one head's queries and keys, d_k; model_dim / num_heads by default."""
    value_dim: Width | None = None
    """Width of one head's values, d_v; model_dim / num_heads by default."""
    ffn_dim: Width = 2048
    """Inner width of the feed-forward network, d_ff."""
    num_layers: Layers = 6
    """Layers of a stack; the paper's N."""
    norm: Literal["post", "pre"] = "post"
    """Post-norm (the paper) or pre-norm (more stable for deep models)."""
    final_norm: bool | None = None
    """A final norm at the end of each stack; by default with pre-norm only."""
    norm_kind: Literal["layer", "rms"] = "layer"
    """LayerNorm (the paper), or RMSNorm, without mean and bias."""
    norm_eps: Annotated[float, Field(gt=0.0, lt=1.0)] = 1e-5
    """Epsilon of the norms."""
    activation: ActivationName = "relu"
    """Activation of the feed-forward network; swiglu and geglu are gated."""
    ffn_bias: bool | None = None
    """Biases in the feed-forward network; by default with all activations but swiglu and geglu."""
    positions: Literal[
        "sinusoidal", "sinusoidal_marian", "sinusoidal_fairseq", "learned", "rotary", "alibi", "shaw", "buckets", "none"
    ] = "sinusoidal"
    """Position encoding. Added to embeddings: sinusoids (the paper's, or in the layout of Marian or fairseq) or learned
    embeddings (Table 3, row E). In self-attention: rotary, alibi, shaw (Shaw et al. 2018), buckets (T5's relative
    position bias)."""
    max_positions: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    """Maximum length with learned positions; others have no limit."""
    rotary_base: Annotated[float, Field(gt=1.0, le=1e12)] = 10_000.0
    """Base of the rotary frequencies (rope_theta)."""
    max_distance: Annotated[int, Field(ge=2, le=1_000_000)] | None = None
    """Distance from which on relative positions are not distinguished: by default 16 for shaw, 128 for buckets."""
    buckets: Annotated[int, Field(ge=4, le=65_536)] = 32
    """Number of relative position buckets with positions = "buckets"."""
    attention_bias: bool = False
    """Biases in the attention projections; the paper's code has none."""
    scale_attention: bool = True
    """Divide attention scores by sqrt(key_dim) (section 3.2.1); T5 does not."""
    attention: AttentionName = "full"
    """Self-attention: full, or an efficient kernel whose cost does not grow with the square of the length. window:
    sliding window (Longformer); strided: Sparse Transformer; low_rank: Linformer, encoders only; linear: elu features;
    performer: random features; hashed: Reformer. Cross-attention is always full."""
    window: Reach = 128
    """With attention = "window": positions visible on either side, or to the left in a decoder."""
    dilation: Reach = 1
    """With attention = "window": dilation of the window in every second layer, beginning with the second; the other
    layers have none, so that neighbours are connected."""
    global_tokens: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """With attention = "window": number of first tokens with global attention."""
    stride: Reach = 64
    """With attention = "strided": all nearer positions are visible, and every stride-th."""
    rank: Reach = 128
    """With attention = "low_rank": rank of the projection over positions; max_positions is its length."""
    features: Reach = 128
    """With attention = "performer": number of random features."""
    hash_buckets: Annotated[int, Field(ge=1, le=65_536)] = 16
    """With attention = "hashed": number of hash buckets."""
    hash_rounds: Annotated[int, Field(ge=1, le=64)] = 2
    """With attention = "hashed": number of hashing rounds."""
    hash_reach: Annotated[int, Field(ge=1, le=4096)] = 64
    """With attention = "hashed": visible positions of the same bucket on either side, or to the left in a decoder."""
    dropout: Rate = 0.1
    """Dropout on each sub-layer's output and on the sum of embeddings and positions (section 5.4)."""
    attention_dropout: Rate = 0.0
    """Dropout on the attention weights; the paper does not mention it."""
    activation_dropout: Rate = 0.0
    """Dropout inside the feed-forward network; the paper does not mention it."""

    @model_validator(mode="after")
    def _heads_fit(self) -> BlockConfig:
        if self.model_dim % self.num_heads and (self.key_dim is None or self.value_dim is None):
            raise ValueError(
                f"model_dim {self.model_dim} is not divisible by num_heads {self.num_heads}; "
                "change one of them, or set key_dim and value_dim"
            )
        if self.key_value_heads is not None and self.num_heads % self.key_value_heads:
            raise ValueError(f"num_heads {self.num_heads} is not divisible by key_value_heads {self.key_value_heads}")
        if self.positions == "rotary" and self.head_dims[0] % 2:
            raise ValueError(f"rotary positions need an even key_dim, not {self.head_dims[0]}")
        if self.positions == "shaw" and self.key_value_heads not in (None, self.num_heads):
            raise ValueError("positions = 'shaw' does not support key_value_heads; leave it out")
        if self.positions == "buckets" and (self.max_distance or 128) <= self.buckets // 2:
            raise ValueError(
                f"max_distance must be above buckets / 2 = {self.buckets // 2}, not {self.max_distance or 128}"
            )
        reason = incompatibility(self)
        if reason is not None:
            raise ValueError(reason)
        return self

    @property
    def is_gated(self) -> bool:
        """Whether the feed-forward network is gated."""
        return self.activation in GATED

    @property
    def head_dims(self) -> tuple[int, int]:
        """(d_k, d_v) of one head."""
        equal = self.model_dim // self.num_heads
        return self.key_dim or equal, self.value_dim or equal

    @property
    def head_shape(self) -> HeadShape:
        """Number and widths of the heads."""
        return HeadShape(
            self.num_heads, *self.head_dims, self.key_value_heads or self.num_heads, scaled=self.scale_attention
        )

    def of_layer(self, number: int) -> Self:
        """The settings of one layer, counted from 0."""
        return self.but(dilation=1) if self.dilation > 1 and number % 2 == 0 else self

    @property
    def make_norm(self) -> MakeNorm:
        """Makes the norms."""
        return norms(self.norm_kind, self.norm_eps)


class EncoderBlock(nn.Module):
    """Self-attention, then feed-forward (section 3.1); with a causal mask also the block of a decoder-only model."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.self_attention = _self_attention(config)
        self.feed_forward = _feed_forward(config)
        self.self_attention_residual = _residual(config)
        self.feed_forward_residual = _residual(config)
        self.residual = HookPoint()

    def forward(
        self, hidden: Tensor, allowed: Tensor | None, relation: Relation = UNRELATED, causal: bool = False
    ) -> Tensor:
        """(B S D), (B 1 1 S) -> (B S D)."""
        hidden = self.self_attention_residual(
            hidden, lambda value: self.self_attention(value, allowed, causal, relation)
        )
        passed: Tensor = self.residual(self.feed_forward_residual(hidden, self.feed_forward))
        return passed

    def extend(self, hidden: Tensor, past: Past, layer: int, allowed: Tensor | None, relation: Relation) -> Tensor:
        """Process new tokens of each row, given the past.  (S T·W D) -> (S T·W D)."""
        hidden = self.self_attention_residual(
            hidden,
            lambda value: self.self_attention.extend(value, past, layer, allowed, relation),  # type: ignore[arg-type]  # its own
        )
        passed: Tensor = self.residual(self.feed_forward_residual(hidden, self.feed_forward))
        return passed


class DecoderBlock(nn.Module):
    """Masked self-attention, cross-attention, then feed-forward (section 3.1)."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.self_attention = _self_attention(config)
        self.cross_attention = CrossAttention(
            config.model_dim, config.head_shape, config.attention_bias, config.attention_dropout
        )
        self.feed_forward = _feed_forward(config)
        self.self_attention_residual = _residual(config)
        self.cross_attention_residual = _residual(config)
        self.feed_forward_residual = _residual(config)
        self.residual = HookPoint()

    def forward(self, hidden: Tensor, memory: Tensor, allowed: Tensor | None, relation: Relation) -> Tensor:
        """(B T D), (B M D), (B 1 1 M) -> (B T D)."""
        key, value = self.cross_attention.project_memory(memory)
        hidden = self.self_attention_residual(
            hidden, lambda states: self.self_attention(states, causal=True, relation=relation)
        )
        return self._attend_to_memory(hidden, key, value, allowed)

    def extend(
        self,
        hidden: Tensor,
        past: Past,
        layer: int,
        allowed: Tensor | None,
        relation: Relation,
        memory: tuple[Tensor, Tensor, Tensor | None],
    ) -> Tensor:
        """Process new tokens of each row, given the past and the projected memory.  (S T·W D) -> (S T·W D)."""
        hidden = self.self_attention_residual(
            hidden,
            lambda states: self.self_attention.extend(states, past, layer, allowed, relation),  # type: ignore[arg-type]  # its own
        )
        return self._attend_to_memory(hidden, *memory)

    def _attend_to_memory(self, hidden: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> Tensor:
        hidden = self.cross_attention_residual(hidden, lambda states: self.cross_attention(states, key, value, allowed))
        passed: Tensor = self.residual(self.feed_forward_residual(hidden, self.feed_forward))
        return passed


def added_positions(config: BlockConfig) -> Positions:
    """Positions that are added to embeddings."""
    if config.positions == "learned":
        return LearnedPositions(config.model_dim, config.max_positions)
    if config.positions in SINUSOIDS:
        return SinusoidalPositions(config.model_dim, signals=SINUSOIDS[config.positions])
    return NoPositions()


def relative_positions(config: BlockConfig, bidirectional: bool) -> RelativePositions:
    """Positions in self-attention; `bidirectional` without a causal mask."""
    if config.positions == "rotary":
        return Rotary(config.head_dims[0], config.rotary_base)
    if config.positions == "alibi":
        return Alibi(config.num_heads)
    if config.positions == "shaw":
        return Clipped(config.max_distance or 16)
    if config.positions == "buckets":
        return Buckets(config.num_heads, config.buckets, config.max_distance or 128, bidirectional)
    return Unrelated()


def past_relation(relations: RelativePositions, past: Past, length: int) -> Relation:
    """Relation of `length` new tokens of each row to the past and to themselves."""
    if isinstance(relations, Unrelated):
        return UNRELATED
    return relations(past.query_positions(length), past.key_positions(length))  # type: ignore[no-any-return]


def final_norm(config: BlockConfig) -> nn.Module:
    """The norm at the end of a stack; by default with pre-norm, whose sums are never normalised."""
    wanted = config.norm == "pre" if config.final_norm is None else config.final_norm
    return config.make_norm(config.model_dim) if wanted else nn.Identity()


def apply_block(block: nn.Module, checkpointing: bool, *inputs: Any) -> Tensor:
    """Apply a block, with gradient checkpointing or without."""
    passed: Tensor = recomputed(block, *inputs) if checkpointing else block(*inputs)
    return passed


def recomputed(block: nn.Module, *inputs: Any) -> Any:
    """Return block(*inputs), storing the inputs only: gradient checkpointing (Chen et al. 2016).

    Activations are recomputed in the backward pass, with the same dropout masks: they are keyed. Memory grows with one
    block instead of all of them, for about a third more time.
    """
    sites = [module for module in block.modules() if isinstance(module, Dropout)]
    calls = [site.calls for site in sites]

    def run(*again: Any) -> Any:
        for site, count in zip(sites, calls, strict=True):
            site.calls = count
        return block(*again)

    return checkpoint(run, *inputs, use_reentrant=False)


def broadcast(allowed: Tensor) -> Tensor | None:
    """(B M) -> (B 1 1 M), or None without padding, so that kernels need no mask."""
    if torch.compiler.is_exporting():  # a graph for all inputs
        return allowed[:, None, None, :]
    return None if is_full(allowed) else allowed[:, None, None, :]


def empty_past(config: BlockConfig, blocks: nn.ModuleList, sentences: int, width: int, like: Tensor) -> Past:
    """The empty past of a stack, with `width` rows for each sentence."""
    shape = config.head_shape
    kernels = [
        kernel for block in blocks if isinstance(kernel := getattr(block.self_attention, "kernel", None), Kernel)
    ]
    if kernels:
        return RowPast.empty(kernels, sentences, width, shape, like)
    dims = shape.key_dim, shape.value_dim
    return KeyValues.empty(len(blocks), sentences, width, shape.key_value_heads, dims, like)


def _self_attention(config: BlockConfig) -> SelfAttention | KernelAttention:
    kernel = make_kernel(config)
    if kernel is not None:
        return KernelAttention(
            config.model_dim, config.head_shape, config.attention_bias, config.attention_dropout, kernel
        )
    embeddings = (
        RelativeEmbeddings(*config.head_dims, config.max_distance or 16) if config.positions == "shaw" else None
    )
    return SelfAttention(
        config.model_dim, config.head_shape, config.attention_bias, config.attention_dropout, embeddings
    )


def _feed_forward(config: BlockConfig) -> nn.Module:
    make = FEED_FORWARD[config.activation]
    return make(config.model_dim, config.ffn_dim, config.activation_dropout, config.ffn_bias)


def _residual(config: BlockConfig) -> nn.Module:
    return RESIDUAL[config.norm](config.model_dim, config.dropout, config.make_norm)

"""The blocks that Transformers of every kind are stacked from, and the settings of one stack.

A block is attention and a feed-forward network, each wrapped in a residual (section 3.1 of the paper). What each part
is made of is chosen by settings: those of the paper are the defaults, and with others the same blocks make BERT, GPT,
T5, Marian's models or a modern decoder.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from transduce.config import Config
from transduce.models.attention_kernel import AttentionName, make_kernel, refusal
from transduce.nn.attention.kernel import Kernel
from transduce.nn.attention.kernel_attention import KernelAttention
from transduce.nn.attention.multi_head import CrossAttention, HeadShape, SelfAttention
from transduce.nn.attention.past import RowPast
from transduce.nn.dropout import Dropout
from transduce.nn.feed_forward import FEED_FORWARD, GATED
from transduce.nn.hook import HookPoint
from transduce.nn.norm import RESIDUAL, MakeNorm, norms
from transduce.nn.position import (
    LearnedPositions,
    NoPositions,
    Positions,
    SinusoidalPositions,
    halved_sinusoids,
    shifted_sinusoids,
    sinusoids,
)
from transduce.nn.relative_position import (
    UNRELATED,
    Alibi,
    Buckets,
    Clipped,
    Relation,
    RelativeEmbeddings,
    RelativePositions,
    Rotary,
    Unrelated,
)
from transduce.nn.state import KeyValues

Width = Annotated[int, Field(ge=1, le=65_536)]
Layers = Annotated[int, Field(ge=1, le=1_000)]
Rate = Annotated[float, Field(ge=0.0, lt=1.0)]
Reach = Annotated[int, Field(ge=1, le=1_000_000)]
Past = KeyValues | RowPast
"""What a decoder remembers: keys and values of plain attention, or what kernels keep."""

ActivationName = Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"]

SINUSOIDS = {
    "sinusoidal": sinusoids,
    "sinusoidal_marian": halved_sinusoids,
    "sinusoidal_fairseq": shifted_sinusoids,
}


class BlockConfig(Config):
    """Sizes and choices of a stack of blocks; the defaults are the paper's base model."""

    model_dim: Width = 512
    """Width of every position's vector; the paper's d_model."""
    num_heads: Width = 8
    """Heads of every attention; the paper's h."""
    key_value_heads: Width | None = None
    """Heads of keys and values, where several heads of queries share one: 1 is multi-query, more is grouped-query
    attention; as many as num_heads unless given."""
    key_dim: Width | None = None
    """Width of one head's queries and keys, d_k; model_dim / num_heads unless given."""
    value_dim: Width | None = None
    """Width of one head's values, d_v; model_dim / num_heads unless given."""
    ffn_dim: Width = 2048
    """Inner width of the feed-forward network, d_ff."""
    num_layers: Layers = 6
    """Blocks of a stack; the paper's N."""
    norm: Literal["post", "pre"] = "post"
    """Norm after the sum (the paper) or before the sub-layer (steadier when deep)."""
    final_norm: bool | None = None
    """One more norm at the end of each stack; unless given, where norms stand before sub-layers."""
    norm_kind: Literal["layer", "rms"] = "layer"
    """LayerNorm (the paper), or RMSNorm, which leaves out the mean and the bias."""
    norm_eps: Annotated[float, Field(gt=0.0, lt=1.0)] = 1e-5
    """What a norm adds to the variance."""
    activation: ActivationName = "relu"
    """Activation of the feed-forward network; swiglu and geglu are gated."""
    ffn_bias: bool | None = None
    """Biases in the feed-forward network; unless given, all kinds but the gated ones have them."""
    positions: Literal[
        "sinusoidal", "sinusoidal_marian", "sinusoidal_fairseq", "learned", "rotary", "alibi", "shaw", "buckets", "none"
    ] = "sinusoidal"
    """Where a token stands. Added to embeddings: fixed signals (as in the paper, or as Marian or fairseq lay them out)
    or a trained table (Table 3, row E). Heard of in self-attention: rotary, alibi, shaw (Shaw et al.), buckets (T5)."""
    max_positions: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    """Size of each learned position table; other positions have no limit."""
    rotary_base: Annotated[float, Field(gt=1.0, le=1e12)] = 10_000.0
    """How slowly the slowest channel of rotary positions turns."""
    max_distance: Annotated[int, Field(ge=2, le=1_000_000)] | None = None
    """From where on distances are not told apart: 16 for shaw and 128 for buckets unless given."""
    buckets: Annotated[int, Field(ge=4, le=65_536)] = 32
    """How many kinds of distance there are with positions = "buckets"."""
    attention_bias: bool = False
    """Biases in the attention's projections; the paper's code has none."""
    scale_attention: bool = True
    """Divide scores by the root of a key's width (section 3.2.1); T5 does not."""
    attention: AttentionName = "full"
    """What self-attention looks at: everything, or less, so that cost does not grow with the square of a text's length.
    A sliding window; strides (Child et al.); sums over positions (Linformer, in encoders only); features instead of an
    exponential (linear, or a Performer's random ones); what hashes alike (Reformer). A source is always read whole."""
    window: Reach = 128
    """With attention = "window": how many positions are seen on either side, or before where the future is hidden."""
    dilation: Reach = 1
    """With attention = "window": how far apart they stand in every second layer, beginning with the second; in the
    others they are next to each other, or some positions would never hear of their neighbours."""
    global_tokens: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """With attention = "window": how many first tokens of a text everybody sees, and who see everybody."""
    stride: Reach = 64
    """With attention = "strided": all nearer positions are seen, and every stride-th."""
    rank: Reach = 128
    """With attention = "low_rank": how many sums over positions are looked at; max_positions says over how many."""
    features: Reach = 128
    """With attention = "performer": how many random features stand for the exponential."""
    hash_buckets: Annotated[int, Field(ge=1, le=65_536)] = 16
    """With attention = "hashed": into how many buckets positions fall."""
    hash_rounds: Annotated[int, Field(ge=1, le=64)] = 2
    """With attention = "hashed": how many times they are hashed."""
    hash_reach: Annotated[int, Field(ge=1, le=4096)] = 64
    """With attention = "hashed": how many positions of its own bucket one sees on either side, or before. A decoder
    keeps room for as many in every bucket."""
    dropout: Rate = 0.1
    """On each sub-layer's output and on the sums of embeddings and positions (section 5.4)."""
    attention_dropout: Rate = 0.0
    """On the attention weights; the paper does not mention it."""
    activation_dropout: Rate = 0.0
    """Inside the feed-forward network; the paper does not mention it."""

    @model_validator(mode="after")
    def _heads_fit(self) -> BlockConfig:
        if self.model_dim % self.num_heads and (self.key_dim is None or self.value_dim is None):
            raise ValueError(
                f"model_dim {self.model_dim} does not divide into {self.num_heads} heads; "
                "change one of them, or give key_dim and value_dim"
            )
        if self.key_value_heads is not None and self.num_heads % self.key_value_heads:
            raise ValueError(
                f"{self.num_heads} heads cannot share {self.key_value_heads} heads of keys and values evenly"
            )
        if self.positions == "rotary" and self.head_dims[0] % 2:
            raise ValueError(
                f"rotary positions turn channels in pairs, and a key of {self.head_dims[0]} has an odd one"
            )
        if self.positions == "shaw" and self.key_value_heads not in (None, self.num_heads):
            raise ValueError("Shaw's positions are for heads with keys of their own; leave out key_value_heads")
        if self.positions == "buckets" and (self.max_distance or 128) <= self.buckets // 2:
            raise ValueError(
                f"half of the {self.buckets} buckets are for single distances, so that max_distance must be above "
                f"{self.buckets // 2}, not {self.max_distance or 128}"
            )
        reason = refusal(self)
        if reason is not None:
            raise ValueError(reason)
        return self

    @property
    def is_gated(self) -> bool:
        """Whether the feed-forward network is a gated one."""
        return self.activation in GATED

    @property
    def head_dims(self) -> tuple[int, int]:
        """(d_k, d_v) of one head."""
        equal = self.model_dim // self.num_heads
        return self.key_dim or equal, self.value_dim or equal

    @property
    def head_shape(self) -> HeadShape:
        """All that attention needs to know about its heads."""
        return HeadShape(
            self.num_heads, *self.head_dims, self.key_value_heads or self.num_heads, scaled=self.scale_attention
        )

    def of_layer(self, number: int) -> Self:
        """The settings of one layer, counted from 0."""
        return self.but(dilation=1) if self.dilation > 1 and number % 2 == 0 else self

    @property
    def make_norm(self) -> MakeNorm:
        """What makes the norms."""
        return norms(self.norm_kind, self.norm_eps)


class EncoderBlock(nn.Module):
    """Self-attention, then feed-forward (section 3.1); in a decoder that reads no source, with the future hidden."""

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
        """Continue each row of a past, token by token the rows of a sentence.  (S T·W D) -> (S T·W D)."""
        hidden = self.self_attention_residual(
            hidden,
            lambda value: self.self_attention.extend(value, past, layer, allowed, relation),  # type: ignore[arg-type]  # its own
        )
        passed: Tensor = self.residual(self.feed_forward_residual(hidden, self.feed_forward))
        return passed


class DecoderBlock(nn.Module):
    """Masked self-attention, attention to the encoder, then feed-forward (section 3.1)."""

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
        return self._read_memory(hidden, key, value, allowed)

    def extend(
        self,
        hidden: Tensor,
        past: Past,
        layer: int,
        allowed: Tensor | None,
        relation: Relation,
        memory: tuple[Tensor, Tensor, Tensor | None],
    ) -> Tensor:
        """Continue each row of a past, with the keys, values and permissions of its memory.  (S T·W D) -> (S T·W D)."""
        hidden = self.self_attention_residual(
            hidden,
            lambda states: self.self_attention.extend(states, past, layer, allowed, relation),  # type: ignore[arg-type]  # its own
        )
        return self._read_memory(hidden, *memory)

    def _read_memory(self, hidden: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> Tensor:
        hidden = self.cross_attention_residual(hidden, lambda states: self.cross_attention(states, key, value, allowed))
        passed: Tensor = self.residual(self.feed_forward_residual(hidden, self.feed_forward))
        return passed


def added_positions(config: BlockConfig) -> Positions:
    """What is added to embeddings."""
    if config.positions == "learned":
        return LearnedPositions(config.model_dim, config.max_positions)
    if config.positions in SINUSOIDS:
        return SinusoidalPositions(config.model_dim, signals=SINUSOIDS[config.positions])
    return NoPositions()


def relative_positions(config: BlockConfig, both_ways: bool) -> RelativePositions:
    """What self-attention hears of positions; `both_ways` where it sees what comes after, too."""
    if config.positions == "rotary":
        return Rotary(config.head_dims[0], config.rotary_base)
    if config.positions == "alibi":
        return Alibi(config.num_heads)
    if config.positions == "shaw":
        return Clipped(config.max_distance or 16)
    if config.positions == "buckets":
        return Buckets(config.num_heads, config.buckets, config.max_distance or 128, both_ways)
    return Unrelated()


def looking_back(relations: RelativePositions, past: Past, length: int) -> Relation:
    """How `length` new tokens of each row stand to all that they may look at, themselves included."""
    if isinstance(relations, Unrelated):
        return UNRELATED
    return relations(past.asking(length), past.positions(length))  # type: ignore[no-any-return]


def closing_norm(config: BlockConfig) -> nn.Module:
    """What closes a stack: where the sums in it were never normalised, one last norm."""
    wanted = config.norm == "pre" if config.final_norm is None else config.final_norm
    return config.make_norm(config.model_dim) if wanted else nn.Identity()


def through(block: nn.Module, recompute: bool, *inputs: Any) -> Tensor:
    """Go through a block, keeping what is inside for the way back or not."""
    passed: Tensor = recomputed(block, *inputs) if recompute else block(*inputs)
    return passed


def broadcast(allowed: Tensor) -> Tensor | None:
    """(B M) -> (B 1 1 M), or None where every position is real and no kernel need read a mask."""
    return None if bool(allowed.all()) else allowed[:, None, None, :]


def nothing_read(config: BlockConfig, blocks: nn.ModuleList, sentences: int, width: int, like: Tensor) -> Past:
    """The past of a stack, with `width` rows for each sentence, before the first token."""
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


# Forget what a block computed on the way, and compute it again when its gradient is wanted (Chen et al. 2016).
#
# Memory then grows with one block instead of all of them, for about a third more time: for long sequences.


def recomputed(block: nn.Module, *inputs: Any) -> Any:
    """Return block(*inputs), keeping the inputs only. Dropout's masks are the same both times: they are keyed."""
    sites = [module for module in block.modules() if isinstance(module, Dropout)]
    calls = [site.calls for site in sites]

    def run(*again: Any) -> Any:
        for site, count in zip(sites, calls, strict=True):
            site.calls = count
        return block(*again)

    return checkpoint(run, *inputs, use_reentrant=False)

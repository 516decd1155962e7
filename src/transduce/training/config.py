"""The `[training]` table of a recipe."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from transduce.config import Config

Count = Annotated[int, Field(ge=1, le=2**40)]
Positive = Annotated[float, Field(gt=0.0)]
Beta = Annotated[float, Field(ge=0.0, lt=1.0)]


LARGEST_MICRO_BATCH, MICRO_BATCH_VALUES = 1024, 2**18
"""Tokens of a slice for narrow models, and tokens × width for wide ones: large enough for the products to run at full
speed, small enough for memory and caches."""


def default_micro_batch(width: int, half: bool = False, update_tokens: int | None = None) -> int:
    """Return the tokens of a slice that suit a model of this width; the faster its products, the more of them.

    An update of `update_tokens` is at least two slices: one alone would leave all cores but one idle. How many cores
    there are is not asked, so that a recipe means the same weights on machines of different size.
    """
    fitting = max(LARGEST_MICRO_BATCH // 8, min(LARGEST_MICRO_BATCH, MICRO_BATCH_VALUES // width)) * (2 if half else 1)
    return fitting if update_tokens is None else max(1, min(fitting, update_tokens // 2))


class TrainingConfig(Config):
    """How a model is trained. The defaults follow section 5 of the paper where it says something."""

    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1
    """Of the first weights, the order of the data and dropout."""
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Slices of a batch that are computed side by side on a CPU; filled in with this machine's cores. Results are the
    same for any number."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto takes a GPU if there is one."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """bfloat16 rounds large products to sixteen bits; auto does so on a CUDA GPU. On a CPU it pays where the
    processor has instructions for it (AVX512-BF16, AMX), and validation stays in float32."""
    batch_tokens: Count | Literal["auto"] = 4096
    """Tokens a side of one batch, padding included; auto chooses by the size of the corpus, and slices by memory."""
    max_batch_size: Count | None = None
    """Pairs, texts or blocks of one batch, at most, however short they are. With `batch_tokens` large, batches are of so many
    pairs, as in recipes that count sentences; then give `micro_batch_tokens` too, at most half of what such a batch has."""
    micro_batch_tokens: Count | None = None
    """Tokens a side of what goes through the model at once: batches are cut into slices of this size. Memory depends
    on it, results but for rounding do not. Filled in by the width of the model: 1,024 up to 256, fewer above; twice
    that with bfloat16; never more than half of an update."""
    bucket_size: Count | None = None
    """Rows that are sorted by length together before they are cut into batches. Unless given they are so many that a
    batch is of one length and has hardly any padding. No more than a batch holds mix lengths, which a mixture of tasks
    needs where each task has a length of its own."""
    gradient_accumulation: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Batches whose gradients are added before the weights move."""
    updates: Count = 100_000
    """How often the weights move, at most."""
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    """Adam, Adam with decoupled weight decay on the matrices, or plain gradient descent."""
    learning_rate: Positive = 1.0
    """The schedule's peak; with noam the factor before the paper's formula."""
    schedule: Literal["noam", "inverse_sqrt", "cosine", "linear", "constant"] = "noam"
    """How the learning rate rises and falls."""
    warmup: Annotated[int, Field(ge=0, le=2**40)] = 4000
    """Updates until the peak."""
    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = (0.9, 0.98)
    """Adam's averages of the gradient and of its square."""
    epsilon: Positive = 1e-9
    """Adam's guard against a division by nothing."""
    weight_decay: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """For adamw: how strongly each update pulls matrices towards zero, times the learning rate."""
    label_smoothing: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1
    """Share of the probability that is spread evenly over the wrong tokens. Plain text and readers have 0 unless it is
    given."""
    r_drop: Annotated[float, Field(ge=0.0, le=100.0)] = 0.0
    """Weight of the disagreement between two passes with different dropout (Liang et al. 2021, who take 5); 0 for one
    pass. It takes about twice the time and is worth it where data is small."""
    r_drop_after: Annotated[int, Field(ge=0, le=2**40)] = 0
    """With r_drop: the first updates, which have one pass: what a model learns first, it learns in half the time."""
    bpe_dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Chance that a merge of a BPE tokenizer is left out, drawn anew for every word of every epoch (BPE-dropout,
    Provilkov et al. 2020, who take 0.1): rare pieces are seen more often and words in more than one way."""
    ema_decay: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Decay of a running average of the weights, which is then what is validated and kept; 0 for none."""
    shard: bool = False
    """Spread weights, gradients and moments over the ranks of `torchrun` instead of keeping all of them on each: for
    models that do not fit one device."""
    gradient_checkpointing: bool = False
    """Keep only what enters each block and compute the rest again for the gradient: less memory, more time."""
    max_rollbacks: Annotated[int, Field(ge=0, le=1000)] = 0
    """How often a run whose loss ran away may go back to its last checkpoint and leave out the batches since; 0 only
    warns."""
    max_grad_norm: Annotated[float, Field(ge=0.0)] = 0.0
    """The longest that a gradient may be; a longer one is shortened. 0 leaves it as it is."""
    gradient_noise: Annotated[float, Field(ge=0.0, le=1000.0)] = 0.0
    """Variance of Gaussian noise on the gradient, which falls with the updates to the power of 0.55 (Neelakantan et al.
    2015, who take 0.01 to 1); 0 for none."""
    curriculum: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Epochs until the longest pairs are seen, short ones first; 0 sees all from the beginning."""
    relaxation_updates: Annotated[int, Field(ge=0, le=2**40)] = 0
    """Updates until the sets of weights of a model that has several (`num_sets` of a Neural GPU) are one, pulled
    together ever harder; 0 leaves them apart."""
    source_vectors: str | None = None
    """A word2vec or GloVe text file that the source embedding starts from, token by token."""
    target_vectors: str | None = None
    """The same for the target embedding."""
    freeze_vectors: bool = False
    """Keep an embedding that was started from a file as it is, the tokens that the file lacks included."""
    initial_checkpoint: str | None = None
    """A run or model folder whose weights the model starts with, instead of drawing them; [model] and [tokenizer] are
    then that folder's."""
    freeze: Annotated[tuple[str, ...], Field(strict=False)] | None = None
    """Weights that stay as they are, by patterns of their names: `encoder.*`, `*embedding*`."""
    log_every: Count = 50
    """Updates between two lines of the journal."""
    validate_every: Count = 1000
    """Updates between two validations; a checkpoint is saved with each."""
    metric: Literal[
        "loss",
        "bleu",
        "chrf",
        "exact_match",
        "word_error_rate",
        "phoneme_error_rate",
        "label_accuracy",
        "macro_f1",
        "micro_f1",
        "word_accuracy",
        "span_f1",
        "answer_f1",
    ] = "loss"
    """What the best checkpoint is chosen by; all but loss translate validation pairs, or for a reader (those from
    label_accuracy on, and exact_match) ask it about validation examples."""
    decode_examples: Annotated[int, Field(ge=0, le=1_000_000)] = 200
    """Validation pairs that are translated each time, greedily; 0 for none."""
    patience: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Validations without a new best until training stops early; 0 never stops early."""
    keep_last: Annotated[int, Field(ge=1, le=1_000)] = 3
    """Checkpoints kept besides the best."""
    average_checkpoints: Annotated[int, Field(ge=0, le=1_000)] = 0
    """Make the final model the average of this many checkpoints, unless the best one alone validates better; 0 takes
    that one."""
    average_window: Literal["last", "best"] = "last"
    """Which ones: the last, or those next to each other, of all that are kept, whose average validates best."""

    @property
    def update_tokens(self) -> int | None:
        """Tokens a side of one update; None where the corpus will say."""
        return None if self.batch_tokens == "auto" else self.batch_tokens * self.gradient_accumulation

    @property
    def micro_batch_size(self) -> int:
        """`micro_batch_tokens`, or what suits a small model."""
        return self.micro_batch_tokens or LARGEST_MICRO_BATCH

    @property
    def tokens_per_batch(self) -> int:
        """`batch_tokens`, once it was chosen."""
        assert self.batch_tokens != "auto", "settings are filled in before anything is built"
        return self.batch_tokens

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.average_checkpoints > self.keep_last:
            raise ValueError(
                f"averaging {self.average_checkpoints} checkpoints needs keep_last of at least {self.average_checkpoints}, not {self.keep_last}"
            )
        if self.weight_decay and self.optimizer != "adamw":
            raise ValueError("weight_decay belongs to the optimizer 'adamw'; set training.optimizer to it")
        if self.shard and self.batch_tokens == "auto":
            raise ValueError(
                "batch_tokens = 'auto' tries out the whole model, which shard avoids; give a number of tokens"
            )
        if self.shard and (self.gradient_noise or self.relaxation_updates):
            raise ValueError(
                "gradient_noise and relaxation_updates need all weights in one place; leave them out, or shard"
            )
        if self.r_drop_after and not self.r_drop:
            raise ValueError("r_drop_after says when R-Drop begins, and there is none; set r_drop, or leave it out")
        if self.average_window == "best" and not self.average_checkpoints:
            raise ValueError(
                "average_window says which checkpoints are averaged, and none are; set average_checkpoints too"
            )
        if self.freeze_vectors and not (self.source_vectors or self.target_vectors):
            raise ValueError("freeze_vectors needs source_vectors or target_vectors")
        return self

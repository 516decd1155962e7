"""The `[training]` table of a recipe."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from transduce.config import Config

Count = Annotated[int, Field(ge=1, le=2**40)]
Positive = Annotated[float, Field(gt=0.0)]
Beta = Annotated[float, Field(ge=0.0, lt=1.0)]


def _time(text: str) -> str:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?[smh]", text):
        raise ValueError("it must be a number with a unit, such as 90s, 20m or 2h")
    return text


Time = Annotated[str, AfterValidator(_time)]
DECOUPLED = ("adamw", "muon")
"""Optimizers with weight decay."""
LARGEST_MICRO_BATCH, MICRO_BATCH_VALUES = 1024, 2**18
"""Tokens of a micro-batch for narrow models, and tokens × width for wide ones: large enough for matrix products to run
at full speed, small enough for memory and caches."""
LARGEST_GPU_MICRO_BATCH, GPU_MICRO_BATCH_VALUES = 2**14, 2**22
"""The same on a GPU, which computes far more at a time; not measured. Where memory runs out, a run halves it."""


def default_micro_batch(width: int, half: bool = False, update_tokens: int | None = None, device: str = "cpu") -> int:
    """Return the default micro-batch size in tokens for a model of this width; on a CPU twice as large with bfloat16.

    On a CPU an update of `update_tokens` has at least two micro-batches: one alone would leave all cores but one idle.
    The number of cores does not matter, so that a recipe gives the same weights on different machines.
    """
    if device != "cpu":
        fitting = min(LARGEST_GPU_MICRO_BATCH, GPU_MICRO_BATCH_VALUES // width)
        return fitting if update_tokens is None else min(fitting, update_tokens)
    fitting = max(LARGEST_MICRO_BATCH // 8, min(LARGEST_MICRO_BATCH, MICRO_BATCH_VALUES // width)) * (2 if half else 1)
    return fitting if update_tokens is None else max(1, min(fitting, update_tokens // 2))


class TrainingConfig(Config):
    """How a model is trained. The defaults follow section 5 of the paper where it gives them."""

    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1
    """Seed of the random initialisation, the order of the data, and dropout."""
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Number of CPU threads, each computing its own micro-batches; the number of cores unless given. Results do not
    depend on it."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Device to train on. auto is the CPU, for as long as no GPU has passed the tests (`make test-gpu`)."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of matrix products; auto is bfloat16 on a CUDA GPU that has it, and on a CPU with instructions for it
    (AVX512-BF16, AMX) for models of width 128 or more; float32 elsewhere. Validation stays in float32. The choice is
    saved with the run: resumed on another machine, it keeps its precision."""
    batch_tokens: Count | Literal["auto"] = 4096
    """Batch size in tokens per side, including padding; auto chooses it by the size of the corpus, and
    `micro_batch_tokens` by the free memory."""
    max_batch_size: Count | None = None
    """Maximum number of pairs, examples or blocks in a batch. With a large `batch_tokens` it sets the batch size, as in
    recipes that count sentences; then set `micro_batch_tokens` too, to at most half of a batch."""
    micro_batch_tokens: Count | None = None
    """Size of a micro-batch in tokens per side: batches are split into micro-batches, each with its own forward and
    backward pass. It determines memory; results are the same but for rounding. By default 1,024 for models up to width
    256 and fewer above, twice that with bfloat16, and never more than half of an update; on a GPU 16,384 for models up
    to width 256 and fewer above."""
    bucket_size: Count | None = None
    """Rows that are sorted by length together before they are split into batches. The default is so large that batches
    have hardly any padding. A bucket no larger than a batch mixes lengths within batches, which helps where lengths
    correlate with the kind of example, as in mixtures of tasks."""
    gradient_accumulation: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Batches whose gradients are summed for one update."""
    updates: Count = 100_000
    """Maximum number of updates (optimizer steps)."""
    epochs: Positive | None = None
    """Number of epochs, in place of `updates`: counted in batches once the corpus is prepared. The run's recipe has the
    number of updates."""
    time_budget: Time | None = None
    """Time that training may take on this machine, in place of `updates`: 90s, 20m or 2h. It is turned into a number of
    updates before the first one, by a few trial updates; the run's recipe has that number, so that a resumed run is the
    same run."""
    optimizer: Literal["adam", "adamw", "muon", "sgd"] = "adam"
    """Adam; AdamW (decoupled weight decay, on matrices only); Muon (orthogonalised momentum) for the matrices of linear
    layers inside blocks, with AdamW for all other weights, recurrent ones too; or plain SGD."""
    learning_rate: Positive = 1.0
    """Peak learning rate of the schedule; for noam the factor before the paper's formula."""
    schedule: Literal["noam", "inverse_sqrt", "cosine", "linear", "constant"] = "noam"
    """Learning-rate schedule after warmup: noam (section 5.3), inverse_sqrt, cosine, linear or constant."""
    warmup: Annotated[int, Field(ge=0, le=2**40)] | Annotated[float, Field(gt=0.0, lt=1.0)] = 4000
    """Updates of linear warmup, or their fraction of `updates` if below 1; the number is saved with the run, and stays
    when a run is extended."""
    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = (0.9, 0.98)
    """Adam's beta 1 and beta 2."""
    epsilon: Positive = 1e-9
    """Adam's epsilon."""
    weight_decay: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Weight decay of adamw and muon, multiplied by the learning rate."""
    label_smoothing: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1
    """Label smoothing: probability that is spread evenly over the other tokens (section 5.4). The default is 0 for
    language models, span corruption and text encoders."""
    r_drop: Annotated[float, Field(ge=0.0, le=100.0)] = 0.0
    """R-Drop: weight of the KL divergence between two forward passes with different dropout (Liang et al. 2021, who use
    5); 0 for a single pass. It takes about twice the time and helps on small data."""
    r_drop_after: Annotated[int, Field(ge=0, le=2**40)] = 0
    """Updates before R-Drop starts, which have a single pass and take half the time."""
    bpe_dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """BPE-dropout: probability of skipping a merge, drawn for every word in every epoch (Provilkov et al. 2020, who use
    0.1)."""
    guided_alignment: Annotated[float, Field(ge=0.0, le=100.0)] = 0.0
    """Guided alignment: weight of a second loss, by which one cross-attention head learns the word alignment (Chen et
    al. 2016; Garg et al. 2019, who use 0.05); 0 for none. The alignments are those of the file `alignment` of a corpus,
    or are computed when the corpus is prepared (`data.align`). The head is the first one of the second-last decoder
    layer; `transduce align` then uses it. For pairs of text, and models with cross-attention."""
    recombination: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Recombination: probability, at each place where a training pair could continue as another one, that it does; new
    ones are drawn in every epoch. Pairs can be cut between tokens whose alignments are certain, and continue as others
    with the same tokens around a cut. For small corpora of single words; 0 for none."""
    ema_decay: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Decay of an exponential moving average of the weights, which is validated and becomes the model; 0 for none."""
    shard: bool = False
    """Shard weights, gradients and optimizer state over the ranks of `torchrun` (FSDP), for models that do not fit one
    device."""
    compile: bool = False
    """Compile the blocks with torch.compile, on a CUDA GPU: faster updates after a minute or more of compiling."""
    gradient_checkpointing: bool = False
    """Store only the inputs of each block and recompute the rest in the backward pass: less memory, more time."""
    max_rollbacks: Annotated[int, Field(ge=0, le=1000)] = 0
    """How often a run whose loss diverges may roll back to its last checkpoint, skipping the batches since; 0 only
    warns."""
    max_grad_norm: Annotated[float, Field(ge=0.0)] = 0.0
    """Maximum gradient norm; larger gradients are clipped. 0 disables clipping."""
    gradient_noise: Annotated[float, Field(ge=0.0, le=1000.0)] = 0.0
    """Initial variance of Gaussian gradient noise, which decays with the updates to the power of 0.55 (Neelakantan et
    al. 2015, who use 0.01 to 1); 0 for none."""
    curriculum: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Curriculum by length: epochs until the longest pairs are included, short ones first; 0 for none."""
    relaxation_updates: Annotated[int, Field(ge=0, le=2**40)] = 0
    """Updates after which the weight sets of a Neural GPU (`model.num_sets`) are equal: parameter sharing relaxation; 0
    leaves them separate."""
    source_vectors: str | None = None
    """Pretrained vectors for the source embedding: a word2vec or GloVe text file."""
    target_vectors: str | None = None
    """Pretrained vectors for the target embedding."""
    freeze_vectors: bool = False
    """Freeze embeddings with pretrained vectors, including the tokens that the file lacks."""
    initial_checkpoint: str | None = None
    """Run or model folder to fine-tune; [model] and [tokenizer] are then those of that folder."""
    freeze: Annotated[tuple[str, ...], Field(strict=False)] | None = None
    """Weights to freeze, as patterns of their names: `encoder.*`, `*embedding*`."""
    log_every: Count = 50
    """Updates between lines of the journal."""
    validate_every: Count | Annotated[float, Field(gt=0.0, lt=1.0)] = 1000
    """Updates between validations, or their fraction of `updates` if below 1; a checkpoint is saved with each. The
    number is saved with the run."""
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
    """Metric that selects the best checkpoint. All but loss need translations of validation pairs, or for text encoders
    (from label_accuracy on, and exact_match) predictions for validation examples."""
    decode_examples: Annotated[int, Field(ge=0, le=1_000_000)] = 200
    """Validation pairs that are translated in each validation, by greedy search; 0 for none."""
    patience: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Early stopping: validations without improvement after which training stops; 0 disables it."""
    keep_last: Annotated[int, Field(ge=1, le=1_000)] = 3
    """Number of recent checkpoints to keep besides the best."""
    average_checkpoints: Annotated[int, Field(ge=0, le=1_000)] = 0
    """Average this many checkpoints into the final model, unless the best one alone has a better validation score; 0
    uses the best one."""
    average_window: Literal["last", "best"] = "last"
    """Which checkpoints to average: the last ones, or the consecutive ones whose average validates best."""

    tune_search: bool = False
    """Choose length penalty, beam size and minimum length on validation pairs after training; the model folder has the
    options that were best. Chosen where settings are chosen from the corpus, unless [search] is given."""

    @property
    def update_tokens(self) -> int | None:
        """Tokens per side of one update; None before `batch_tokens = "auto"` is resolved."""
        return None if self.batch_tokens == "auto" else self.batch_tokens * self.gradient_accumulation

    @property
    def micro_batch_size(self) -> int:
        """`micro_batch_tokens`, or the default for a small model."""
        return self.micro_batch_tokens or LARGEST_MICRO_BATCH

    @property
    def warmup_updates(self) -> int:
        """`warmup` in updates."""
        return self.warmup if isinstance(self.warmup, int) else round(self.warmup * self.updates)

    @property
    def validation_interval(self) -> int:
        """`validate_every` in updates."""
        every = self.validate_every
        return every if isinstance(every, int) else max(1, round(every * self.updates))

    @property
    def is_planned(self) -> bool:
        """Whether `updates` is the number of updates, and not yet to be computed from epochs or time."""
        return self.epochs is None and self.time_budget is None

    @property
    def tokens_per_batch(self) -> int:
        """`batch_tokens`, after "auto" is resolved."""
        assert self.batch_tokens != "auto", "settings are filled in before anything is built"
        return self.batch_tokens

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.average_checkpoints > self.keep_last:
            count = self.average_checkpoints
            raise ValueError(f"average_checkpoints = {count} needs keep_last of at least {count}, not {self.keep_last}")
        if self.weight_decay and self.optimizer not in DECOUPLED:
            raise ValueError("weight_decay needs optimizer = 'adamw' or 'muon'")
        if self.epochs is not None and self.time_budget is not None:
            raise ValueError("epochs and time_budget exclude each other; leave out one of them")
        if self.shard and self.time_budget is not None:
            raise ValueError("time_budget needs the whole model on one device; give updates or epochs with shard")
        if self.shard and self.batch_tokens == "auto":
            raise ValueError(
                "batch_tokens = 'auto' needs the whole model on one device; give a number of tokens with shard"
            )
        if self.shard and (self.gradient_noise or self.relaxation_updates):
            raise ValueError(
                "gradient_noise and relaxation_updates need all weights on one device; leave them out, or shard"
            )
        if self.r_drop_after and not self.r_drop:
            raise ValueError("r_drop_after needs r_drop; set it, or leave out r_drop_after")
        if self.average_window == "best" and not self.average_checkpoints:
            raise ValueError("average_window needs average_checkpoints; set it too")
        if self.freeze_vectors and not (self.source_vectors or self.target_vectors):
            raise ValueError("freeze_vectors needs source_vectors or target_vectors")
        return self

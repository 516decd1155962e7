"""The `[training]` table of a recipe."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from transduce.config import Config

Count = Annotated[int, Field(ge=1, le=2**40)]
Positive = Annotated[float, Field(gt=0.0)]
Beta = Annotated[float, Field(ge=0.0, lt=1.0)]


class TrainingConfig(Config):
    """How a model is trained. The defaults follow section 5 of the paper where it says something."""

    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1
    """Of the first weights, the order of the data and dropout."""
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Threads of torch; filled in with this machine's, because results differ between thread counts."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto takes a GPU if there is one."""
    tokens: Count = 4096
    """Tokens a side of one batch, padding included."""
    accumulate: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Batches whose gradients are added before the weights move."""
    updates: Count = 100_000
    """How often the weights move, at most."""
    optimizer: Literal["adam", "adamw"] = "adam"
    """Adam, or Adam with decoupled weight decay on the matrices."""
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
    """For adamw."""
    label_smoothing: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1
    """Share of the probability that is spread evenly over the wrong tokens."""
    clip: Annotated[float, Field(ge=0.0)] = 0.0
    """Longest gradient; 0 leaves it as it is."""
    source_vectors: str | None = None
    """A word2vec or GloVe text file that the source embedding starts from, token by token."""
    target_vectors: str | None = None
    """The same for the target embedding."""
    freeze_vectors: bool = False
    """Keep an embedding that was started from a file as it is, the tokens that the file lacks included."""
    log_every: Count = 50
    """Updates between two lines of the journal."""
    validate_every: Count = 1000
    """Updates between two validations; a checkpoint is saved with each."""
    metric: Literal["loss", "bleu", "chrf", "exact_match", "word_error_rate", "phoneme_error_rate"] = "loss"
    """What the best checkpoint is chosen by; all but loss translate validation pairs."""
    decode_pairs: Annotated[int, Field(ge=0, le=1_000_000)] = 200
    """Validation pairs that are translated each time, greedily; 0 for none."""
    patience: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Validations without a new best until training stops early; 0 never stops early."""
    keep_last: Annotated[int, Field(ge=1, le=1_000)] = 3
    """Checkpoints kept besides the best."""
    average: Annotated[int, Field(ge=0, le=1_000)] = 0
    """Make the final model the average of this many last checkpoints; 0 takes the best one."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.average > self.keep_last:
            raise ValueError(
                f"averaging {self.average} checkpoints needs keep_last of at least {self.average}, not {self.keep_last}"
            )
        if self.weight_decay and self.optimizer != "adamw":
            raise ValueError("weight_decay belongs to the optimizer 'adamw'; set training.optimizer to it")
        if self.metric != "loss" and not self.decode_pairs:
            raise ValueError(f"choosing by {self.metric} needs translations; set decode_pairs above 0")
        if self.freeze_vectors and not (self.source_vectors or self.target_vectors):
            raise ValueError("freeze_vectors needs source_vectors or target_vectors")
        return self

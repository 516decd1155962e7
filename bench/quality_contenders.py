"""The contenders of bench/time_to_quality.py. Each writes its learning curve; a stopped one goes on where it saved."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from marian import marian
from quality_curve import Curve
from quality_plain import Plain, PlainRun, validation_loss

from transduce.config import Table
from transduce.data.prepared import Prepared
from transduce.data.store import PairStore
from transduce.evaluation.metrics import bits_per_byte
from transduce.recipe import Recipe, read_recipe, resume_recipe
from transduce.run import train
from transduce.tasks.catalog import load_prepared, prepare
from transduce.training.reporter import Plan, Silent, Step, Validation


@dataclass(frozen=True)
class Job:
    """What a contender gets."""

    files: Table
    """The table [data] that names the files."""
    folder: Path
    seed: int
    threads: int
    launched: float
    """When its command was given, as `time.time()`."""
    most_seconds: float
    """It stops after the first validation beyond this time, …"""
    last_level: float
    """… or at or below this number of bits."""
    epochs: float | None
    """Epochs of a smoke test."""

    @property
    def target_bytes(self) -> int:
        """Bytes of the validation targets, without line ends."""
        text = Path(self.files["validation"]["target"]).read_text(encoding="utf-8")
        return sum(len(line.encode()) for line in text.splitlines())

    def changes(self) -> list[str]:
        """Settings of the recipe that are not chosen from the files."""
        quick = [] if self.epochs is None else [f"training.epochs={self.epochs}"]
        return [f"training.seed={self.seed}", f"training.threads={self.threads}", *quick]

    def recipe(self) -> Recipe:
        return read_recipe(None, self.changes(), {"data": self.files})[0]

    def corpus(self) -> Prepared:
        """The corpus with the tokenizer that is chosen for it, prepared by the contender itself, in its own time."""
        place = self.folder / "data"
        if not place.exists():
            recipe = self.recipe()
            prepare(recipe.data, recipe.tokenizer, place)
        return load_prepared(place)


# Ours, from files alone.


class Follower(Silent):
    """Writes the curve of one of our runs."""

    def __init__(self, curve: Curve, job: Job, run: Path) -> None:
        self.curve, self.job, self.run = curve, job, run
        self.bytes = job.target_bytes
        self.tokens = 0

    def begin(self, plan: Plan) -> None:
        """Start the clock, and count the tokens that a validation's mean is over."""
        store = load_prepared(self.run / "data").validation
        assert isinstance(store, PairStore)
        self.tokens = int(store.target_lengths[:].sum()) + len(store)
        self.curve.begin(plan.first_update - 1)

    def step(self, step: Step) -> None:
        self.curve.updated(step.update)

    def validation(self, validation: Validation) -> None:
        bits = bits_per_byte(validation.loss * self.tokens, self.bytes)
        self.curve.validated(validation.update, bits, **validation.scores)


def ours(job: Job, decoded: int = 0) -> None:
    """`transduce train` with files alone, but that it validates after each epoch, on the loss, as the others do."""
    run, curve = job.folder / "run", Curve(job.folder, job.launched)
    resume = (run / "recipe.toml").exists()
    recipe = resume_recipe(run) if resume else job.recipe()
    if not resume:
        epochs = recipe.training.epochs
        assert epochs is not None
        every = 1 / epochs if epochs > 1 else 1
        recipe = recipe.but_training(validate_every=every, decode_examples=decoded, tune_search=False, patience=0)
    if not (run / "model").exists():
        train(recipe, run, resume=resume, reporter=Follower(curve, job, run))


def levels(job: Job) -> None:
    """The same with greedy translations of all validation pairs, to see which loss has which BLEU; its time is not
    compared."""
    ours(job, decoded=2000)


# The others.

TUTORIAL = Plain(
    model="torch_nn",
    dim=512,
    ffn=512,
    heads=8,
    layers=3,
    dropout=0.1,
    optimizer="adam",
    rate=1e-4,
    betas=(0.9, 0.98),
    epsilon=1e-9,
    schedule="constant",
    warmup=0,
    epochs=18,
    batch_tokens=None,
    batch_rows=128,
    smoothing=0.0,
    max_grad_norm=0.0,
    bfloat16=False,
)
"""PyTorch's tutorial on this corpus, https://pytorch.org/tutorials/beginner/translation_transformer.html."""
PUBLISHED = replace(
    TUTORIAL,
    dim=128,
    ffn=256,
    heads=4,
    layers=4,
    dropout=0.3,
    rate=5e-3,
    epsilon=1e-8,
    schedule="inverse_sqrt",
    warmup=2000,
    epochs=150,
    batch_tokens=8192,
    batch_rows=None,
    smoothing=0.1,
    max_grad_norm=25.0,
)
"""The published recipe for this corpus (Wu et al. 2021, Transformer-Tiny): at most 8,000 updates."""


def our_recipe(job: Job) -> Plain:
    """What is chosen for these files, for plain torch."""
    recipe = job.recipe()
    training, model = recipe.training, recipe.model.to_table()
    assert (training.optimizer, training.schedule, model["norm"]) == ("muon", "linear", "pre")
    assert training.epochs is not None
    return Plain(
        model="pre_norm",
        dim=model["model_dim"],
        ffn=model["ffn_dim"],
        heads=model["num_heads"],
        layers=model["num_layers"],
        dropout=model["dropout"],
        optimizer="muon",
        rate=training.learning_rate,
        betas=training.betas,
        epsilon=training.epsilon,
        schedule="linear",
        warmup=training.warmup,
        epochs=training.epochs,
        batch_tokens=training.tokens_per_batch,
        batch_rows=None,
        smoothing=training.label_smoothing,
        max_grad_norm=training.max_grad_norm,
        bfloat16=True,
    )


def plainly(choose: Callable[[Job], Plain]) -> Callable[[Job], None]:
    """A contender in plain torch."""

    def contender(job: Job) -> None:
        torch.set_num_threads(job.threads)
        curve, size = Curve(job.folder, job.launched), job.target_bytes
        plain = choose(job)
        if job.epochs is not None:
            plain = replace(plain, epochs=job.epochs, dim=min(128, plain.dim), layers=2)

        def over(bits: float) -> bool:
            return bits <= job.last_level or curve.seconds > job.most_seconds

        PlainRun(plain, job.corpus(), job.folder, job.seed).run(curve, lambda loss: bits_per_byte(loss, size), over)

    return contender


def fixed(plain: Plain, **changes: Any) -> Callable[[Job], None]:
    return plainly(lambda job: replace(plain, **changes))


def control(**changes: Any) -> Callable[[Job], None]:
    return plainly(lambda job: replace(our_recipe(job), **changes))


ROWS, ACCUMULATED = 128, 4
"""Sentences of a batch and batches of an update: about the 8,192 tokens of the published recipe."""


def hugging_face(bfloat16: bool) -> Callable[[Job], None]:
    """Seq2SeqTrainer with Marian, trained by the published recipe; their documents have none for training from scratch.

    Batches are of similar length, and the optimizer and the fused kernels are those that the trainer chooses.
    """

    def contender(job: Job) -> None:
        from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, set_seed

        torch.set_num_threads(job.threads)
        set_seed(job.seed)
        corpus, curve, recipe = job.corpus(), Curve(job.folder, job.launched), PUBLISHED
        specials, place = corpus.target_tokenizer.specials, job.folder / "trainer"
        sizes = (recipe.dim, recipe.ffn, recipe.heads, recipe.layers, corpus.target_tokenizer.size, specials)
        model = marian(*sizes, longest=512, dropout=recipe.dropout)
        accumulated = ACCUMULATED if job.epochs is None else 1
        arguments = Seq2SeqTrainingArguments(
            output_dir=str(place),
            per_device_train_batch_size=ROWS,
            gradient_accumulation_steps=accumulated,
            num_train_epochs=recipe.epochs if job.epochs is None else job.epochs,
            learning_rate=recipe.rate,
            lr_scheduler_type="inverse_sqrt",
            warmup_steps=int(recipe.warmup),
            adam_beta1=recipe.betas[0],
            adam_beta2=recipe.betas[1],
            adam_epsilon=recipe.epsilon,
            max_grad_norm=recipe.max_grad_norm,
            label_smoothing_factor=recipe.smoothing,
            train_sampling_strategy="group_by_length",
            remove_unused_columns=False,
            save_strategy="epoch",
            save_total_limit=2,
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            bf16=bfloat16,
            seed=job.seed,
        )
        rows = Examples(corpus)
        trainer = Seq2SeqTrainer(model=model, args=arguments, train_dataset=rows, data_collator=rows.collate)
        trainer.add_callback(_callback(curve, job, corpus, trainer))
        saved = sorted(place.glob("checkpoint-*/trainer_state.json"), key=lambda path: path.stat().st_mtime)
        last = json.loads(saved[-1].read_text(encoding="utf-8"))["global_step"] if saved else 0
        curve.begin(last)
        trainer.train(resume_from_checkpoint=str(saved[-1].parent) if saved else None)

    return contender


class Examples:
    """The training pairs as Hugging Face's trainer reads them."""

    def __init__(self, corpus: Prepared) -> None:
        self.store, self.specials = corpus.train_as(PairStore), corpus.target_tokenizer.specials

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, row: int) -> dict[str, list[int]]:
        if row >= len(self):
            raise IndexError(row)  # which ends a loop over the rows
        source, target = self.store.source(row).tolist(), self.store.target(row).tolist()
        return {"input_ids": [*source, self.specials.end], "labels": [*target, self.specials.end]}

    def collate(self, rows: Sequence[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
        sides = {
            name: torch.nn.utils.rnn.pad_sequence(
                [torch.tensor(row[name]) for row in rows], batch_first=True, padding_value=padding
            )
            for name, padding in (("input_ids", self.specials.pad), ("labels", -100))
        }
        entered = torch.where(sides["labels"] == -100, self.specials.pad, sides["labels"]).roll(1, dims=1)
        entered[:, 0] = self.specials.start
        return {
            **sides,
            "attention_mask": (sides["input_ids"] != self.specials.pad).long(),
            "decoder_input_ids": entered,  # with label smoothing their trainer does not make them
        }


def _callback(curve: Curve, job: Job, corpus: Prepared, trainer: Any) -> Any:
    """Writes the curve, and validates after every epoch."""
    from transformers import TrainerCallback

    size = job.target_bytes

    class Validating(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            curve.updated(state.global_step)

        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            trainer.model.eval()
            loss = validation_loss(
                corpus,
                lambda batch: (
                    trainer.model(
                        input_ids=batch.source,
                        attention_mask=batch.source_allowed.long(),
                        decoder_input_ids=batch.target[:, :-1],
                    ).logits
                ),
            )
            trainer.model.train()
            bits = bits_per_byte(loss, size)
            curve.validated(state.global_step, bits)
            if bits <= job.last_level or curve.seconds > job.most_seconds or not math.isfinite(bits):
                control.should_training_stop = True

    return Validating()


OURS, LEVELS = "ours", "levels"
CONTROL = "control"
CONTENDERS: dict[str, Callable[[Job], None]] = {
    LEVELS: levels,
    OURS: ours,
    "torch_nn": fixed(TUTORIAL),
    "torch_nn-bfloat16": fixed(TUTORIAL, bfloat16=True),
    "torch_nn_tiny": fixed(PUBLISHED),
    "torch_nn_tiny-bfloat16": fixed(PUBLISHED, bfloat16=True),
    "hf": hugging_face(bfloat16=False),
    "hf-bfloat16": hugging_face(bfloat16=True),
    CONTROL: control(),
    "control-float32": control(bfloat16=False),
    "control-adam": control(optimizer="adam"),
    "control-inverse_sqrt": control(schedule="inverse_sqrt"),
}
PEERS = {
    "torch_nn": ("torch_nn", "torch_nn-bfloat16", "torch_nn_tiny", "torch_nn_tiny-bfloat16"),
    "hf": ("hf", "hf-bfloat16"),
    CONTROL: (CONTROL,),
}
"""What is compared with ours; of several, the fastest."""
FACTORS = {
    "engine": (CONTROL, OURS),
    "precision": ("control-float32", CONTROL),
    "optimizer": ("control-adam", CONTROL),
    "schedule": ("control-inverse_sqrt", CONTROL),
}
"""Which times are divided."""

"""Settings of a pipeline: one TOML file with a table for each stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

import pydantic

from transduce.config import Config, Table, read_toml
from transduce.data.augmentation import AugmentationConfig
from transduce.data.cleaning.rules import CleaningConfig
from transduce.errors import MissingInput, SettingsError, suggestion
from transduce.evaluation.significance import SAMPLES
from transduce.tasks.translation.shortlist import FREQUENT, PER_TOKEN
from transduce.text.corpus import STDIN, CorpusFiles

RECIPE_TABLES = ("tokenizer", "model", "training", "search")
TAG = "<BT>"
"""Precedes back-translated sources (Caswell et al. 2019), so that the model can tell them from genuine ones."""


def _corpus(value: Any) -> Any:
    """Read one corpus, or a list of them."""
    values = value if isinstance(value, list | tuple) else [value]
    if not values:
        raise ValueError("the list of corpora is empty; give at least one corpus")
    found = []
    for one in values:
        try:
            found.append(one if isinstance(one, CorpusFiles) else CorpusFiles.from_table(one, "it"))
        except SettingsError as error:
            raise ValueError(str(error).removeprefix("it: ")) from None
    return tuple(found)


class PipelineData(Config):
    """The files that a pipeline begins with."""

    train: tuple[CorpusFiles, ...]
    """Raw pairs: `{source = "a.txt", target = "b.txt"}`, `{path = "c.tsv"}`, or a list of such tables."""
    validation: tuple[CorpusFiles, ...]
    """Pairs by which checkpoints are selected."""
    test: CorpusFiles
    """Pairs that every stage is scored on."""
    monolingual: tuple[str, ...] = ()
    """Files of text in the target language, a sentence per line, for back-translation."""
    source_language: str | None = None
    """Language of the sources; without it, cleaning takes the commonest."""
    target_language: str | None = None
    """Language of the targets."""

    @pydantic.field_validator("train", "validation", mode="before")
    @classmethod
    def _read_corpora(cls, value: Any) -> Any:
        return _corpus(value)

    @pydantic.field_validator("test", mode="before")
    @classmethod
    def _read_corpus(cls, value: Any) -> Any:
        return _corpus(value)[0]

    @pydantic.field_validator("monolingual", mode="before")
    @classmethod
    def _read_names(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value

    @pydantic.model_validator(mode="after")
    def _check_files(self) -> Self:
        if STDIN in self.files():
            raise ValueError(
                "a pipeline reads its files again when it is run again; standard input cannot be one of them"
            )
        if any(corpus.alignment for corpus in (*self.train, *self.validation, self.test)):
            raise ValueError(
                "leave out alignment, since cleaning removes and moves lines; with training.guided_alignment a stage "
                "aligns its own pairs"
            )
        return self

    def files(self) -> list[str]:
        """Return every file that is named."""
        corpora = (*self.train, *self.validation, self.test)
        named = [name for corpus in corpora for name in (corpus.source, corpus.target, corpus.path)]
        return [name for name in (*named, *self.monolingual) if name is not None]


class TrainingStage(Config):
    """Tables of a recipe; what they leave out is chosen from the corpus, as by `transduce train`."""

    tokenizer: dict[str, Any] = pydantic.Field(default_factory=dict)
    """Settings of [tokenizer]."""
    model: dict[str, Any] = pydantic.Field(default_factory=dict)
    """Settings of [model]."""
    training: dict[str, Any] = pydantic.Field(default_factory=dict)
    """Settings of [training]."""
    search: dict[str, Any] = pydantic.Field(default_factory=dict)
    """Settings of [search]."""

    def tables(self) -> Table:
        """Return the tables that have settings."""
        return {name: dict(getattr(self, name)) for name in RECIPE_TABLES if getattr(self, name)}


class TuningStage(Config):
    """Training of a model that exists, with its tokenizer and sizes."""

    training: dict[str, Any] = pydantic.Field(default_factory=dict)
    """Settings of [training]."""


class BackTranslation(Config):
    """How target text is translated back into the source language."""

    method: Literal["beam", "greedy", "sample"] = "beam"
    """Search method; sampling gives more varied sources, which help where there are many pairs (Edunov et al. 2018)."""
    beam_size: int = pydantic.Field(default=4, ge=1, le=256)
    """Beam size."""
    temperature: float = pydantic.Field(default=1.0, gt=0, le=100)
    """Sampling temperature."""
    top_k: int = pydantic.Field(default=0, ge=0)
    """Sample from the k most probable tokens only; 0 for all."""
    seed: int = pydantic.Field(default=1, ge=0)
    """Random seed of the samples."""
    tag: str = TAG
    """Word before each translated source; empty for none."""

    def options(self) -> Table:
        """Return the search options."""
        if self.method == "sample":
            return {"method": "sample", "temperature": self.temperature, "top_k": self.top_k, "seed": self.seed}
        return {"method": self.method, **({"beam_size": self.beam_size} if self.method == "beam" else {})}


class Mix(TuningStage):
    """Training on true and back-translated pairs."""

    weight: float = pydantic.Field(default=1.0, gt=0, le=1000)
    """How often each true pair is seen per epoch; each back-translated pair is seen once."""


class Distillation(Config):
    """What the student learns from: translations of the training sources by the teacher (Kim and Rush 2016)."""

    method: Literal["best", "n_best", "interpolated"] = "best"
    """best: the best translation of each source; n_best: all of the n best; interpolated: the one of the n best that is
    nearest to the reference by chrF."""
    n_best: int = pydantic.Field(default=4, ge=1, le=64)
    """Number of translations per source to compare or take."""
    beam_size: int = pydantic.Field(default=4, ge=1, le=256)
    """Beam size of the teacher."""
    originals: bool = True
    """Whether the student also learns from the true pairs."""
    back_translations: bool = True
    """Whether it also learns from the back-translated pairs, where there are any."""

    @pydantic.model_validator(mode="after")
    def _beam_is_wide_enough(self) -> Self:
        if self.method != "best" and self.n_best > self.beam_size:
            raise ValueError(f"n_best = {self.n_best} needs at least as large a beam; raise beam_size")
        return self


class Student(TrainingStage):
    """The small model: a deep encoder and a shallow decoder (Kasai et al. 2021), which takes most of the time."""

    model: dict[str, Any] = pydantic.Field(default_factory=lambda: {"num_layers": 6, "decoder_layers": 2})
    """Settings of [model]; presets: student_6_2, student_12_1."""
    beam_size: int = pydantic.Field(default=1, ge=1, le=256)
    """Beam size of the student in the table of results; 1 is greedy search."""


class Compression(Config):
    """int8 weights and a shortlist of likely target tokens for each source token."""

    per_token: int = pydantic.Field(default=PER_TOKEN, ge=1)
    """Candidates per source token."""
    frequent: int = pydantic.Field(default=FREQUENT, ge=0)
    """Number of frequent tokens that are always candidates."""


class Evaluation(Config):
    """How stages are compared."""

    tokenize: str = "13a"
    """sacreBLEU's tokenizer, or none."""
    samples: int = pydantic.Field(default=SAMPLES, ge=1, le=1_000_000)
    """Bootstrap samples of the confidence intervals."""


STAGES = (
    *("clean", "teacher", "reverse", "back-translate", "mix", "finish"),
    *("distil", "augment", "student", "compress", "evaluate"),
)
OPTIONAL = {"clean", "back-translate", "distil", "augment", "compress"}
"""Stages that `skip` may name; those that need their results are left out, too."""


class PipelineConfig(Config):
    """A pipeline; every table but [data] may be left out."""

    data: PipelineData
    """The corpora."""
    skip: tuple[str, ...] = pydantic.Field(default=(), strict=False)
    """Stages to leave out: clean, back-translate, distil, augment, compress."""
    clean: CleaningConfig = CleaningConfig()
    """Which pairs are removed or repaired."""
    teacher: TrainingStage = TrainingStage()
    """The large model."""
    reverse: TrainingStage = TrainingStage()
    """The model of the opposite direction, for back-translation."""
    back_translation: BackTranslation = BackTranslation()
    """How the reverse model translates the monolingual text."""
    mix: Mix = Mix()
    """The teacher, trained further on true and back-translated pairs."""
    finish: TuningStage = TuningStage()
    """The mix model, trained further on the true pairs alone."""
    distillation: Distillation = Distillation()
    """The training corpus of the student."""
    augmentation: AugmentationConfig | None = None
    """Variants of the distilled pairs; none without this table."""
    student: Student = Student()
    """The small model."""
    compression: Compression = Compression()
    """The student in int8, with a shortlist."""
    evaluation: Evaluation = Evaluation()
    """How the models are compared."""

    @pydantic.field_validator("skip")
    @classmethod
    def _stages_exist(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in OPTIONAL:
                raise ValueError(f"'{name}' is not a stage that can be left out{suggestion(name, OPTIONAL)}")
        return names

    @property
    def stages(self) -> list[str]:
        """Return the stages that are carried out, in order."""
        left_out = set[str]()
        if not self.data.monolingual or "back-translate" in self.skip:
            left_out |= {"reverse", "back-translate", "mix", "finish"}
        if "distil" in self.skip:
            left_out |= {"distil", "augment", "student", "compress"}
        if self.augmentation is None or "augment" in self.skip:
            left_out.add("augment")
        if "compress" in self.skip:
            left_out.add("compress")
        return [name for name in STAGES if name not in left_out]


def read_pipeline(path: Path) -> PipelineConfig:
    """Read a pipeline file, and check that the files that it names exist."""
    tables = read_toml(path, "the settings of a pipeline, which are a TOML file")
    if found := next((name for name in RECIPE_TABLES if name in tables), None):
        raise SettingsError(
            f"{path}: [{found}] is a table of a recipe; in a pipeline it belongs to a stage: [teacher.{found}], "
            f"[reverse.{found}] or [student.{found}]"
        )
    config = PipelineConfig.from_table(tables, str(path))
    for name in config.data.files():
        if not Path(name).exists():
            raise MissingInput(
                f"{name}: not found, named by [data] of {path}; paths are relative to the current folder"
            )
    return config

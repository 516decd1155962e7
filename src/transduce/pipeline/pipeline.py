"""A pipeline: raw pairs → clean pairs → teacher → back-translations → better teacher → student → int8 and shortlist.

Each stage reads the results of earlier ones from their folders and leaves its own (`pipeline.cache`). What it does, a
command of its own does, too.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from transduce.config import Table
from transduce.data.cleaning.rules import CleaningConfig
from transduce.inference.ctranslate2.export import export, is_installed
from transduce.inference.load import load_translator
from transduce.inference.translator import Translator
from transduce.model_folder import load_model
from transduce.pipeline.cache import Done, Stage, carry_out
from transduce.pipeline.comparison import Contender, compare_models, folder_bytes
from transduce.pipeline.corpora import REMOVED, REPORT, SOURCE, TARGET, augment, back_translate, clean_corpus, distil
from transduce.pipeline.settings import PipelineConfig
from transduce.recipe import read_recipe, resume_recipe
from transduce.run import train
from transduce.storage.atomic import replace_json
from transduce.storage.filesystem import create_parents, locked, storage_errors
from transduce.storage.layout import MODEL, RECIPE, SHORTLIST, WEIGHTS
from transduce.tasks.translation.shortlist import make_shortlist
from transduce.text.corpus import CorpusFiles, read_pairs
from transduce.text.shortlist import Shortlist
from transduce.training.reporter import Reporter

RUN = "run"
RUN_MODEL = f"{RUN}/{MODEL}"
EXPORTED = "ctranslate2-int8"
SUMMARY = "pipeline.json"
_STUDENT_CORPORA = {"originals", "back_translations"}
NO_CLEANING = {"copies", "ratio", "language", "duplicates", "near_duplicates", "misaligned", "repair"}


class Observer(Protocol):
    """Follows a pipeline."""

    def begin(self, stage: str, folder: Path, reused: bool) -> None: ...
    def progress(self, stage: str, count: int) -> None: ...
    def chosen(self, reason: str) -> None: ...
    def reporting(self) -> contextlib.AbstractContextManager[Reporter]: ...


@dataclass
class Pipeline:
    """Carries out the stages of a configuration in one folder."""

    config: PipelineConfig
    output: Path
    observer: Observer
    done: dict[str, Done] = field(default_factory=dict)

    def run(self, until: str | None = None) -> dict[str, Done]:
        """Carry out the stages, up to one of them; return what each left."""
        names = self.config.stages
        with create_parents(self.output / SUMMARY), locked(self.output, "running a pipeline"):
            for name in names[: names.index(until) + 1] if until else names:
                stage: Stage = getattr(self, f"_{name.replace('-', '_')}")()
                self.done[name] = carry_out(stage, self.output, self.observer.begin)
            with storage_errors(self.output):
                replace_json(
                    self.output / SUMMARY, {"stages": {name: str(one.folder) for name, one in self.done.items()}}
                )
        return self.done

    # Corpora.

    def _clean(self) -> Stage:
        data = self.config.data
        rules = self.config.clean
        if "clean" in self.config.skip:
            rules = CleaningConfig(**dict.fromkeys(NO_CLEANING, False), min_letters=0.0, max_length=1_000_000)
        settings = {
            "clean": rules.to_table(),
            "languages": self._languages,
            "files": [_without_names(corpus) for corpus in data.train],
        }

        def run(folder: Path) -> Table:
            report = clean_corpus(data.train, rules, self._languages, folder, self.observer.progress)
            return {name: report[name] for name in ("read", "kept", "removed", "repaired")}

        return Stage("clean", 1, settings, {"train": _paths(*data.train)}, (SOURCE, TARGET, REMOVED, REPORT), run)

    def _back_translate(self) -> Stage:
        config, data = self.config.back_translation, self.config.data
        model = self.done["reverse"] / RUN_MODEL

        def run(folder: Path) -> Table:
            options, progress = config.options(), self.observer.progress
            count = back_translate(_fast(model), data.monolingual, folder, options, config.tag, progress)
            return {"pairs": count}

        inputs = {"model": [model], "monolingual": [Path(name) for name in data.monolingual]}
        return Stage("back-translate", 1, config.to_table(), inputs, (SOURCE, TARGET), run)

    def _distil(self) -> Stage:
        config, model, clean = self.config.distillation, self._best_teacher, self.done["clean"].folder

        def run(folder: Path) -> Table:
            pairs = ((pair.source, pair.target) for pair in read_pairs(_in(clean)))
            return {"pairs": distil(_fast(model), pairs, folder, config, self.observer.progress)}

        settings = {name: value for name, value in config.to_table().items() if name not in _STUDENT_CORPORA}
        return Stage("distil", 1, settings, {"model": [model], "pairs": _both(clean)}, (SOURCE, TARGET), run)

    def _augment(self) -> Stage:
        config, distilled = self.config.augmentation, self.done["distil"].folder
        assert config is not None, "else it is not a stage"

        def run(folder: Path) -> Table:
            return {"pairs": augment(_in(distilled), folder, config)}

        return Stage("augment", 1, config.to_table(), {"pairs": _both(distilled)}, (SOURCE, TARGET), run)

    # Models.

    def _teacher(self) -> Stage:
        return self._training("teacher", self.config.teacher.tables(), [self.done["clean"].folder])

    def _reverse(self) -> Stage:
        return self._training("reverse", self.config.reverse.tables(), [self.done["clean"].folder], reverse=True)

    def _mix(self) -> Stage:
        """Train the teacher further on both kinds of pairs; genuine ones are not tagged."""
        folders = [self.done[name].folder for name in ("clean", "back-translate")]
        tables = {"training": self.config.mix.training}
        return self._training("mix", tables, folders, self.done["teacher"], weights=[self.config.mix.weight, 1.0])

    def _finish(self) -> Stage:
        folders = [self.done["clean"].folder]
        return self._training("finish", {"training": self.config.finish.training}, folders, self.done["mix"])

    def _student(self) -> Stage:
        folders = [self.done["augment" if "augment" in self.done else "distil"].folder]
        if self.config.distillation.originals:
            folders.append(self.done["clean"].folder)
        if self.config.distillation.back_translations and "back-translate" in self.done:
            folders.append(self.done["back-translate"].folder)
        return self._training("student", self.config.student.tables(), folders)

    def _training(
        self,
        name: str,
        tables: Table,
        corpora: list[Path],
        initial: Done | None = None,
        reverse: bool = False,
        weights: list[float] | None = None,
    ) -> Stage:
        """Return the stage that trains a model on corpora of earlier stages, from an initial model or randomly."""
        data = self.config.data
        train_table: list[Table] = [{"source": str(one / SOURCE), "target": str(one / TARGET)} for one in corpora]
        for corpus, weight in zip(train_table, weights or [], strict=bool(weights)):
            corpus["weight"] = weight
        languages = dict(zip(("source_language", "target_language"), self._languages, strict=True))
        settings = {"recipe": tables, "reverse": reverse, "weights": weights or [], "languages": self._languages}
        inputs = {"train": [path for one in corpora for path in _both(one)]}
        inputs |= {"validation": _paths(*data.validation), "test": _paths(data.test)}
        settings["files"] = [_without_names(corpus) for corpus in (*data.validation, data.test)]
        if initial is not None:
            inputs["initial"] = [initial / RUN_MODEL]

        def run(folder: Path) -> Table:
            validation = [corpus.to_table() for corpus in data.validation]
            # the references of the test set are not seen, but pairs that occur in it are left out of training
            table: Table = {"train": train_table, "validation": validation, "test": data.test.to_table()}
            table |= {key: value for key, value in languages.items() if value is not None}
            base: Table = {"data": _reversed(table, folder) if reverse else table, **tables}
            if initial is not None:
                base["training"] = {**base.get("training", {}), "initial_checkpoint": str(initial / RUN)}
            self._train(folder / RUN, base)
            return {"bytes": folder_bytes(folder / RUN_MODEL / WEIGHTS)}

        return Stage(name, 1, settings, inputs, (RUN_MODEL,), run)

    def _train(self, run: Path, base: Table) -> None:
        """Train a new run, or resume a stopped one."""
        if (run / MODEL).is_dir():
            return
        resume = (run / RECIPE).is_file()
        if run.exists() and not resume:
            shutil.rmtree(run)
        if resume:
            recipe = resume_recipe(run)
        else:
            recipe, reasons = read_recipe(None, (), base)
            for reason in reasons:
                self.observer.chosen(reason)
        with self.observer.reporting() as reporter:
            train(recipe, run, resume=resume, reporter=reporter)

    # The small form, and the comparison.

    def _compress(self) -> Stage:
        config, student, corpus = self.config.compression, self.done["student"] / RUN_MODEL, self.done["distil"].folder
        exported = is_installed()

        def run(folder: Path) -> Table:
            listing = make_shortlist(
                student, folder / SHORTLIST, config.per_token, config.frequent, _in(corpus), self.observer.progress
            )
            facts: Table = {"mean_candidates": listing.coverage.mean_candidates if listing.coverage else None}
            if exported:
                contents = load_model(student)
                tokenizers = contents.source_tokenizer, contents.target_tokenizer
                shutil.rmtree(folder / EXPORTED, ignore_errors=True)
                export(contents, folder / EXPORTED, "int8", Shortlist.load(folder / SHORTLIST, *tokenizers), student)
                facts["bytes"] = folder_bytes(folder / EXPORTED)
            return facts

        settings = {**config.to_table(), "exported": exported}
        outputs = (SHORTLIST, EXPORTED) if exported else (SHORTLIST,)
        return Stage("compress", 1, settings, {"student": [student], "pairs": _both(corpus)}, outputs, run)

    def _evaluate(self) -> Stage:
        data, contenders = self.config.data, list(self._contenders())
        models = [*dict.fromkeys(one.model for one in contenders)]
        settings = {
            "evaluation": self.config.evaluation.to_table(),
            "contenders": [[one.name, one.search, one.precision, one.shortlist is not None] for one in contenders],
            "files": _without_names(data.test),
        }

        def run(folder: Path) -> Table:
            table = compare_models(contenders, data.test, self._languages, self.config.evaluation)
            folder.mkdir(parents=True, exist_ok=True)
            replace_json(folder / REPORT, table)
            return table

        inputs = {"models": models, "test": _paths(data.test)}
        inputs["shortlists"] = [one.shortlist for one in contenders if one.shortlist is not None]
        return Stage("evaluate", 1, settings, inputs, (REPORT,), run)

    def _contenders(self) -> Iterator[Contender]:
        """Yield the models: the best teacher first, with which the others are compared."""
        finals = [name for name in ("finish", "mix", "teacher") if name in self.done]
        for name in finals:
            model = self.done[name] / RUN_MODEL
            yield Contender(name, model, folder_bytes(model / WEIGHTS))
        if "student" not in self.done:
            return
        model, beam = self.done["student"] / RUN_MODEL, self.config.student.beam_size
        search: Table = {"method": "greedy"} if beam == 1 else {"beam_size": beam}
        yield Contender("student", model, folder_bytes(model / WEIGHTS), search)
        if "compress" in self.done:
            folder = self.done["compress"].folder
            exported = folder / EXPORTED
            size = folder_bytes(exported) if exported.is_dir() else folder_bytes(model / WEIGHTS)
            yield Contender("student int8", model, size, search, "int8", folder / SHORTLIST)

    @property
    def _languages(self) -> tuple[str | None, str | None]:
        return self.config.data.source_language, self.config.data.target_language

    @property
    def _best_teacher(self) -> Path:
        return self.done["finish" if "finish" in self.done else "teacher"] / RUN_MODEL


def _both(folder: Path) -> list[Path]:
    return [folder / SOURCE, folder / TARGET]


def _in(folder: Path) -> CorpusFiles:
    return CorpusFiles(source=str(folder / SOURCE), target=str(folder / TARGET))


def _paths(*corpora: CorpusFiles) -> list[Path]:
    return [Path(name) for one in corpora for name in (one.source, one.target, one.path) if name is not None]


def _without_names(corpus: CorpusFiles) -> Table:
    """Return how files are read; what they are called does not matter, only what they contain."""
    return {name: value for name, value in corpus.to_table().items() if name not in ("source", "target", "path")}


def _reversed(table: Mapping[str, object], folder: Path) -> Table:
    """Return the corpora of the other direction; those with both sides in one file are written as two."""
    folder.mkdir(parents=True, exist_ok=True)
    languages = table.get("source_language"), table.get("target_language")
    found: Table = {"source_language": languages[1], "target_language": languages[0]}
    for split in ("train", "validation", "test"):
        given = table[split]
        corpora = given if isinstance(given, list) else [given]
        found[split] = []
        for number, one in enumerate(corpora):
            if "path" in one:
                one = _split(CorpusFiles.from_table(one, split), folder / f"{split}-{number}", languages)
            found[split].append({**one, "source": one["target"], "target": one["source"]})
    found["test"] = found["test"][0]
    return {name: value for name, value in found.items() if value is not None}


def _split(corpus: CorpusFiles, base: Path, languages: tuple[object, object]) -> Table:
    names = [base.with_suffix(f".{side}.txt") for side in ("source", "target")]
    ours, theirs = (one if isinstance(one, str) else None for one in languages)
    with names[0].open("w", encoding="utf-8") as sources, names[1].open("w", encoding="utf-8") as targets:
        for pair in read_pairs(corpus, (ours, theirs)):
            sources.write(f"{' '.join(pair.source.splitlines())}\n")
            targets.write(f"{' '.join(pair.target.splitlines())}\n")
    return {"source": str(names[0]), "target": str(names[1])}


def _fast(model: Path) -> Translator:
    """Load a model with the fastest engine."""
    translator = load_translator(str(model))
    translator.use("auto")
    return translator

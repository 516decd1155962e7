"""The runs behind the served models, by index: training curves, checkpoints, examples, the pronoun demo.

Files are read when they are requested, since a run may still be training. Nothing here imports torch.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transduce.config import Table
from transduce.errors import TransduceError
from transduce.inspection.run_record import RunRecord, read_run
from transduce.inspection.run_report import content
from transduce.serving.http import RequestError
from transduce.storage.atomic import read_json
from transduce.storage.checkpoints import SavedCheckpoints
from transduce.storage.layout import CHECKPOINTS, JOURNAL, TIMING

MAX_EXAMPLES = 8
DEMO_SCORES = "scores.json"
DEMO_SENTENCES = (
    "The animal didn't cross the street because it was too tired",
    "The animal didn't cross the street because it was too wide",
)
"""The sentence of `transduce demo pronoun` with its two endings."""


def run_of(folder: Path | None) -> Path | None:
    """Return the run that a folder is or belongs to; None for a model alone."""
    if folder is None:
        return None
    for candidate in (folder, folder.resolve().parent):
        if (candidate / CHECKPOINTS).is_dir() or (candidate / JOURNAL).is_file():
            return candidate
    return None


@dataclass
class ServedRun:
    """One run."""

    index: int
    name: str
    folder: Path
    known: list[int] = field(default_factory=list)
    """Updates whose checkpoints were listed; their places are their indices, also after a checkpoint is pruned."""
    _read: tuple[str, RunRecord] | None = None

    @property
    def version(self) -> str:
        """Changes with every line that the run writes."""
        return "-".join(str(_size(self.folder / name)) for name in (JOURNAL, TIMING))

    def record(self) -> RunRecord | None:
        """The journal and what belongs to it; None if it is damaged or missing."""
        version = self.version
        if self._read is None or self._read[0] != version:
            try:
                self._read = version, read_run(self.folder)
            except TransduceError:
                return None
        return self._read[1]

    def checkpoints(self) -> list[Table]:
        """The checkpoints that exist."""
        saved = SavedCheckpoints(self.folder).updates()
        self.known += [update for update in saved if update not in self.known]
        places = {update: index for index, update in enumerate(self.known)}
        return [{"index": places[update], "update": update} for update in saved]


class Runs:
    """The runs of a server. Methods may be called from several threads."""

    def __init__(self, folders: Mapping[str, str]) -> None:
        """`folders` are those of the models, or of runs that have none yet, by name."""
        self._lock = threading.Lock()
        self._runs: list[ServedRun] = []
        self._of_model: dict[str, ServedRun] = {}
        self._folders = {name: Path(folder) for name, folder in folders.items()}
        for name, folder in self._folders.items():
            run = run_of(folder)
            if run is None:
                continue
            known = next((one for one in self._runs if one.folder.resolve() == run.resolve()), None)
            if known is None:
                known = ServedRun(len(self._runs), name, run)
                self._runs.append(known)
            self._of_model[name] = known

    def of_model(self, name: str) -> int | None:
        """The index of the run that a model is of."""
        run = self._of_model.get(name)
        return None if run is None else run.index

    def listed(self) -> Table:
        """All runs, with the checkpoints that exist."""
        with self._lock:
            return {"runs": [self._described(run) for run in self._runs]}

    def _described(self, run: ServedRun) -> Table:
        record = run.record()
        return {
            "index": run.index,
            "name": run.name,
            "checkpoints": run.checkpoints(),
            "ended": record is None or record.finished,
            "updates": 0 if record is None else record.updates,
            "version": run.version,
        }

    def report(self, index: int, since: str | None) -> Table:
        """What `transduce report` shows of a run; only the version if nothing was written since that one."""
        run = self._find(index)
        with self._lock:
            if since == run.version:
                return {"version": run.version, "unchanged": True}
            record = run.record()
            if record is None:
                raise RequestError(404, "this run has no journal that can be read; `transduce report` says why")
            return {"version": run.version, "unchanged": False, **self._described(run), **content([record])}

    def checkpoint(self, model: str, index: int) -> int:
        """The update of a checkpoint of a model's run; raises RequestError (422)."""
        run = self._of_model.get(model)
        if run is None:
            raise RequestError(422, f"the model '{model}' has no run with checkpoints; leave it out", "checkpoint")
        with self._lock:
            found = next((one for one in run.checkpoints() if one["index"] == index), None)
        if found is None:
            raise RequestError(422, f"no checkpoint {index}; the list of runs has those that exist", "checkpoint")
        update: int = found["update"]
        return update

    def examples(self, name: str) -> list[str]:
        """Texts of a model's validation data; the sentences of the demo come first."""
        run = self._of_model.get(name)
        if run is None:
            return []
        first = DEMO_SENTENCES if self._demo_scores(name) is not None else ()
        with self._lock:
            record = run.record()
        checks: Sequence[Any] = () if record is None else record.checks
        samples = next((check.samples for check in reversed(checks) if check.samples), ())
        sources = (sample.source for sample in samples if sample.source.strip())
        return list(dict.fromkeys([*first, *sources]))[:MAX_EXAMPLES]

    def demo(self) -> tuple[str, Table] | None:
        """The model of the pronoun demo, if one is served, and its scores."""
        for name in self._of_model:
            scores = self._demo_scores(name)
            if scores is not None:
                return name, scores
        return None

    def _demo_scores(self, name: str) -> Table | None:
        path = self._of_model[name].folder / DEMO_SCORES
        if not 0 < _size(path) < 1 << 20:
            return None
        try:
            scores = read_json(path)
        except TransduceError:
            return None
        return scores if "pronoun_accuracy" in scores and isinstance(scores.get("heads"), dict) else None

    def _find(self, index: int) -> ServedRun:
        if not 0 <= index < len(self._runs):
            raise RequestError(404, f"no run {index}; the list of runs has those that exist", "index")
        return self._runs[index]


def demo_json(model: int, scores: Table) -> Table:
    """The pronoun demo as a landing page: the sentences, and the head whose attention follows the meaning of "it"."""
    moving, by_noun = scores.get("moving_head"), scores["heads"]
    chosen = moving or next(iter(by_noun.values()), None)
    return {
        "available": True,
        "model": model,
        "sentences": list(DEMO_SENTENCES),
        "focus": "it",
        "head": chosen[0] if isinstance(chosen, list) and chosen else None,
        "heads": by_noun,
        "scores": scores,
    }


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0

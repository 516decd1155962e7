"""The pronoun demo: does *it* attend to the animal or to the street, and does the translation depend on that?

One small Transformer is trained on the pairs of `pronoun_corpus`, tested on combinations that it has not seen, and
examined: where its heads attend, which of them the pronoun depends on, whether the encoder or the decoder's
cross-attention finds the noun, and when in training that happens. Other seeds find other solutions, so `seeds` repeats
all of it.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transduce.config import Table
from transduce.errors import MissingInput
from transduce.experiments import pronoun_figures as figures
from transduce.experiments.demo import program_name, remove_earlier
from transduce.experiments.pronoun_corpus import Scene, draw_scenes, famous
from transduce.experiments.pronoun_interventions import Solution, describe
from transduce.experiments.pronoun_lengths import LengthCurve, compare_lengths
from transduce.experiments.pronoun_report import ATTENDED, PronounReport, examine, written_pronoun
from transduce.experiments.pronoun_training import (
    STANDARD,
    PronounSizes,
    is_finished,
    make_recipe,
    train_or_reuse,
    transformer,
    write_corpus,
)
from transduce.experiments.pronoun_words import ROLES, Language
from transduce.inference.load import load_translator
from transduce.inference.translator import Translator
from transduce.inspection.figure import as_png, as_svg
from transduce.storage.atomic import atomic_file, read_json, write_file, write_json
from transduce.storage.checkpoints import SavedCheckpoints
from transduce.storage.filesystem import storage_errors
from transduce.storage.layout import CHECKPOINTS
from transduce.training.reporter import Reporter, Silent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REPORT_FILE, SCORES_FILE = "pronoun.json", "scores.json"
KEPT_CHECKPOINTS = 8
"""Checkpoints of the demo's own run that stay, for the studio's slider."""
CLASSES: dict[Solution, str] = {
    "encoder": "the encoder alone finds the noun",
    "cross-attention": "the decoder's cross-attention alone finds it",
    "both": "either of them suffices",
    "neither": "neither suffices without the other",
}
LANGUAGES: dict[Language, str] = {"de": "German", "fr": "French"}


@dataclass(frozen=True)
class PronounOptions:
    """Options of `transduce demo pronoun`."""

    folder: Path
    language: Language = "de"
    seed: int = 1
    seeds: int = 1
    compare: bool = False
    sizes: PronounSizes = STANDARD

    @property
    def corpus(self) -> Path:
        """Folder of the generated corpus."""
        return self.beside("corpus")

    def beside(self, name: str) -> Path:
        """A folder beside the run folder."""
        return self.folder.parent / f"{self.folder.name}-{name}"

    def run_of(self, seed: int) -> Path:
        """Run folder of a seed; that of `seed` is the demo's own."""
        return self.folder if seed == self.seed else self.beside("seeds") / f"seed-{seed}"


def run_pronoun(options: PronounOptions, reporter: Reporter) -> Iterator[str]:
    """Train, test and take apart; yield lines to print. Replaces an earlier demo in the folder.

    A run that is finished already, with the same settings, is not trained again.
    """
    folder, language, sizes = options.folder, options.language, options.sizes
    model = transformer(sizes.model_dim)
    recipe = make_recipe(options.corpus, language, model, options.seed, sizes, sizes.updates)
    if is_finished(recipe, folder):
        yield f"{folder}: trained before with the same settings; remove the folder to train again"
    else:
        remove_earlier(folder, options.corpus)
        yield f"learning to translate “it” into {LANGUAGES[language]} in {folder}"
        write_corpus(options.corpus, language, sizes)
    scenes = draw_scenes("test", sizes.test, language, lambda scene: scene.is_held_out)
    report = _examined(options, options.seed, scenes, reporter)
    translator = load_translator(folder)
    yield from _sentences(translator, language)
    yield from _accuracy(report, scenes, language)
    yield from _mechanism(report)
    yield from _pictures(options, translator, report)
    reports = [report]
    if options.seeds > 1:
        reports = []
        for seed in range(1, options.seeds + 1):
            reports.append(report if seed == options.seed else _examined(options, seed, scenes, Silent()))
            yield _seed_line(reports[-1])
        yield from _shares(reports)
    curves: list[LengthCurve] = []
    if options.compare:
        yield "pronouns right by the number of words between the nouns and the pronoun:"
        for curve in compare_lengths(options.beside("lengths"), language, options.seed, sizes):
            curves.append(curve)
            yield _curve_line(curve)
        yield from _draw(folder / "lengths", lambda: figures.draw_lengths(curves))
    _write_scores(folder, report, reports, curves)
    yield f"all figures: {folder / SCORES_FILE}"
    yield "next steps:"
    program = program_name()
    yield f'  echo "The frog couldn\'t reach the river because it was too hungry" | {program} translate {folder}'
    yield f'  {program} inspect {folder} "{famous("animal").source()}"'
    if len(reports) == 1:
        yield f"  {program} demo pronoun --seeds 10 --compare"


def _examined(options: PronounOptions, seed: int, scenes: Sequence[Scene], reporter: Reporter) -> PronounReport:
    """Train one seed and examine it, or read what was found before."""
    run, sizes = options.run_of(seed), options.sizes
    model = transformer(sizes.model_dim)
    recipe = make_recipe(options.corpus, options.language, model, seed, sizes, sizes.updates)
    if is_finished(recipe, run) and (run / REPORT_FILE).is_file():
        return PronounReport.from_json(read_json(run / REPORT_FILE))
    seconds = train_or_reuse(recipe, run, reporter)
    report = examine(load_translator(run), run, scenes, sizes.probe, options.language, (seed, seconds))
    with atomic_file(run / REPORT_FILE) as temporary:
        write_json(temporary, report.to_json())
    with storage_errors(run):
        if seed == options.seed:
            checkpoints = SavedCheckpoints(run)
            checkpoints.keep(milestones(checkpoints.updates()))
        else:
            shutil.rmtree(run / CHECKPOINTS)
    return report


def milestones(updates: Sequence[int], count: int = KEPT_CHECKPOINTS) -> list[int]:
    """Choose the checkpoints that are kept to show how the model learned: dense at first, where most changes.

    The targets are in geometric progression from the first to the last; each takes the nearest update after the one
    before it that leaves enough for the rest.
    """
    if len(updates) <= count:
        return list(updates)
    chosen, at = [], 0
    for number in range(count):
        target = updates[0] * (updates[-1] / updates[0]) ** (number / (count - 1))
        left = range(at, len(updates) - (count - 1 - number))
        best = min(left, key=lambda index: abs(updates[index] - target))
        chosen.append(updates[best])
        at = best + 1
    return chosen


def _sentences(translator: Translator, language: Language) -> Iterator[str]:
    """Show the two famous sentences."""
    for role in ROLES:
        scene = famous(role)
        translation = translator(scene.source())
        mark = "✓" if written_pronoun(translation, language) == scene.pronoun(language) else "✗"
        yield f"  {mark} {scene.source()}"
        yield f"    {translation}"


def _accuracy(report: PronounReport, scenes: Sequence[Scene], language: Language) -> Iterator[str]:
    animals = sum(scene.referent == "animal" for scene in scenes) / len(scenes)
    [(pronoun, count)] = Counter(scene.pronoun(language) for scene in scenes).most_common(1)
    yield f"{len(scenes):,} sentences whose adjective and noun the model has never seen together:"
    whole = f"whole sentence {100 * report.exact_match:.1f} %"
    yield f"  pronoun right        {100 * report.pronoun_accuracy:.1f} %  ({whole})"
    yield f"  always the animal    {100 * animals:.1f} %, always the place {100 * (1 - animals):.1f} %"
    yield f"  always “{pronoun}”{' ' * (11 - len(pronoun))} {100 * count / len(scenes):.1f} %"
    yield f"  trained for          {report.train_seconds:.0f} s, right from update {report.learned_at or '–'} on"


def _mechanism(report: PronounReport) -> Iterator[str]:
    cuts, patches = report.cuts, report.patches
    yield f"where the decision is made: {CLASSES[cuts.solution]}"
    yield f"  encoder cut between the clauses                {100 * cuts.without_encoder:.1f} % right"
    yield f"  decoder sees the clause with “it” only         {100 * cuts.without_cross:.1f} % right"
    moved = ", ".join(f"{name} {100 * share:.0f} %" for name, share in patches.items())
    yield f"  pronoun follows the other ending's memory of   {moved}"
    heads = ", ".join(f"{weight:.2f} {head}" for head, weight in report.heads.values())
    yield f"encoder heads that attend most from “it” to the right noun (animal, place): {heads}"
    moving, shift = report.moving_head
    yield f"  attention moves most with the ending in {moving}: by {shift:.2f}"
    zeroed = "" if report.zeroed_accuracy is None else f" ({100 * report.zeroed_accuracy:.1f} % with zeros)"
    yield (
        f"with the mean output of {describe(report.ablated_heads)}: {100 * report.ablated_accuracy:.1f} % of pronouns "
        f"right{zeroed}, before {100 * cuts.whole:.1f} %"
    )


def _pictures(options: PronounOptions, translator: Translator, report: PronounReport) -> Iterator[str]:
    heads = list(dict.fromkeys([report.moving_head[0], *(head for head, _ in report.heads.values())]))

    def draw() -> Figure:
        scenes = [famous(role) for role in ROLES]
        maps = [figures.ending_maps(translator, scene, scene.pronoun(options.language)) for scene in scenes]
        return figures.draw_endings(maps, heads)

    yield from _draw(options.folder / "attention", draw)


def _draw(path: Path, draw: Callable[[], Figure]) -> Iterator[str]:
    """Write a figure as PNG and SVG; without matplotlib, say so."""
    try:
        figure = draw()
        write_file(path.with_suffix(".png"), as_png(figure))
        write_file(path.with_suffix(".svg"), as_svg(figure))
    except MissingInput as error:
        yield f"no picture: {error}"
    else:
        yield f"picture: {path.with_suffix('.png')} (and .svg)"


def _seed_line(report: PronounReport) -> str:
    return (
        f"seed {report.seed}: {100 * report.pronoun_accuracy:.1f} % right, {report.cuts.solution}, attention from “it” "
        f"{report.head_attention:.2f}, ablated {100 * report.ablated_accuracy:.0f} %"
    )


def _shares(reports: Sequence[PronounReport]) -> Iterator[str]:
    count = len(reports)
    yield f"in {count} seeds:"
    found = Counter(report.cuts.solution for report in reports)
    for solution, meaning in CLASSES.items():
        yield f"  {found[solution]:2} of {count}: {meaning}"
    attended = [report for report in reports if report.head_attention > ATTENDED]
    at = f", from update {min(r.attended_at or 0 for r in attended)} on" if attended else ""
    yield f"  {len(attended):2} of {count}: encoder heads attend to the right noun with more than {ATTENDED}{at}"


def _curve_line(curve: LengthCurve) -> str:
    points = ", ".join(
        f"{words}: {100 * accuracy:.0f} %" for words, accuracy in zip(curve.words, curve.accuracy, strict=True)
    )
    return f"  {curve.name:<22} {points}"


def _write_scores(
    folder: Path, report: PronounReport, reports: Sequence[PronounReport], curves: Sequence[LengthCurve]
) -> None:
    scores: Table = report.to_json()
    if len(reports) > 1:
        scores["solutions"] = dict(Counter(report.cuts.solution for report in reports))
        scores["seeds"] = [report.to_json() for report in reports]
    if curves:
        scores["lengths"] = {
            curve.name: {"words": curve.words, "accuracy": curve.accuracy, "train_seconds": curve.train_seconds}
            for curve in curves
        }
    with atomic_file(folder / SCORES_FILE) as temporary:
        write_json(temporary, scores)

"""`transduce evaluate`: scores of a model on a test set with confidence intervals, and comparison of two models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from transduce.cli.corpus_options import FILE_SETTINGS, file_options, file_settings, note_columns
from transduce.cli.options import (
    beam_size_option,
    device_option,
    flag,
    format_option,
    greedy_option,
    is_given,
    language_options,
    make_command,
    model_argument,
    option_group,
    search_method,
)
from transduce.cli.terminal import print_json
from transduce.config import Table, counted
from transduce.errors import SettingsError

_EXAMPLES = """
transduce evaluate runs/de-en --source test.de --target test.en
transduce evaluate runs/demo --path test.tsv --metric word_error_rate --metric phoneme_error_rate
transduce evaluate runs/de-en --path test.tmx
transduce evaluate runs/tagger --path test.conllu
transduce evaluate runs/new --against runs/old --source test.de --target test.en
"""
_METRICS = "bleu, chrf, exact_match, word_error_rate or phoneme_error_rate (repeatable; default: what fits the model)."

COLUMNS = {"text": "text", "second": "second_text", "label": "label"}
"""Settings of a file of examples by the option that sets their column."""
TRANSLATION_ONLY = (
    "source",
    "targets",
    "against",
    "beam_size",
    "greedy",
    "output",
    "target_language",
    "source_language",
    "lowercase",
    "image_folder",
    *FILE_SETTINGS,
)
"""Options that a text encoder does not have."""

_test = option_group("Test set options")
_column = option_group("Test set options of a text encoder")
_metric = option_group("Metric options")


def _with_file_options(function: Any) -> Any:
    for option in reversed(file_options("Test set options")):
        function = option(function)
    return function


@make_command(_EXAMPLES)
@model_argument
@_test("--source", metavar="FILE", help="Sources, one per line.")
@_test("--target", "targets", multiple=True, metavar="FILE", help="References, one per line (repeatable).")
@_test(
    "--path",
    metavar="FILE",
    help="Both in one TSV, CSV, JSONL, TMX, XLIFF or PO file; a repeated source has several references.",
)
@_with_file_options
@_test("--image-folder", metavar="FOLDER", help="Folder of the images of a captioner's test set (default: the file's).")
@_column("--text-column", metavar="N|NAME", help="Column of the text in --path, by name or number from 1.")
@_column("--second-column", metavar="N|NAME", help="Column of the second text.")
@_column("--label-column", metavar="N|NAME", help="Column of the label.")
@_metric("--metric", "metrics", multiple=True, metavar="NAME", help=_METRICS)
@_metric("--against", metavar="MODEL", help="Compare with this model by a paired bootstrap test.")
@_metric("--tokenize", default="13a", show_default=True, metavar="NAME", help="sacreBLEU tokenizer, or none.")
@_metric("--lowercase", is_flag=True, help="Compute BLEU and chrF on lowercased text.")
@_metric(
    "--samples",
    type=click.IntRange(1, 1_000_000),
    default=1000,
    show_default=True,
    metavar="N",
    help="Bootstrap samples.",
)
@greedy_option
@beam_size_option
@language_options
@device_option()
@option_group("Output options")("--output", metavar="FILE", help="Also write the translations to FILE.")
@format_option
def command(run: str, metrics: tuple[str, ...], tokenize: str, output_format: str, **options: Any) -> None:
    """Evaluate MODEL, a run or model folder, on a test set.

    A translation model is scored by perplexity, token accuracy and sacreBLEU metrics, with their signatures and 95 %
    bootstrap confidence intervals. A text encoder is scored on the labelled examples of --path. With --against, a
    paired test says whether the difference between two models is significant.
    """
    from transduce.inference.load import load
    from transduce.inference.text_encoder import TextEncoder
    from transduce.run import EvaluationOptions, evaluate
    from transduce.storage.filesystem import check_not_input
    from transduce.tasks.translation.evaluation import write_lines
    from transduce.text.corpus import CorpusFiles

    if options["output"]:
        check_not_input(options["output"], options["source"], options["path"], *options["targets"])
    model = load(run)
    is_encoder = isinstance(model, TextEncoder)
    _check_options(run, is_encoder, {**options, "tokenize": tokenize})
    search = {"beam_size": options["beam_size"], "method": search_method(options)}
    shared = ("lowercase", "samples", "target_language", "source_language", "image_folder", "device")
    found = evaluate(
        model,
        source=options["source"],
        references=options["targets"] or None,
        path=options["path"],
        against=options["against"],
        options=EvaluationOptions(
            metrics, tokenize, columns=_columns(options), name=run, **{name: options[name] for name in shared}
        ),
        **({} if is_encoder else search),
    )
    if options["path"] and not is_encoder:
        note_columns(CorpusFiles.from_table({"path": options["path"], **file_settings(options)}, "the command line"))
    if options["output"]:
        write_lines(Path(options["output"]), found.translations)
    if output_format == "json":
        print_json({"run": run, **found.to_json()})
        return
    for line in found.lines():
        click.echo(line)


def _check_options(run: str, is_encoder: bool, options: dict[str, Any]) -> None:
    """Reject options of the other task."""
    if not is_encoder:
        if any(options[f"{name}_column"] for name in COLUMNS):
            raise click.UsageError("--text-column, --second-column and --label-column are for text encoders")
        return
    given = [flag(name.removesuffix("s")) for name in TRANSLATION_ONLY if is_given(options[name])]
    given += ["--tokenize"] if options["tokenize"] != "13a" else []
    if given:
        raise SettingsError(f"{run}: is a text encoder; {given[0]} is for translation models, leave it out")
    if not options["path"]:
        raise SettingsError(f"{run}: is a text encoder; give a file of labelled examples with --path FILE")


def _columns(options: dict[str, Any]) -> Table:
    """Return the columns that were given: names, or numbers from 1."""
    given = {setting: options[f"{name}_column"] for name, setting in COLUMNS.items()}
    numbers = {setting: counted(value) for setting, value in given.items() if value}
    found = {setting: given[setting] if number is None else number for setting, number in numbers.items()}
    return {**found, **file_settings(options)}

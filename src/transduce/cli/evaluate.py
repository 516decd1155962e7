"""`transduce evaluate`: scores of a model on a test set with confidence intervals, and comparison of two models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

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

if TYPE_CHECKING:
    from transduce.inference.text_encoder import TextEncoder

_EXAMPLES = """
transduce evaluate runs/de-en --source test.de --target test.en
transduce evaluate runs/demo --path test.tsv --metric word_error_rate --metric phoneme_error_rate
transduce evaluate runs/tagger --path test.conllu
transduce evaluate runs/new --against runs/old --source test.de --target test.en
"""
_METRICS = "bleu, chrf, exact_match, word_error_rate or phoneme_error_rate (repeatable; default: the first three)."

COLUMNS = ("text", "second", "label")
BESIDE_SCORES = ("left_out", "unknown_labels", "intervals")
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
)
"""Options that a text encoder does not have."""

_test = option_group("Test set options")
_column = option_group("Test set options of a text encoder")
_metric = option_group("Metric options")


@make_command(_EXAMPLES)
@model_argument
@_test("--source", metavar="FILE", help="Sources, one per line.")
@_test("--target", "targets", multiple=True, metavar="FILE", help="References, one per line (repeatable).")
@_test("--path", metavar="FILE", help="Both in one TSV or JSONL file; equal sources share their references.")
@_column("--text-column", metavar="NAME", help="Column of the text in --path, by name or number.")
@_column("--second-column", metavar="NAME", help="Column of the second text.")
@_column("--label-column", metavar="NAME", help="Column of the label.")
@_metric("--metric", "metrics", multiple=True, metavar="NAME", help=_METRICS)
@_metric("--against", metavar="MODEL2", help="Compare with this model by a paired bootstrap test.")
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
    from transduce.evaluation.metrics import choose
    from transduce.inference.load import load, load_translator
    from transduce.inference.text_encoder import TextEncoder
    from transduce.inference.translator import Translator
    from transduce.nn.device import move
    from transduce.tasks.translation.evaluation import assess, compare_assessments, read_test_set, write_lines

    loaded = load(run)
    if isinstance(loaded, TextEncoder):
        move(loaded.model, options["device"])
        _evaluate_encoder(run, loaded, metrics, output_format, {**options, "tokenize": tokenize})
        return
    if any(options[f"{name}_column"] for name in COLUMNS):
        raise click.UsageError("--text-column, --second-column and --label-column are for text encoders")
    chosen = choose(metrics or ("bleu", "chrf", "exact_match"), tokenize, options["lowercase"])
    test = read_test_set(options["source"], options["targets"], options["path"])
    search = {"beam_size": options["beam_size"], "method": search_method(options)}
    names = [run, *([options["against"]] if options["against"] else [])]
    translators = [
        loaded if isinstance(loaded, Translator) else load_translator(run),
        *(load_translator(name) for name in names[1:]),
    ]
    for translator in translators:
        move(translator.model, options["device"])
        translator.languages.select(options["target_language"], options["source_language"])
    first, *others = [assess(translator, test, chosen, options["samples"], search) for translator in translators]
    compared = {
        name: compare_assessments(first, other, test, chosen, options["samples"])
        for name, other in zip(names[1:], others, strict=True)
    }
    if options["output"]:
        write_lines(Path(options["output"]), first.translations)
    if output_format == "json":
        comparisons = {
            name: {metric: found.to_json() for metric, found in several.items()} for name, several in compared.items()
        }
        print_json({"run": run, **first.to_json(), "against": comparisons})
        return
    click.echo(f"{run}: {len(test.sources):,} sentences")
    for line in first.lines(chosen):
        click.echo(line)
    for name, several in compared.items():
        for metric, found in several.items():
            show = chosen[metric].show
            verdict = {
                "first": f"{run} is better",
                "second": f"{name} is better",
                "neither": "no significant difference",
            }
            click.echo(
                f"{metric}: {show(found.first)} vs {show(found.second)} of {name}, difference {show(found.delta)} "
                f"({show(found.low)} to {show(found.high)}), p = {found.p_value:.3f}: {verdict[found.better]}"
            )


def _evaluate_encoder(
    run: str, encoder: TextEncoder, metrics: tuple[str, ...], output_format: str, options: dict[str, Any]
) -> None:
    """Score the predictions of a text encoder for the examples of a file."""
    from transduce.config import counted
    from transduce.errors import SettingsError, brief, suggestion
    from transduce.evaluation.metrics import show_score
    from transduce.tasks.text_encoding.evaluation import assess_reader

    given = [flag(name.removesuffix("s")) for name in TRANSLATION_ONLY if is_given(options[name])]
    given += ["--tokenize"] if options["tokenize"] != "13a" else []
    if given:
        raise SettingsError(f"{run}: is a text encoder; {given[0]} is for translation models, leave it out")
    if not options["path"]:
        raise SettingsError(f"{run}: is a text encoder; give a file of labelled examples with --path FILE")
    columns = {name: options[f"{name}_column"] for name in COLUMNS}
    numbers = {name: counted(value) for name, value in columns.items() if value}
    wanted = {name: columns[name] if number is None else number for name, number in numbers.items()}
    found = assess_reader(encoder, options["path"], wanted, options["samples"])
    scores = {name: value for name, value in found.items() if name not in BESIDE_SCORES}
    for name in metrics:
        if name not in scores:
            raise SettingsError(f"{run}: the model has no metric '{name}'{suggestion(name, scores)}")
    if output_format == "json":
        print_json({"run": run, **found})
        return
    for reason, count in found["left_out"].items():
        click.echo(f"  filtered {count:,}: {reason}")
    if (unknown := found.get("unknown_labels")) and unknown["count"]:
        what = "words" if encoder.task == "tag" else "texts"
        named = ", ".join(map(brief, unknown["examples"]))
        click.echo(f"  {unknown['count']:,} {what} have labels unknown to the model and count as wrong: {named}")
    for name, value in scores.items():
        if metrics and name not in metrics:
            continue
        if value is None:  # an infinite perplexity, which JSON has no number for
            value = float("inf")
        plain = name in ("loss", "perplexity") or isinstance(value, int)
        line = f"{name} {value:,.4g}" if plain else f"{name} {show_score(name, value)}"
        if name in found["intervals"]:
            low, high = (show_score(name, found["intervals"][name][end]) for end in ("low", "high"))
            line += f"  (95 % confidence interval {low} to {high})"
        click.echo(line)

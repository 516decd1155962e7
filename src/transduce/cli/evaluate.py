"""`transduce evaluate`: how good a model is on a test set, how sure that is, and which of two is better."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from transduce.cli.options import language_options, method_of

if TYPE_CHECKING:
    from transduce.inference.text_encoder import TextEncoder

_EXAMPLES = """
\b
Examples:
  transduce evaluate runs/de-en --source test.de --target test.en
  transduce evaluate runs/demo --path test.tsv --metric word_error_rate --metric phoneme_error_rate
  transduce evaluate runs/tagger --path test.conllu
  transduce evaluate runs/new --against runs/old --source test.de --target test.en
"""
_METRICS = "bleu, chrf, exact_match, word_error_rate or phoneme_error_rate; again for more. Default: the first three."

COLUMNS = ("text", "second", "label")
BESIDE_SCORES = ("left_out", "unknown_labels", "intervals")
NOT_OF_READERS = ("source", "targets", "against", "beam", "greedy", "output", "to", "of", "bleu")


@click.command(epilog=_EXAMPLES)
@click.argument("run")
@language_options
@click.option("--source", metavar="FILE", help="Sources, line by line (.gz too).")
@click.option("--target", "targets", multiple=True, metavar="FILE", help="References; again for more of them.")
@click.option("--path", metavar="FILE", help="TSV or JSONL pairs; lines with one source are all its references.")
@click.option("--against", metavar="RUN2", help="Another run or model folder, compared by a paired test.")
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help=_METRICS)
@click.option("--tokenize", default="13a", metavar="NAME", help="BLEU's tokenizer; none for tokenised text.")
@click.option("--lowercase", is_flag=True, help="BLEU and chrF on lowercased text.")
@click.option(
    "--samples",
    type=click.IntRange(1, 1_000_000),
    default=1000,
    metavar="N",
    help="Bootstrap samples.",
    show_default=True,
)
@click.option("--beam", type=int, metavar="N", help="Openings that a beam search keeps.")
@click.option("--greedy", is_flag=True, help="Take the best token each time.")
@click.option("--output", metavar="FILE", help="Write the translations there too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--text-column", metavar="NAME", help="For a reader: the text's column in --path, by name or number.")
@click.option("--second-column", metavar="NAME", help="For a reader: a second text's column.")
@click.option("--label-column", metavar="NAME", help="For a reader: the label's column.")
def command(run: str, metrics: tuple[str, ...], tokenize: str, lowercase: bool, as_json: bool, **options: Any) -> None:
    """Translate a test set with the model in RUN and score it; of a reader, score what it says of a file's examples.

    Prints perplexity and token accuracy, each score with sacreBLEU's signature (or the rule of an error rate) and its
    95 % bootstrap interval; with --against also whether the difference between two runs is more than chance.
    """
    from transduce.evaluation.metrics import choose
    from transduce.inference.load import load as load_any
    from transduce.inference.text_encoder import TextEncoder
    from transduce.inference.translator import Translator, load
    from transduce.tasks.translation.evaluation import assess, compare_assessments, read_test_set, write_lines

    loaded = load_any(run)
    if isinstance(loaded, TextEncoder):
        _evaluate_reader(run, loaded, metrics, as_json, {**options, "bleu": lowercase or tokenize != "13a"})
        return
    if any(options[f"{name}_column"] for name in COLUMNS):
        raise click.UsageError("--text-column, --second-column and --label-column are for readers; leave them out")
    chosen = choose(metrics or ("bleu", "chrf", "exact_match"), tokenize, lowercase)
    test = read_test_set(options["source"], options["targets"], options["path"])
    wishes = {"beam": options["beam"], "method": method_of({**options, "sample": False})}
    names = [run, *([options["against"]] if options["against"] else [])]
    translators = [loaded if isinstance(loaded, Translator) else load(run), *(load(name) for name in names[1:])]
    for translator in translators:
        translator.languages.ask_for(options["to"], options["of"])
    first, *others = [assess(translator, test, chosen, options["samples"], wishes) for translator in translators]
    compared = {
        name: compare_assessments(first, other, test, chosen, options["samples"])
        for name, other in zip(names[1:], others, strict=True)
    }
    if options["output"]:
        write_lines(Path(options["output"]), first.translations)
    if as_json:
        comparisons = {
            name: {metric: found.to_json() for metric, found in several.items()} for name, several in compared.items()
        }
        click.echo(json.dumps({"run": run, **first.to_json(), "against": comparisons}, ensure_ascii=False))
        return
    click.echo(f"{run}: {len(test.sources):,} sentences")
    for line in first.lines(chosen):
        click.echo(line)
    for name, several in compared.items():
        for metric, found in several.items():
            show = chosen[metric].show
            verdict = {"first": f"{run} is better", "second": f"{name} is better", "neither": "no clear difference"}
            click.echo(
                f"{metric}: {show(found.first)} against {show(found.second)} of {name}, difference {show(found.delta)} "
                f"({show(found.low)} to {show(found.high)}), p = {found.p_value:.3f}: {verdict[found.better]}"
            )


def _evaluate_reader(run: str, reader: TextEncoder, metrics: tuple[str, ...], as_json: bool, options: Any) -> None:
    """Score what a reader says of the examples of a file."""
    from transduce.config import counted
    from transduce.errors import SettingsError, brief, suggestion
    from transduce.evaluation.metrics import show_score
    from transduce.tasks.text_encoding.evaluation import assess_reader

    given = [name for name in NOT_OF_READERS if options[name]]
    if given or not options["path"]:
        raise SettingsError(f"{run}: is a reader, which is evaluated on a file of examples; give --path FILE alone")
    columns = {name: options[f"{name}_column"] for name in COLUMNS}
    numbers = {name: counted(value) for name, value in columns.items() if value}
    wanted = {name: columns[name] if number is None else number for name, number in numbers.items()}
    found = assess_reader(reader, options["path"], wanted, options["samples"])
    scores = {name: value for name, value in found.items() if name not in BESIDE_SCORES}
    for name in metrics:
        if name not in scores:
            raise SettingsError(f"this reader has no metric '{name}'{suggestion(name, scores)}")
    if as_json:
        click.echo(json.dumps({"run": run, **found}, ensure_ascii=False))
        return
    for reason, count in found["left_out"].items():
        click.echo(f"  left out {count:,}: {reason}")
    if (unknown := found.get("unknown_labels")) and unknown["count"]:
        what = "words" if reader.task == "tag" else "texts"
        named = ", ".join(map(brief, unknown["examples"]))
        note = f"have labels that the model has never seen, as {named}: all count as wrong"
        click.echo(f"  {unknown['count']:,} {what} {note}")
    for name, value in scores.items():
        if metrics and name not in metrics:
            continue
        if value is None:  # an infinite perplexity, which JSON has no number for
            value = float("inf")
        plain = name in ("loss", "perplexity") or isinstance(value, int)
        line = f"{name} {value:,.4g}" if plain else f"{name} {show_score(name, value)}"
        if name in found["intervals"]:
            low, high = (show_score(name, found["intervals"][name][end]) for end in ("low", "high"))
            line += f"  (95 % interval {low} to {high})"
        click.echo(line)

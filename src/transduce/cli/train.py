"""`transduce train`: a recipe, or two files of text, or one for a language model, into a run folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from transduce.cli.corpus import PreparationProgress, corpus_options, corpus_tables
from transduce.config import Table, counted
from transduce.errors import SettingsError

if TYPE_CHECKING:
    from transduce.data.prepared import Prepared

_EXAMPLES = """
\b
Examples:
  transduce train --source train.de --target train.en --output runs/de-en
  transduce train --recipe recipes/reverse.toml --output runs/reverse
  transduce train --recipe recipes/reverse.toml --set model.num_layers=2 --output runs/shallow
  transduce train --text corpus.txt --output runs/author
  transduce train --text corpus.txt.gz --document file --preset gpt_mini --output runs/mini
  transduce train --resume runs/de-en
  transduce train --resume runs/de-en --updates 50000
  transduce train --finish runs/de-en
  transduce train --from runs/de-en --source new.de --target new.en --extra-validation runs/de-en --output runs/new
"""


@click.command(epilog=_EXAMPLES)
@corpus_options
@click.option("--recipe", metavar="FILE", help="TOML file with the tables data, tokenizer, model, training, search.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any setting, as model.num_layers=4.")
@click.option("--from", "start", metavar="FOLDER", help="Start from a run or model folder instead of from chance.")
@click.option("--extend-vocabulary", type=int, metavar="N", help="With --from: add up to N pieces for the new text.")
@click.option("--freeze", multiple=True, metavar="PATTERN", help="Weights to hold still, as encoder.*; again for more.")
@click.option("--preset", metavar="NAME", help="A model by name: small, paper_base, gpt_mini, llama_mini, t5_mini, …")
@click.option("--tokens", metavar="N|auto", help="Tokens of a batch; auto finds what suits the corpus and the memory.")
@click.option("--updates", type=click.IntRange(min=1), metavar="N", help="How many; with --resume: more than before.")
@click.option("--prepared", metavar="FOLDER", help="What `transduce prepare` made of these corpora.")
@click.option("--output", metavar="RUN", help="Run folder to make.")
@click.option("--resume", metavar="RUN", help="Go on with a run that was stopped.")
@click.option("--finish", metavar="RUN", help="Make the model of a run that was stopped, from its checkpoints so far.")
@click.option(
    "--verify-resume", is_flag=True, help="Prove on this recipe that a killed and resumed run is the same run."
)
@click.option("--dry-run", is_flag=True, help="Print the filled-in recipe and stop.")
def command(output: str | None, resume: str | None, finish: str | None, prepared: str | None, **options: Any) -> None:
    """Train a model and keep it, with its tokenizers, its recipe and its journal, in one run folder.

    Without a recipe the settings are chosen from the corpus, and what was chosen is said with its reasons. Ctrl-C
    saves before it stops; `--resume` then goes on to the same result as if the run had never been stopped (and, with
    `--updates`, beyond its end), and `--finish` makes a model of what has been learnt by then.
    """
    from transduce.recipe import read_recipe, resume_recipe
    from transduce.run import train
    from transduce.training.distributed.ranks import launched, leads

    reasons: list[str] = []
    begun = resume or finish
    if begun is not None:
        given = (output, prepared, options["recipe"], resume and finish)
        updates = options["updates"] if resume else None
        others = options if updates is None else {**options, "updates": None}
        if any(value is not None for value in given) or _assignments(others) or corpus_tables(options):
            alone = "--resume alone, or with --updates" if resume else "--finish alone"
            raise SettingsError(f"a resumed run keeps its own recipe; give {alone}")
        recipe = resume_recipe(Path(begun))
        recipe = recipe if updates is None else recipe.but_training(updates=updates)
    else:
        path = Path(options["recipe"]) if options["recipe"] else None
        base, opened = _base(options, prepared)
        recipe, reasons = read_recipe(path, _assignments(options), base, opened)
    for reason in reasons if leads() else ():
        click.echo(f"chosen: {reason}", err=True)
    if options["dry_run"]:
        click.echo(recipe.to_toml(), nl=False)
        return
    folder = begun or output
    if not folder:
        raise SettingsError("say where the run goes: --output runs/NAME")
    if options["verify_resume"]:
        from transduce.verify_resume import verify_resume

        if launched():
            raise SettingsError("--verify-resume kills and resumes one process; start it without torchrun")
        for line in verify_resume(recipe, Path(folder), None if prepared is None else Path(prepared)):
            click.echo(line)
        return
    from transduce.cli.display import reporting

    with PreparationProgress() as progress, reporting() as reporter:
        train(
            recipe,
            folder,
            resume=begun is not None,
            finish=finish is not None,
            prepared=prepared,
            reporter=reporter,
            progress=progress.show,
        )
    if leads():
        click.echo(folder)


def _assignments(options: dict[str, Any]) -> list[str]:
    """Return `--set` and what has an option of its own, in the same form."""
    tokens, preset = options["tokens"], options["preset"]
    if tokens not in (None, "auto") and counted(tokens) is None:
        raise SettingsError(f"--tokens is a number or auto, not '{tokens}'")
    if options["extend_vocabulary"] is not None and options["start"] is None and options["recipe"] is None:
        raise SettingsError("--extend-vocabulary adds to the tokens of a model; name it with --from")
    given = {
        "model.preset": preset,
        "training.batch_tokens": int(tokens) if tokens not in (None, "auto") else tokens,
        "training.updates": options["updates"],
        "training.initial_checkpoint": options["start"],
        "training.freeze": list(options["freeze"]) or None,
        "tokenizer.extend": options["extend_vocabulary"],
    }
    own = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in given.items() if value is not None]
    return [*options["assignments"], *own]


def _base(options: dict[str, Any], prepared: str | None) -> tuple[Table, Prepared | None]:
    """Return the tables that the command line names, which a recipe may complete, and the prepared corpus if named."""
    from transduce.tasks.catalog import load_prepared

    corpora = corpus_tables(options)
    if corpora and prepared is not None:
        raise SettingsError("a prepared corpus needs no files; leave out --source, --target, --path and --text")
    if not corpora and prepared is None and not options["recipe"]:
        raise SettingsError(
            "name the pairs to learn from: --source and --target, or --path, or --recipe, or --prepared; or plain "
            "text: --text"
        )
    opened = None if prepared is None else load_prepared(Path(prepared))
    return ({"data": corpora} if corpora else {}), opened

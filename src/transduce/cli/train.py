"""`transduce train`: train a model by a recipe, or from a corpus alone, into a run folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from transduce.cli.corpus_options import FORMATS, corpus_languages, corpus_options, corpus_tables
from transduce.cli.options import check_exclusive, make_command, option_group
from transduce.cli.terminal import note
from transduce.config import Table, counted
from transduce.errors import SettingsError

if TYPE_CHECKING:
    from transduce.data.prepared import Prepared
    from transduce.recipe import Recipe

_EXAMPLES = """
transduce train --source train.de --target train.en --output runs/de-en
transduce train --recipe recipes/reverse.toml --output runs/reverse
transduce train --recipe recipes/reverse.toml --set model.num_layers=2 --output runs/shallow
transduce train --path memory.tmx --source-language en --target-language de --output runs/en-de
transduce train --path words.csv --source-column lemma --source-column features --target-column form --output runs/forms
transduce train --text corpus.txt --preset gpt_mini --output runs/author
transduce train --from runs/de-en --path new.tsv --extra-validation runs/de-en --output runs/new
transduce train --from Helsinki-NLP/opus-mt-en-de --source new.en --target new.de --output runs/en-de
transduce train --source train.de --target train.en --output runs/de-en --log tensorboard
transduce train --resume runs/de-en --updates 50000
transduce train --finish runs/de-en
"""

_SETTINGS = {
    "preset": "model.preset",
    "updates": "training.updates",
    "epochs": "training.epochs",
    "time": "training.time_budget",
    "batch_tokens": "training.batch_tokens",
    "learning_rate": "training.learning_rate",
    "seed": "training.seed",
    "device": "training.device",
    "precision": "training.precision",
    "threads": "training.threads",
    "init_from": "training.initial_checkpoint",
    "freeze": "training.freeze",
    "extend_vocabulary": "tokenizer.extend",
}
"""Options that set one setting of the recipe."""

_run = option_group("Run options")
_model = option_group("Model options")
_training = option_group("Training options (default: chosen from the corpus, or the recipe's)")
_tuning = option_group("Fine-tuning options")


@make_command(_EXAMPLES)
@_run("--output", metavar="RUN", help="Run folder to create.")
@_run("--recipe", metavar="FILE", help="TOML file with the tables data, tokenizer, model, training and search.")
@_run("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any setting: model.num_layers=4 (repeatable).")
@_run("--resume", metavar="RUN", help="Resume a stopped run; with --updates, extend a finished one.")
@_run(
    "--finish",
    metavar="RUN",
    help="Save the model of a stopped run, from its checkpoints so far, without further training.",
)
@_run(
    "--log",
    "logs",
    multiple=True,
    type=click.Choice(["tensorboard", "wandb"]),
    help="Also log to TensorBoard (RUN/tensorboard) or Weights & Biases (repeatable).",
)
@_run("--dry-run", is_flag=True, help="Print the complete recipe and exit.")
@_run("--verify-resume", is_flag=True, help="Check that a killed and resumed run gives the same weights.")
@corpus_options
@option_group("Corpus options")(
    "--format", "short_format", type=click.Choice(FORMATS), metavar="NAME", help="The same as --path-format."
)
@option_group("Corpus options")("--prepared", metavar="FOLDER", help="Corpus prepared by `transduce prepare`.")
@_model("--preset", metavar="NAME", help="Model preset: small, paper_base, gpt_mini, llama_mini, t5_mini, …")
@_training("--updates", type=click.IntRange(min=1), metavar="N", help="Number of updates.")
@_training("--epochs", type=float, metavar="X", help="Number of epochs, in place of --updates.")
@_training("--time", metavar="TIME", help="Time to train, such as 90s, 20m or 2h, in place of --updates.")
@_training("--batch-tokens", metavar="N|auto", help="Tokens per batch; auto chooses by corpus size and memory.")
@_training("--learning-rate", type=float, metavar="X", help="Peak learning rate; factor of the noam schedule.")
@_training("--seed", type=int, metavar="N", help="Random seed of initialisation, data order and dropout.")
@_training("--device", type=click.Choice(["auto", "cpu", "cuda", "mps"]), help="Device; auto is the CPU.")
@_training("--precision", type=click.Choice(["auto", "float32", "bfloat16"]), help="Precision of matrix products.")
@_training("--threads", type=int, metavar="N", help="CPU threads; the result does not depend on their number.")
@_tuning(
    "--from",
    "--init-from",
    "init_from",
    metavar="MODEL",
    help="Fine-tune a run or model folder, or a model of the Hugging Face hub.",
)
@_tuning("--revision", metavar="NAME", help="With --from: branch, tag or commit of a model of the hub.")
@_tuning(
    "--extend-vocabulary", type=int, metavar="N", help="Add up to N tokens to the model's vocabulary for the new text."
)
@_tuning(
    "--freeze",
    multiple=True,
    metavar="PATTERN",
    help="Freeze parameters whose names match, such as 'encoder.*' (repeatable).",
)
def command(output: str | None, resume: str | None, finish: str | None, prepared: str | None, **options: Any) -> None:
    """Train a model and save it, with its tokenizers, its recipe and its journal, in a run folder.

    Without a recipe, settings are chosen from the corpus and printed with their reasons. Ctrl-C saves a checkpoint and
    stops. A resumed run ends with the same weights as one that was never stopped.
    """
    from transduce.recipe import read_recipe
    from transduce.run import train
    from transduce.training.distributed import launched, leads
    from transduce.training.run_folder import check_free

    if options["logs"] and (options["dry_run"] or options["verify_resume"]):
        raise click.UsageError("--log is for a run; leave out --dry-run and --verify-resume")
    check_exclusive(options, "updates", "epochs", "time")
    check_exclusive(options, "epochs", "time")
    options["path_format"] = options["path_format"] or options["short_format"]
    options["init_from"] = _initial_model(options["init_from"], options.pop("revision"))
    reasons: list[str] = []
    begun = resume or finish
    if begun is not None:
        given = (output, prepared, options["recipe"], resume and finish)
        recipe = _resumed(begun, given, bool(resume), options)
    else:
        if output and not options["dry_run"] and not launched():  # before the corpus is read, which takes its time
            check_free(Path(output))
        path = Path(options["recipe"]) if options["recipe"] else None
        base, opened = _base(options, prepared)
        recipe, reasons = read_recipe(path, _assignments(options), base, opened)
    if leads():
        _announce(recipe, reasons)
    if options["dry_run"]:
        click.echo(recipe.to_toml(), nl=False)
        return
    folder = begun or output
    if not folder:
        raise SettingsError("no run folder is given; use --output runs/NAME")
    if options["verify_resume"]:
        from transduce.verify_resume import verify_resume

        if launched():
            raise SettingsError("--verify-resume works with a single process; start it without torchrun")
        for line in verify_resume(recipe, Path(folder), None if prepared is None else Path(prepared)):
            click.echo(line)
        return
    from transduce.cli.progress import reporting
    from transduce.training.tracking import open_trackers

    with reporting() as reporter, open_trackers(options["logs"], Path(folder), recipe.to_tables()) as trackers:
        train(
            recipe,
            folder,
            resume=begun is not None,
            finish=finish is not None,
            prepared=prepared,
            callbacks=trackers,
            reporter=reporter,
        )
    if leads():
        click.echo(folder)


def _initial_model(name: str | None, revision: str | None) -> str | None:
    """Return the folder of the model to start from, which is downloaded and converted if it is one of the hub."""
    from transduce.interop.pretrained import model_folder
    from transduce.storage.hub import is_hub_name
    from transduce.training.distributed import launched

    if name is None:
        if revision is not None:
            raise SettingsError("--revision needs a model of the hub; name it with --from")
        return None
    if launched() and is_hub_name(name):
        raise SettingsError(f"{name}: several processes would download it; use `transduce import {name}` first")
    folder = model_folder(name, revision)
    if is_hub_name(name):
        note(f"{name}: converted and kept in {folder}")
    return name if folder is None else str(folder)


def _resumed(begun: str, given: tuple[str | None, ...], resumes: bool, options: dict[str, Any]) -> Recipe:
    """Return the recipe of a run that was begun, with more updates if they are given; reject all other settings."""
    from transduce.recipe import resume_recipe

    updates = options["updates"] if resumes else None
    others = options if updates is None else {**options, "updates": None}
    if any(value is not None for value in given) or _assignments(others) or _data(options):
        alone = "--resume with no other option than --updates" if resumes else "--finish with no other option"
        raise SettingsError(f"a resumed run keeps its own recipe; use {alone}")
    recipe = resume_recipe(Path(begun))
    return recipe if updates is None else recipe.but_training(updates=updates)


def _announce(recipe: Recipe, reasons: list[str]) -> None:
    """Print what was chosen from the corpus, and what the chosen model cannot do."""
    from transduce.interop.export_model import choose_architecture
    from transduce.text.corpus import CorpusFiles, further_columns

    tables = [files for files in recipe.data.corpora if isinstance(files, CorpusFiles)] if reasons else []
    for reason in [*filter(None, map(further_columns, tables)), *reasons]:
        note(reason, "chosen: ")
    if reasons and recipe.training.initial_checkpoint is None:
        try:
            choose_architecture(recipe.model)
        except SettingsError as error:
            note(f"this model exports to CTranslate2 and ONNX only: {error}", "chosen: ")


def _assignments(options: dict[str, Any]) -> list[str]:
    """Return `--set` and the options that set one setting, in the same form."""
    tokens = options["batch_tokens"]
    if tokens not in (None, "auto") and counted(tokens) is None:
        raise SettingsError(f"--batch-tokens must be a number or auto, not '{tokens}'")
    if options["extend_vocabulary"] is not None and options["init_from"] is None and options["recipe"] is None:
        raise SettingsError("--extend-vocabulary extends the vocabulary of a model; name it with --from")
    values = {**options, "batch_tokens": int(tokens) if tokens not in (None, "auto") else tokens}
    values["freeze"] = list(options["freeze"]) or None
    own = [
        f"{setting}={json.dumps(values[name], ensure_ascii=False)}"
        for name, setting in _SETTINGS.items()
        if values[name] is not None
    ]
    return [*options["assignments"], *own]


def _data(options: dict[str, Any]) -> Table:
    """Return the table `[data]` that the command line names."""
    return {**corpus_tables(options), **corpus_languages(options)}


def _base(options: dict[str, Any], prepared: str | None) -> tuple[Table, Prepared | None]:
    """Return the tables that the command line names, which a recipe may complete, and the prepared corpus if named."""
    from transduce.tasks.catalog import load_prepared

    corpora = _data(options)
    if corpora and prepared is not None:
        raise SettingsError("--prepared already has the corpus; remove --source, --target, --path and --text")
    if not corpora and prepared is None and not options["recipe"]:
        raise SettingsError(
            "no training corpus is given; use --source and --target, --path, --text, --prepared or --recipe"
        )
    opened = None if prepared is None else load_prepared(Path(prepared))
    return ({"data": corpora} if corpora else {}), opened

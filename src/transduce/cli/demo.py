"""`transduce demo`: train a small Transformer and show what it learned."""

from __future__ import annotations

from pathlib import Path

import click

from transduce.cli.options import argument, make_command, option_group

_EXAMPLES = """
transduce demo
transduce demo --output runs/pronunciation
echo "thorough" | transduce translate runs/demo
transduce demo pronoun
transduce demo pronoun --seeds 10 --compare
"""

_output = option_group("Output options")
_pronoun = option_group("Options of the pronoun demo")


@make_command(_EXAMPLES)
@argument(
    "name",
    "pronunciation (default) or pronoun.",
    type=click.Choice(["pronunciation", "pronoun"]),
    default="pronunciation",
    metavar="[NAME]",
)
@_output("--output", metavar="RUN", help="Run folder (default: runs/demo, or runs/pronoun).")
@_pronoun("--language", type=click.Choice(["de", "fr"]), help="Target language (default: de).")
@_pronoun("--seed", type=click.IntRange(0, 2**31 - 1), metavar="N", help="Random seed (default: 1).")
@_pronoun(
    "--seeds",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Repeat with seeds 1 to N and count the findings (default: only --seed).",
)
@_pronoun(
    "--compare", is_flag=True, help="Also train RNNs with and without attention, and compare accuracy by distance."
)
@_pronoun("--quick", is_flag=True, help="Smoke test: tiny sizes, a few seconds, nothing is learned.")
def command(
    name: str,
    output: str | None,
    language: str | None,
    seed: int | None,
    seeds: int | None,
    compare: bool,
    quick: bool,
) -> None:
    """Train a small Transformer, in about three minutes on two cores, and show what it learned.

    pronunciation: pronounces English words. Trains on 127,000 entries of the CMU pronouncing dictionary, evaluates the
    model on 5,000 words that it has not seen, and draws its attention.

    pronoun: translates "The animal didn't cross the street because it was too tired" (or "too wide"), where the gender
    of "it" shows which noun the model chose. Generates the pairs, tests unseen combinations, draws attention from "it",
    and finds by ablation and patching which heads decide. A finished run is not trained again.
    """
    from transduce.cli.progress import reporting

    given = {"--language": language, "--seed": seed, "--seeds": seeds, "--compare": compare, "--quick": quick}
    if name == "pronunciation":
        for flag, value in given.items():
            if value not in (None, False):
                raise click.UsageError(f"{flag} needs the pronoun demo: transduce demo pronoun {flag}")
        from transduce.experiments.demo import run_demo

        with reporting() as reporter:
            for line in run_demo(Path(output or "runs/demo"), reporter):
                click.echo(line)
        return
    from transduce.experiments.pronoun import PronounOptions, run_pronoun
    from transduce.experiments.pronoun_training import QUICK, STANDARD

    sizes = QUICK if quick else STANDARD
    folder = Path(output or "runs/pronoun")
    options = PronounOptions(
        folder, "fr" if language == "fr" else "de", 1 if seed is None else seed, seeds or 1, compare, sizes
    )
    with reporting() as reporter:
        for line in run_pronoun(options, reporter):
            click.echo(line)

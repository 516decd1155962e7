"""`transduce cost`: what a model costs before it is trained."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from transduce.inspection.cost import Cost

Tokens = click.IntRange(1, 100_000_000)
Length = click.IntRange(1, 20_000)


@click.command("cost")
@click.option("--preset", help="A model by name: paper_base, paper_big, small, tiny, …")
@click.option("--recipe", type=click.Path(path_type=Path), help="The model of a recipe's [model] table.")
@click.option("--vocab-size", type=Tokens, required=True, help="Tokens of the vocabulary.")
@click.option("--source-vocab-size", type=Tokens, help="Tokens of the source's vocabulary, where it has its own.")
@click.option("--set", "changes", multiple=True, metavar="model.KEY=VALUE", help="Change a setting of the model.")
@click.option("--source-length", type=Length, default=32, show_default=True, help="Tokens of a source sentence.")
@click.option("--target-length", type=Length, default=32, show_default=True, help="Tokens of a target sentence.")
@click.option(
    "--tokens",
    type=click.IntRange(1, 10**9),
    default=4096,
    show_default=True,
    help="Target tokens of a training batch.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(preset: str | None, recipe: Path | None, changes: tuple[str, ...], as_json: bool, **numbers: Any) -> None:
    """Parameters, FLOPs and memory of a model before it is trained, and the paper's Table 1 for its sizes.

    \b
    transduce cost --preset paper_base --vocab-size 37000
    transduce cost --preset small --vocab-size 8000 --set model.num_layers=2 --json
    """
    from transduce.inspection.cost import Workload, estimate
    from transduce.models.catalog import read_model_table
    from transduce.models.interface import VocabularySizes

    target = numbers.pop("vocab_size")
    sizes = VocabularySizes(numbers.pop("source_vocab_size") or target, target)
    config = read_model_table(*model_table(preset, recipe, changes))
    cost = estimate(config, sizes, Workload(**numbers))
    click.echo(json.dumps(cost.to_json(), ensure_ascii=False) if as_json else report(cost))


def model_table(preset: str | None, recipe: Path | None, changes: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Return the [model] table that the options describe, and what to call it in a refusal."""
    from transduce.config import override, read_toml
    from transduce.errors import SettingsError

    if (preset is None) == (recipe is None):
        raise click.UsageError("say which model: give either --preset or --recipe")
    table: dict[str, Any] = {"model": {"preset": preset}} if recipe is None else read_toml(recipe)
    for change in changes:
        if not change.strip().startswith("model."):
            raise SettingsError(f"--set {change}: cost looks at the model alone; write model.setting=value")
        table = override(table, change)
    model = table.get("model", {})
    if not isinstance(model, dict):
        raise SettingsError(f"{recipe}: 'model' must be a table, written as [model]")
    return model, f"{recipe or f'preset {preset}'}: [model]"


def report(cost: Cost) -> str:
    """Return the bill as tables of plain text."""
    workload = cost.workload
    train, decode = cost.memory_bytes["train"], cost.memory_bytes["decode"]
    flops = cost.flops_per_token
    n, d = workload.source_length, cost.table_1[0].operations // workload.source_length**2
    return "\n\n".join(
        [
            section("parameters", {**cost.parts, "total": cost.parameters}, "{:,}".format),
            section(
                f"operations per token (source {n:,}, target {workload.target_length:,} tokens)",
                {
                    "train, per target token": flops["train"],
                    "decode, per target token": flops["decode"],
                    "encode, per source token": flops["encode"],
                },
                lambda value: scaled(value, 1000, ["", " k", " M", " G", " T", " P", " E"], "FLOP"),
            ),
            section(f"memory to train on batches of {workload.tokens:,} target tokens", train, in_bytes),
            section(f"memory to decode, one row at {workload.target_length:,} tokens", decode, in_bytes),
            f"one layer of each kind (Table 1), n = {n:,}, d = {d:,}, k = {workload.kernel}, "
            f"r = {min(workload.window, n):,}\n" + aligned(_layer_rows(cost)),
        ]
    )


def section(title: str, rows: Mapping[str, int], write: Any) -> str:
    """Return a title and two columns: what, and how much."""
    return f"{title}\n" + aligned([[name.replace("_", " "), write(value)] for name, value in rows.items()])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join(f"  {line}" for line in lines)


def in_bytes(value: int) -> str:
    """Return 249 MiB for 260,579,328."""
    return scaled(value, 1024, [" ", " Ki", " Mi", " Gi", " Ti", " Pi", " Ei"], "B")


def scaled(value: int, base: int, prefixes: Sequence[str], unit: str) -> str:
    """Return a number with at least three digits that count, and its unit."""
    amount, power = float(value), 0
    while amount >= base and power + 1 < len(prefixes):
        amount, power = amount / base, power + 1
    digits = 0 if power == 0 else max(0, 3 - len(str(int(amount))))
    return f"{amount:.{digits}f}{prefixes[power]}{unit}"


def _layer_rows(cost: Cost) -> list[list[str]]:
    rows = [["layer", "complexity", "operations", "sequential", "longest path"]]
    for layer in cost.table_1:
        rows.append(
            [
                layer.layer,
                layer.complexity,
                f"{layer.operations:,}",
                _both(layer.sequential, layer.sequential_operations),
                _both(layer.path, layer.path_length),
            ]
        )
    return rows


def _both(formula: str, number: int) -> str:
    return formula if formula == str(number) else f"{formula} = {number:,}"

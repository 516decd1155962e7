"""`transduce cost`: parameters, FLOPs and memory of a model before it is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from transduce.cli.options import format_option, make_command, option_group
from transduce.cli.terminal import print_json

if TYPE_CHECKING:
    from transduce.inspection.cost import Cost

_EXAMPLES = """
transduce cost --preset paper_base --vocab-size 37000
transduce cost --preset small --vocab-size 8000 --set model.num_layers=2 --format json
transduce cost --recipe recipes/multi30k.toml --vocab-size 8000 --batch-tokens 8192
"""

_model = option_group("Model options")
_workload = option_group("Workload options")
_Size = click.IntRange(1, 100_000_000)
_Length = click.IntRange(1, 20_000)


@make_command(_EXAMPLES)
@_model("--preset", metavar="NAME", help="Model preset: paper_base, paper_big, small, tiny, …")
@_model(
    "--recipe",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Recipe whose [model] table is used instead of a preset.",
)
@_model("--vocab-size", type=_Size, required=True, metavar="N", help="Vocabulary size.")
@_model("--source-vocab-size", type=_Size, metavar="N", help="Source vocabulary size, if it differs.")
@_model(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Setting of the model: model.num_layers=2 (repeatable).",
)
@_workload("--source-length", type=_Length, default=32, show_default=True, metavar="N", help="Tokens per source.")
@_workload("--target-length", type=_Length, default=32, show_default=True, metavar="N", help="Tokens per target.")
@_workload(
    "--batch-tokens",
    "tokens",
    type=click.IntRange(1, 10**9),
    default=4096,
    show_default=True,
    metavar="N",
    help="Target tokens per training batch.",
)
@format_option
def command(
    preset: str | None, recipe: Path | None, changes: tuple[str, ...], output_format: str, **numbers: Any
) -> None:
    """Estimate the parameters, FLOPs and memory of a model, without training it.

    Also prints the layer comparison of Table 1 of "Attention Is All You Need" for these sizes.
    """
    from transduce.inspection.cost import Workload, estimate
    from transduce.models.catalog import read_model_table
    from transduce.models.interface import VocabularySizes

    target = numbers.pop("vocab_size")
    sizes = VocabularySizes(numbers.pop("source_vocab_size") or target, target)
    config = read_model_table(*model_table(preset, recipe, changes))
    cost = estimate(config, sizes, Workload(**numbers))
    if output_format == "json":
        print_json(cost.to_json())
    else:
        click.echo(report(cost))


def model_table(preset: str | None, recipe: Path | None, changes: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Return the [model] table that the options describe, and its name for error messages."""
    from transduce.config import override, read_toml
    from transduce.errors import SettingsError

    if (preset is None) == (recipe is None):
        raise click.UsageError("give a model with either --preset or --recipe")
    table: dict[str, Any] = {"model": {"preset": preset}} if recipe is None else read_toml(recipe)
    for change in changes:
        if not change.strip().startswith("model."):
            raise SettingsError(f"--set {change}: only settings of the model count here; write model.KEY=VALUE")
        table = override(table, change)
    model = table.get("model", {})
    if not isinstance(model, dict):
        raise SettingsError(f"{recipe}: 'model' must be a table, written as [model]")
    return model, f"{recipe or f'preset {preset}'}: [model]"


def report(cost: Cost) -> str:
    """Return the costs as tables of plain text."""
    workload = cost.workload
    train, decode = cost.memory_bytes["train"], cost.memory_bytes["decode"]
    flops = cost.flops_per_token
    n, d = workload.source_length, cost.table_1[0].operations // workload.source_length**2
    return "\n\n".join(
        [
            section("parameters", {**cost.parts, "total": cost.parameters}, "{:,}".format),
            section(
                f"FLOPs per token (source {n:,}, target {workload.target_length:,} tokens)",
                {
                    "train, per target token": flops["train"],
                    "decode, per target token": flops["decode"],
                    "encode, per source token": flops["encode"],
                },
                lambda value: scaled(value, 1000, ["", " k", " M", " G", " T", " P", " E"], "FLOP"),
            ),
            section(f"training memory (batches of {workload.tokens:,} target tokens)", train, in_bytes),
            section(f"decoding memory (one hypothesis of {workload.target_length:,} tokens)", decode, in_bytes),
            f"layer types (Table 1 of the paper), n = {n:,}, d = {d:,}, k = {workload.kernel}, "
            f"r = {min(workload.window, n):,}\n" + aligned(_layer_rows(cost)),
        ]
    )


def section(title: str, rows: Mapping[str, int], write: Any) -> str:
    """Return a title and two columns, names and values."""
    return f"{title}\n" + aligned([[name.replace("_", " "), write(value)] for name, value in rows.items()])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as aligned columns: the first to the left, the others to the right."""
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
    """Return a number with three significant digits and its unit."""
    amount, power = float(value), 0
    while amount >= base and power + 1 < len(prefixes):
        amount, power = amount / base, power + 1
    digits = 0 if power == 0 else max(0, 3 - len(str(int(amount))))
    return f"{amount:.{digits}f}{prefixes[power]}{unit}"


def _layer_rows(cost: Cost) -> list[list[str]]:
    rows = [["layer", "complexity", "operations", "sequential operations", "maximum path length"]]
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

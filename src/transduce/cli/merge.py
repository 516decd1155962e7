"""`transduce merge`: the output of a translation in shards."""

from __future__ import annotations

import click

from transduce.cli.options import argument, make_command, option_group
from transduce.cli.translate import summarise

_EXAMPLES = """
transduce merge out.txt
transduce merge out.txt.gz --remove
"""


@make_command(_EXAMPLES)
@argument("output", "Output file, as given to `transduce translate --shard`.")
@option_group("Output options")("--remove", is_flag=True, help="Delete OUTPUT.blocks when OUTPUT is written.")
def command(output: str, remove: bool) -> None:
    """Merge the blocks that `transduce translate --shard` wrote to OUTPUT.blocks into OUTPUT.

    Checks that every block exists once and is intact, and that all have the same input, model and options. If blocks
    are missing, they are listed and nothing is written.
    """
    from transduce.inference.jobs.merge import merge

    merged = merge(output, remove)
    click.echo(f"{output}: {merged.lines:,} lines of {merged.blocks:,} block{'' if merged.blocks == 1 else 's'}")
    summarise(merged.counts)

"""Translation by many processes: `transduce translate` with `--shard` or `--ray`."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

import click

from transduce.cli.options import check_exclusive, flag, is_given, option_group
from transduce.cli.terminal import note

if TYPE_CHECKING:
    from transduce.inference.jobs.block_folder import BlockFolder
    from transduce.inference.jobs.job import TranslationJob
    from transduce.inference.segment import TranslationCounts

_cluster = option_group("Cluster options")
_OPTIONS = (
    _cluster(
        "--shard",
        metavar="I/N",
        help="Translate shard I of N, from 1, into OUTPUT.blocks, for `transduce merge`; auto/N in a job array.",
    ),
    _cluster("--ray", metavar="ADDRESS", help="Translate on a Ray cluster: auto, host:port, or local to try it."),
    _cluster("--actors", type=click.IntRange(1), metavar="N", help="Number of Ray actors (default: as many as fit)."),
    _cluster(
        "--block-lines",
        type=click.IntRange(1),
        metavar="N",
        help="Lines per block, a multiple of 512 (default: 8192 or more).",
    ),
)


def cluster_options(function: Any) -> Any:
    """Add the options."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def check_cluster(file: str, kind: str, output: str, options: dict[str, Any]) -> None:
    """Reject options that cannot be used together."""
    from transduce.inference.jobs.source import is_file

    check_exclusive(options, "shard", "ray", "actors")
    check_exclusive(options, "ray", "shard")
    mode = next((name for name in ("shard", "ray") if options[name] is not None), None)
    if mode is None:
        for name in ("actors", "block_lines"):
            if options[name] is not None:
                raise click.UsageError(f"{flag(name)} needs --ray{' or --shard' * (name == 'block_lines')}")
        return
    for name in ("stream", "prefix_file"):
        if is_given(options[name]):
            raise click.UsageError(f"{flag(name)} and {flag(mode)} exclude each other")
    if output == "-":
        raise click.UsageError(f"{flag(mode)} needs --output FILE, on storage that all processes share")
    if kind != "text":
        raise click.UsageError(f"{flag(mode)} needs plain text, not {kind}; --format text translates lines as they are")
    if not is_file(file):
        raise click.UsageError(f"{flag(mode)} needs a file, not standard input or a pipe")


def translate_in_blocks(file: str, output: str, options: dict[str, Any]) -> TranslationCounts:
    """Translate a shard, or a whole file on a Ray cluster; return the counts of the lines of this command."""
    if options["ray"] is not None:
        from transduce.cli.ray_cluster import translate_by_ray

        return translate_by_ray(file, output, options)
    return _translate_shard(file, output, options)


def _translate_shard(file: str, output: str, options: dict[str, Any]) -> TranslationCounts:
    from transduce.cli.progress import following
    from transduce.cli.translate import make_job
    from transduce.inference.jobs.shards import BlockTranslator, LineObserver, read_shard, translate_shard

    shard = read_shard(options["shard"], os.environ)
    job = make_job(file, "text", options)
    folder = open_blocks(job, file, output, options)
    numbers = shard.numbers(len(folder.blocks))
    if not numbers:
        blocks = f"{len(folder.blocks):,} block{'' if len(folder.blocks) == 1 else 's'}"
        note(f"nothing to do for shard {shard.index} of {shard.count}: the input has only {blocks}")
    left = [number for number in numbers if not folder.is_complete(number)]
    if numbers and len(left) < len(numbers):
        note(
            f"complete before: {len(numbers) - len(left):,} of the {len(numbers):,} blocks of shard {options['shard']}"
        )
    with following(sum(folder.blocks[number].lines for number in left), "line") as follower:
        translator = BlockTranslator(job, folder)
        try:
            translate_shard(translator, folder, shard, LineObserver(follower))
        except BaseException:
            note(f"the blocks so far are in {folder.path}; run the same command again to resume")
            raise
        finally:
            translator.close()
    note(f"when all shards are done, merge them with `transduce merge {shlex.quote(output)}`")
    return folder.counts(left)


def open_blocks(job: TranslationJob, file: str, output: str, options: dict[str, Any]) -> BlockFolder:
    """Open the folder of blocks with the fingerprint of a job."""
    from transduce.inference.jobs.block_folder import open_folder
    from transduce.inference.jobs.output import fingerprint
    from transduce.text.document.formats import Document

    if options["format"] is None:
        next(Document(file).segments, None)  # raises if the beginning is of another format than plain text
    given = fingerprint(options, job.translator.engine.uses_ctranslate2(job.translation.search))
    return open_folder(file, output, given, options["block_lines"], _note_plan)


def _note_plan(waiting: bool) -> None:
    note("waiting: another process is cutting the input into blocks" if waiting else "cutting the input into blocks")

"""What `transduce inspect` prints and writes, for each kind of record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial, singledispatch
from typing import Any

from transduce.cli.terminal import note
from transduce.errors import MissingInput, SettingsError
from transduce.inspection.caption import RegionAttention
from transduce.inspection.maps import AttendedToken, AttentionMaps, Kind, save_page
from transduce.inspection.replay import DecodingStep
from transduce.inspection.tape import TapeRecord

Record = AttentionMaps | TapeRecord | RegionAttention
ALTERNATIVES = 5
"""Tokens to print next to one that a language model generated."""
ATTENDED = 6
"""Tokens to print that a position attends to: that many by the mean of all heads, and by the strongest head."""


def save_records(
    records: Sequence[Record], output: str, kind: Kind | None, layer: int | None, head: int | None
) -> list[dict[str, str]]:
    """Write a page with all attention maps and a picture of each; return the files of each record."""
    maps = [record for record in records if isinstance(record, AttentionMaps)]
    for one in maps:
        shown = kind or one.default_kind
        if shown is not None:
            one.chosen(shown, layer, head)  # check before anything is written
        elif layer is not None or head is not None:
            raise SettingsError("this model has no attention to draw; leave out --layer and --head")
    if maps:
        save_page(f"{output}.html", maps)
    files: list[dict[str, str]] = []
    for number, record in enumerate(records, start=1):
        name = output if len(records) == 1 else f"{output}-{number}"
        if isinstance(record, RegionAttention):
            record.save_svg(f"{name}.svg")
            files.append({"drawing": f"{name}.svg", **_save_picture(record.save_png, f"{name}.png")})
        elif isinstance(record, TapeRecord):
            files.append(_save_picture(record.save_png, f"{name}.png"))
        elif record.maps:
            picture = _save_picture(partial(record.save_png, kind=kind, layer=layer, head=head), f"{name}.png")
            files.append({"page": f"{output}.html", **picture})
        else:
            files.append({"page": f"{output}.html"})
    return files


def _save_picture(save_png: Callable[[str], None], path: str) -> dict[str, str]:
    """Write the picture; without matplotlib leave it out with a note, everything else is still there."""
    try:
        save_png(path)
    except MissingInput as error:
        note(f"no picture: {error}")
        return {}
    return {"picture": path}


# Plain text.


@singledispatch
def text_lines(record: Any) -> list[str]:
    """Return the lines that describe a record."""
    raise NotImplementedError


@text_lines.register
def _(record: AttentionMaps) -> list[str]:
    has_output = record.translation or record.subject == "translation"  # which may be empty
    heading = f"{record.source}  →  {record.translation}" if has_output else record.source
    describe = {"translation": _translation, "prompt": _prompt, "text": _masks, "facts": _facts}[record.subject]
    return [heading, *describe(record)]


@text_lines.register
def _(record: TapeRecord) -> list[str]:
    lines = [f"{record.source}  →  {record.output}"]
    for step in _tape_steps(record):
        shown = [f"{name} {place}" for name in ("write", "read") for place in step[name]]
        lines.append(f"  {step['token']}  {'  '.join(shown)}")
    return lines


@text_lines.register
def _(record: RegionAttention) -> list[str]:
    return [
        record.caption,
        *(
            f"  {one['word']}  row {one['row']}, column {one['column']}  {one['weight']:.3f}"
            for one in _regions(record)
        ),
    ]


def _translation(maps: AttentionMaps) -> list[str]:
    """The tokens produced with their alternatives, and the alignment: of words, or of pieces if the source is one word.

    A word that is spelled in characters would otherwise be aligned with itself, for every phoneme again.
    """
    words = (maps.source.split(), maps.translation.split())
    if len(words[0]) == 1 and len(maps.source_pieces) > 2 and "cross" in maps.maps:
        return [*_alternatives(maps.steps), *_piece_links(maps)]
    links = [f"  {words[1][target]} ← {words[0][source]}" for source, target in _links(maps)]
    return [*_alternatives(maps.steps), *links]


def _piece_links(maps: AttentionMaps) -> list[str]:
    """The source piece that each piece attends to most, by the mean of all heads; without the end tokens."""
    produced, read = maps.rows("cross")[:-1], maps.columns("cross")[:-1]
    weights = maps.mean("cross")[: len(produced), : len(read)]
    width = max(map(len, produced), default=0)
    return [
        f"  {piece:<{width}} ← {read[place]} (character {place + 1} of {len(read)})"
        if all(len(one) == 1 for one in read)
        else f"  {piece:<{width}} ← {read[place]}"
        for piece, place in zip(produced, weights.argmax(axis=1).tolist(), strict=True)
    ]


def _prompt(maps: AttentionMaps) -> list[str]:
    """The tokens generated with their alternatives, what comes next, and what the last position attends to."""
    *earlier, last = maps.steps
    lines = _alternatives(earlier[len(earlier) - maps.generated :], ALTERNATIVES)
    width = max(12, *(len(one.piece) for one in last.top))
    lines.append(f"  {'next token':<{width}}  probability    logit")
    lines += [f"  {one.piece:<{width}}  {one.probability:11.3f}  {one.logit:7.2f}" for one in last.top]
    lines.append(f"  entropy {last.entropy:.2f} bits")
    attended = _most_attended(maps)
    if not attended:
        return [*lines, "  no attention: this model has none"]
    width = max(12, *(len(one.piece) for one in attended))
    lines.append(f"  {'attends to':<{width}}  mean of heads  strongest head")
    for one in attended:
        head = f"{one.strongest:.3f} (layer {one.layer}, head {one.head})"
        lines.append(f"  {one.piece:<{width}}  {one.mean:13.3f}  {head}")
    return lines


def _masks(maps: AttentionMaps) -> list[str]:
    """The likeliest tokens at each masked position."""
    return [f"  {maps.source_pieces[step.position]}  {_likeliest(step)}" for step in maps.steps]


def _facts(maps: AttentionMaps) -> list[str]:
    """The attention of each hop to each sentence of the context."""
    hops = [maps.head("cross", hop + 1, 1)[0] for hop in range(len(maps.maps["cross"]))]
    return [
        f"  {'  '.join(f'{weight:.3f}' for weight in weights)}  {fact}"
        for fact, *weights in zip(maps.columns("cross"), *hops, strict=True)
    ]


def _alternatives(steps: Sequence[DecodingStep], most: int | None = None) -> list[str]:
    chosen = [(step, step.chosen) for step in steps if step.chosen is not None]
    width = max((len(one.piece) for _, one in chosen), default=0)
    return [f"  {one.piece:<{width}}  {one.probability:.3f}   {_likeliest(step, most)}" for step, one in chosen]


def _likeliest(step: DecodingStep, most: int | None = None) -> str:
    return "  ".join(f"{one.piece} {one.probability:.3f}" for one in step.top[:most])


def _most_attended(maps: AttentionMaps) -> list[AttendedToken]:
    """Return what the last position attends to most, by the mean or by one head."""
    if "causal" not in maps.maps:
        return []
    by_mean = maps.attended("causal")
    by_head = sorted(by_mean, key=lambda one: -one.strongest)
    kept = {one.position for one in (*by_mean[:ATTENDED], *by_head[:ATTENDED])}
    return [one for one in by_mean if one.position in kept]


def _links(maps: AttentionMaps) -> list[tuple[int, int]]:
    return sorted(maps.links, key=lambda link: link[1])


# JSON values.


@singledispatch
def values(record: Any) -> dict[str, Any]:
    """Return a record as JSON values."""
    raise NotImplementedError


@values.register
def _(record: AttentionMaps) -> dict[str, Any]:
    steps = [
        {
            "token": None if step.chosen is None else step.chosen.piece,
            "probability": None if step.chosen is None else step.chosen.probability,
            "entropy": step.entropy,
            "top": [asdict(one) for one in step.top],
        }
        for step in record.steps
    ]
    if record.subject == "translation":
        return {
            "source": record.source,
            "translation": record.translation,
            "steps": steps,
            "alignment": _links(record),
        }
    if record.subject != "prompt":
        found = {"source": record.source, "prediction": record.translation}
        return {**found, "steps": steps} if steps else found
    return {
        "prompt": record.source,
        "continuation": record.translation,
        "tokens": list(record.source_pieces),
        "next_tokens": steps[-1]["top"],
        "attended": [asdict(one) for one in _most_attended(record)],
        "steps": steps,
    }


@values.register
def _(record: TapeRecord) -> dict[str, Any]:
    return {"source": record.source, "translation": record.output, "steps": _tape_steps(record)}


@values.register
def _(record: RegionAttention) -> dict[str, Any]:
    return {"caption": record.caption, "steps": _regions(record)}


def _tape_steps(record: TapeRecord) -> list[dict[str, Any]]:
    return [
        {
            "token": piece,
            **{name: [int(head[step].argmax()) for head in getattr(record, name)] for name in ("write", "read")},
        }
        for step, piece in enumerate(record.pieces)
    ]


def _regions(record: RegionAttention) -> list[dict[str, Any]]:
    found = []
    for number, word in enumerate(record.words):
        row, column, weight = record.peak(number)
        found.append({"word": word, "row": row + 1, "column": column + 1, "weight": weight})
    return found

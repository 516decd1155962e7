"""Inspect one translation: attention of each head, next-token distributions, and the page with all maps.

    python docs/examples/inspect_attention.py RUN TEXT [FOLDER]

Writes attention.html and, with the extra `plot`, attention.png to FOLDER (by default the current one).
"""

from __future__ import annotations

import sys
from pathlib import Path

import transduce
from transduce.errors import MissingInput


def main(run: str, text: str, folder: str = ".") -> None:
    """Translate a text and print a summary of its attention maps."""
    maps = transduce.load(run).attention(text, top=3)
    print(maps)
    for kind, weights_LHQM in maps.maps.items():
        for layer in range(1, weights_LHQM.shape[0] + 1):
            for head in range(1, weights_LHQM.shape[1] + 1):
                # Sharpness of a head: the largest weight of each row, on average. 1 means a single token.
                sharpness = maps.head(kind, layer, head).max(axis=1).mean()
                print(f"  {kind:<8} layer {layer} head {head}: sharpness {sharpness:.2f}")
    for step in maps.steps:
        others = ", ".join(f"{other.piece} {other.probability:.2f}" for other in step.top)
        print(f"  {step.chosen.piece:<6} chosen with {step.chosen.probability:.2f}; most probable were {others}")
    maps.save_html(Path(folder) / "attention.html")
    try:
        maps.save_png(Path(folder) / "attention.png", kind="cross")
    except MissingInput as error:
        print(f"no picture: {error}")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: inspect_attention.py RUN TEXT [FOLDER]")
    main(*sys.argv[1:])

"""Caption pictures with unseen combinations, and draw the attention of each word.

    transduce train --recipe recipes/captions.toml --output runs/captions
    python docs/examples/caption_pictures.py runs/captions [FOLDER]

Every picture has a combination of colour, shape and relation that training left out. Writes picture-1.txt, the picture
as text, picture-1.png, the picture as an image file, picture-1.svg, the drawing, and so on to FOLDER (by default the
current one). The same from the command line: transduce inspect runs/captions picture-1.png --output caption
"""

from __future__ import annotations

import sys
from pathlib import Path

import transduce
from transduce.data.synthetic import SIDE, SyntheticPictures
from transduce.text.image_file import encode_png
from transduce.text.picture import decode_pixels

COUNT = 3


def main(run: str, folder: str = ".") -> None:
    """Caption a few pictures; print the right caption and the model's."""
    captioner = transduce.load(run)
    for number, scene in enumerate(SyntheticPictures(pictures="held_out", size=COUNT, seed=3).scenes(), start=1):
        regions = captioner.region_attention(scene.picture)
        regions.save_svg(Path(folder) / f"picture-{number}.svg")
        (Path(folder) / f"picture-{number}.txt").write_text(scene.picture + "\n", encoding="utf-8")
        image = encode_png(decode_pixels(scene.picture, SIDE))
        (Path(folder) / f"picture-{number}.png").write_bytes(image)
        print(f"{scene.caption}: {regions.caption or '(nothing)'}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: caption_pictures.py RUN [FOLDER]")
    main(*sys.argv[1:])

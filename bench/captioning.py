"""Captions of held-out combinations, and whether attention is where the words are: `make reproduce-captioning`.

The captioner of recipes/captions.toml (Xu et al. 2015) learns from drawn pictures in which a quarter of the
combinations of colour, shape and relation never occur; then it captions pictures that each have one of those. Two
things are measured: the share of captions without any error, and the attention of words that name a colour or a shape.
*Inside* is the share of such words, in correct captions, whose most attended region has pixels of the shape that the
word describes; *mass* is the share of their attention on such regions; *chance* is the value for uniform attention. One
caption is drawn. The last line is one JSON object.

With `--images` the same pictures are written as PNG files, and the captioner learns from files and captions files;
`--scale 4` makes them 128 × 128 pixels. Minutes on one core; `--seeds` sets the number of runs, `--updates` shortens
them.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from measuring import train_or_resume

from transduce.data.synthetic import CAPTIONS, Scene, Shape, SyntheticPictures
from transduce.inference.load import load_translator
from transduce.inference.translator import Translator
from transduce.inspection.caption import RegionAttention
from transduce.recipe import Recipe, read_recipe

RECIPE = Path(__file__).parents[1] / "recipes" / "captions.toml"


class WordAttention(NamedTuple):
    """Attention statistics of one word."""

    inside: bool
    mass: float
    chance: float


def word_attention(regions: RegionAttention, word: int, shape: Shape) -> WordAttention:
    """Compare a word's attention with the regions that have pixels of the shape it names."""
    grid = regions.weights.shape[1]
    pixels = len(regions.colours) // grid
    holds = np.zeros((grid, grid), dtype=bool)
    for row, column in shape.pixels():
        holds[row // pixels, column // pixels] = True
    row, column, _ = regions.peak(word)
    return WordAttention(bool(holds[row, column]), float(regions.weights[word][holds].sum()), float(holds.mean()))


@dataclass(frozen=True)
class Questions:
    """Pictures to caption: what is in them, and the sources, which are pixels or paths."""

    scenes: list[Scene]
    sources: list[str]


def questions(corpus: SyntheticPictures, folder: Path | None, scale: int) -> Questions:
    """Return the pictures of a corpus, as PNG files in a folder if one is given."""
    scenes = list(corpus.scenes())
    if folder is None:
        return Questions(scenes, [scene.picture for scene in scenes])
    table = folder / CAPTIONS
    if not table.is_file():
        corpus.write_files(folder, scale)
    names = [line.split("\t")[0] for line in table.read_text(encoding="utf-8").splitlines()]
    return Questions(scenes, [str(folder / name) for name in names])


def attention_statistics(translator: Translator, asked: Questions, attended: int) -> list[WordAttention]:
    """Attention of each word that names a colour or a shape, in correct captions."""
    found: list[WordAttention] = []
    for scene, source in list(zip(asked.scenes, asked.sources, strict=True))[:attended]:
        regions = translator.region_attention(source, method="greedy")
        if regions.caption == scene.caption:
            found += [word_attention(regions, word, shape) for word, shape in scene.named.items()]
    return found


def judge(translator: Translator, asked: Questions, attended: int) -> dict[str, float]:
    """Return the share of correct captions, and attention statistics for the first pictures."""
    captions = translator.translate(asked.sources, method="greedy", split=False)
    right = [caption == scene.caption for caption, scene in zip(captions, asked.scenes, strict=True)]
    inside, mass, chance = np.mean(
        attention_statistics(translator, asked, attended) or [WordAttention(False, 0.0, 0.0)], axis=0
    )
    return {"exact": float(np.mean(right)), "inside": float(inside), "mass": float(mass), "chance": float(chance)}


def recipe(changes: list[str]) -> Recipe:
    return read_recipe(RECIPE, changes)[0]


def file_changes(folder: Path, scale: int) -> list[str]:
    """Write the recipe's corpora as PNG files; return the changes that make it read them."""
    data = recipe([]).data
    changes = ["data.images={colours = 'palette'}"]
    for split in ("train", "validation"):
        (corpus,) = data.of_split(split)
        table = folder / split / CAPTIONS
        if not table.is_file():
            corpus.write_files(table.parent, scale)
        changes.append(f"data.{split}={{path = '{table}'}}")
    return changes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/reproduce-captioning"), help="folder of the runs")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--updates", type=int, help="updates; the recipe's by default")
    parser.add_argument("--count", type=int, default=1000, help="held-out pictures, and as many of seen combinations")
    parser.add_argument("--attention-pictures", type=int, default=200, help="pictures for the attention statistics")
    parser.add_argument("--images", action="store_true", help="learn from PNG files and caption PNG files")
    parser.add_argument("--scale", type=int, default=1, help="with --images, pixels of a file per side of a pixel")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    held_out, seen = (
        questions(
            SyntheticPictures(pictures=kind, size=options.count, seed=777),
            options.work / kind if options.images else None,
            options.scale,
        )
        for kind in ("held_out", "seen")
    )
    files = file_changes(options.work, options.scale) if options.images else []
    runs = []
    for seed in range(1, options.seeds + 1):
        folder = options.work / f"seed-{seed}"
        changes = [*files, f"training.seed={seed}"]
        changes += [f"training.updates={options.updates}"] if options.updates else []
        translator = load_translator(train_or_resume(partial(recipe, changes), folder))
        runs.append(
            {**judge(translator, held_out, options.attention_pictures), "seen": judge(translator, seen, 0)["exact"]}
        )
        print(
            f"seed {seed}: " + ", ".join(f"{name} {100 * value:.1f} %" for name, value in runs[-1].items()), flush=True
        )
        regions = translator.region_attention(held_out.sources[0], method="greedy")
        regions.save_svg(folder / "attention.svg")
        regions.save_png(folder / "attention.png")
    mean = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
    print(json.dumps({**{name: round(value, 4) for name, value in mean.items()}, "runs": runs}))


if __name__ == "__main__":
    main()

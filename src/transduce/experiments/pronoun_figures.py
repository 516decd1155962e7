"""Figures of the pronoun demo: what *it* attends to with each ending, and accuracy by distance (extra `plot`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from transduce.experiments.pronoun_corpus import Scene
from transduce.experiments.pronoun_lengths import LengthCurve
from transduce.experiments.pronoun_words import Role
from transduce.inference.translator import Translator
from transduce.inspection.component import HeadName
from transduce.inspection.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Weights = npt.NDArray[np.floating[Any]]

COLOURS = ("#c1440e", "#1f6f8b", "#7a9e3c", "#8e5ea2", "#b8860b", "#4a4a8a")
"""One per head that is drawn with lines."""
FAINT = 0.03
"""Attention below this is not drawn as a line."""
MARKERS = "osD^"


@dataclass(frozen=True)
class EndingMaps:
    """One of the two sentences: its words, its translation, and the attention of every head to its words."""

    ending: Role
    words: tuple[str, ...]
    pronoun: str
    it: int
    """Position of *it*."""
    noun: int
    """Position of the noun that it means."""
    encoder: Weights
    """(L H S) from *it*."""
    cross: Weights
    """(L H S) from the step that writes the pronoun."""


def ending_maps(translator: Translator, scene: Scene, pronoun: str) -> EndingMaps:
    """Translate a scene and take the rows of its attention maps that matter."""
    maps = translator.attention(scene.source())
    words = tuple(piece.strip("▁") for piece in maps.columns("cross"))
    written = [piece.strip("▁").lower() for piece in maps.rows("cross")]
    step = written.index(pronoun) if pronoun in written else 0
    it = words.index("it")
    return EndingMaps(
        scene.referent,
        words,
        written[step],
        it,
        words.index(scene.noun.en),
        maps.maps["encoder"][:, :, it],
        maps.maps["cross"][:, :, step],
    )


def draw_endings(sentences: Sequence[EndingMaps], heads: Sequence[HeadName]) -> Figure:
    """Draw both sentences side by side: lines of the chosen encoder heads from *it*, below them every head."""
    rows = sentences[0].encoder.reshape(-1, len(sentences[0].words)).shape[0]
    cross_rows = sentences[0].cross.reshape(-1, len(sentences[0].words)).shape[0]
    longest = max(len(sentence.words) for sentence in sentences)
    figure = new_figure(max(11.0, 0.8 * longest), 0.27 * longest + 0.24 * (rows + cross_rows) + 2.6)
    grid = figure.subplots(3, 2, height_ratios=(0.3 * longest, 0.24 * rows, 0.24 * cross_rows))
    for column, sentence in enumerate(sentences):
        _draw_lines(grid[0, column], sentence, heads)
        _draw_rows(grid[1, column], sentence, sentence.encoder, "encoder heads, from “it”", column == 0)
        _draw_rows(
            grid[2, column], sentence, sentence.cross, f"cross-attention, writing “{sentence.pronoun}”", column == 0
        )
    image = grid[1, 1].images[0]
    figure.colorbar(
        image, ax=grid[1:, :], location="right", shrink=0.6, pad=0.01, label="attention"
    ).outline.set_visible(False)
    return figure


def _draw_lines(axes: Axes, sentence: EndingMaps, heads: Sequence[HeadName]) -> None:
    """Draw the words twice, and a line for each head from *it* to each word, as wide as its attention."""
    count = len(sentence.words)
    for place, word in enumerate(sentence.words):
        bold = "bold" if place in (sentence.it, sentence.noun) else "normal"
        axes.text(1.04, -place, word, va="center", fontsize=11, fontweight=bold, parse_math=False)
        colour = "black" if place == sentence.it else "0.72"
        axes.text(
            -0.04,
            -place,
            word,
            va="center",
            ha="right",
            fontsize=11,
            color=colour,
            parse_math=False,
            fontweight="bold" if place == sentence.it else "normal",
        )
    for number, head in enumerate(heads):
        weights_S = sentence.encoder[head.layer - 1, head.head - 1]
        for place, weight in enumerate(weights_S):
            if weight >= FAINT:
                axes.plot(
                    (0, 1),
                    (-sentence.it, -place),
                    color=COLOURS[number % len(COLOURS)],
                    linewidth=9 * weight,
                    alpha=0.75,
                    solid_capstyle="round",
                )
        axes.plot(
            [], [], color=COLOURS[number % len(COLOURS)], linewidth=5, label=f"layer {head.layer}, head {head.head}"
        )
    axes.set(xlim=(-0.9, 1.9), ylim=(-count + 0.4, 0.6))
    axes.set_title(f"“… too {_adjective(sentence)}” → {sentence.pronoun}", fontsize=13, pad=8)
    axes.axis("off")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, -0.1), ncols=len(heads), frameon=False, fontsize=9)


def _adjective(sentence: EndingMaps) -> str:
    return sentence.words[sentence.it + 3]


def _draw_rows(axes: Axes, sentence: EndingMaps, weights: Weights, title: str, named: bool) -> None:
    """Draw every head as a row of cells, one per word."""
    layers, heads, _ = weights.shape
    axes.imshow(weights.reshape(layers * heads, -1), cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    labels = [f"{layer + 1}.{head + 1}" for layer in range(layers) for head in range(heads)]
    axes.set_yticks(range(len(labels)), labels=labels if named else [""] * len(labels), fontsize=8)
    axes.set_xticks(
        range(len(sentence.words)), labels=sentence.words, rotation=60, ha="right", fontsize=9, parse_math=False
    )
    for place in (sentence.it, sentence.noun):
        axes.get_xticklabels()[place].set_fontweight("bold")
    axes.axvspan(sentence.noun - 0.5, sentence.noun + 0.5, fill=False, edgecolor=COLOURS[0], linewidth=1.4)
    for layer in range(1, layers):
        axes.axhline(layer * heads - 0.5, color="0.6", linewidth=0.8)
    axes.tick_params(length=0)
    axes.spines[:].set_color("0.8")
    axes.set_title(title, fontsize=10, loc="left")


def draw_lengths(curves: Sequence[LengthCurve]) -> Figure:
    """Draw accuracy by the number of words between nouns and pronoun."""
    figure = new_figure(7.2, 4.6)
    axes = figure.add_subplot()
    for number, curve in enumerate(curves):
        axes.plot(
            range(len(curve.words)),
            [100 * value for value in curve.accuracy],
            marker=MARKERS[number % len(MARKERS)],
            color=COLOURS[number % len(COLOURS)],
            linewidth=2,
            label=curve.name,
            clip_on=False,
            zorder=3,
        )
    axes.axhline(50, color="0.5", linestyle="--", linewidth=1)
    axes.text(0.02, 51, "always the same noun", color="0.4", fontsize=9)
    axes.set_xticks(range(len(curves[0].words)), labels=[str(words) for words in curves[0].words])
    axes.set(
        xlabel="words between the nouns and the pronoun",
        ylabel="pronouns right, % of held-out combinations",
        ylim=(30, 101),
        title="The pronoun by distance",
    )
    axes.grid(color="0.92")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    return figure

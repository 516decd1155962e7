"""What one trained model of the pronoun demo does: its accuracy, its heads, the causal tests, and when it learned."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from transduce.config import Table
from transduce.experiments.pronoun_corpus import Scene, other_ending
from transduce.experiments.pronoun_interventions import Cuts, Solution, find_heads, measure_cuts, measure_patches
from transduce.experiments.pronoun_probe import HeadAttention, Probe, head_attention
from transduce.experiments.pronoun_words import BECAUSE, PRONOUNS, ROLES, Language, Role
from transduce.inference.translator import Translator
from transduce.inspection.component import HeadName
from transduce.inspection.intervention import Ablation
from transduce.model_folder import checkpoint_weights, put_weights
from transduce.models.interface import AnyTransducer
from transduce.nn.hook import replace, twin
from transduce.storage.checkpoints import SavedCheckpoints

LEARNED = 0.95
"""Accuracy from which the pronoun counts as learned."""
ATTENDED = 0.5
"""Mean attention from which a head counts as attending to the right noun."""
ABLATED: dict[Solution, tuple[str, ...]] = {
    "encoder": ("encoder",),
    "cross-attention": ("cross",),
    "both": ("encoder", "cross"),
    "neither": ("encoder",),
}
"""Stacks whose heads are ablated, by what suffices. The decoder sees the source by cross-attention only: without all of
its heads nothing is right, which tells something only where cross-attention finds the noun."""


@dataclass(frozen=True)
class PronounReport:
    """What was found in one seed."""

    seed: int
    train_seconds: float
    pronoun_accuracy: float
    """Share of held-out sentences whose translation has the right pronoun."""
    exact_match: float
    """Share of those that are translated without any error."""
    heads: dict[Role, tuple[HeadName, float]]
    """By ending, the encoder head that attends most from *it* to the right noun, and how much on average."""
    moving_head: tuple[HeadName, float]
    """The encoder head whose attention moves most with the ending, and how much."""
    cuts: Cuts
    patches: dict[str, float]
    ablated_heads: tuple[HeadName, ...]
    ablated_accuracy: float
    """With the outputs of these heads replaced by their means, where it matters."""
    zeroed_accuracy: float | None
    """With their outputs zero everywhere, as the studio switches heads off; None in reports of earlier versions."""
    history: tuple[tuple[int, float, float], ...]
    """Update, accuracy, and `head_attention` of the checkpoints."""

    @property
    def head_attention(self) -> float:
        """Attention to the right noun of the best encoder head of each ending, the smaller of the two."""
        return min(weight for _, weight in self.heads.values())

    @property
    def learned_at(self) -> int | None:
        """First checkpoint that knows the pronoun."""
        return next((update for update, accuracy, _ in self.history if accuracy >= LEARNED), None)

    @property
    def attended_at(self) -> int | None:
        """First checkpoint whose encoder has heads that attend to the right noun, for both endings."""
        return next((update for update, _, attention in self.history if attention > ATTENDED), None)

    def to_json(self) -> Table:
        """Return all figures."""
        return {
            "pronoun_accuracy": self.pronoun_accuracy,
            "ablated_accuracy": self.ablated_accuracy,
            "zeroed_accuracy": self.zeroed_accuracy,
            "head_attention": self.head_attention,
            "train_seconds": self.train_seconds,
            "seed": self.seed,
            "exact_match": self.exact_match,
            "solution": self.cuts.solution,
            "cuts": self.cuts._asdict(),
            "patches": self.patches,
            "ablated_heads": [list(head) for head in self.ablated_heads],
            "heads": {ending: [list(head), weight] for ending, (head, weight) in self.heads.items()},
            "moving_head": [list(self.moving_head[0]), self.moving_head[1]],
            "learned_at": self.learned_at,
            "attended_at": self.attended_at,
            "history": [list(entry) for entry in self.history],
        }

    @classmethod
    def from_json(cls, table: Table) -> PronounReport:
        """Read what `to_json` wrote."""
        return cls(
            table["seed"],
            table["train_seconds"],
            table["pronoun_accuracy"],
            table["exact_match"],
            {role: (HeadName(*table["heads"][role][0]), table["heads"][role][1]) for role in ROLES},
            (HeadName(*table["moving_head"][0]), table["moving_head"][1]),
            Cuts(**table["cuts"]),
            table["patches"],
            tuple(HeadName(*head) for head in table["ablated_heads"]),
            table["ablated_accuracy"],
            table.get("zeroed_accuracy"),
            tuple((update, accuracy, attention) for update, accuracy, attention in table["history"]),
        )


def written_pronoun(translation: str, language: Language) -> str | None:
    """The pronoun of a translation: the word after "weil" or "parce qu'"."""
    _, found, rest = translation.lower().partition(BECAUSE[language])
    words = rest.replace(",", " ").split()
    return words[0] if found and words and words[0] in PRONOUNS[language].values() else None


def examine(
    translator: Translator, run: Path, scenes: Sequence[Scene], size: int, language: Language, timing: tuple[int, float]
) -> PronounReport:
    """Test a trained model on held-out scenes; the causal tests use the first `size` of them, and as many others."""
    translations = translator.translate([scene.source() for scene in scenes])
    pairs = list(zip(translations, scenes, strict=True))
    right = [written_pronoun(text, language) == scene.pronoun(language) for text, scene in pairs]
    exact = [text == scene.target(language) for text, scene in pairs]
    model = twin(translator.model).eval()

    def probe(chosen: Sequence[Scene]) -> Probe:
        return Probe.of(chosen, language, translator.source, translator.target)

    first, second = probe(scenes[:size]), probe(scenes[-size:])
    cuts = measure_cuts(model, first)
    steps = find_heads(model, first, second, ABLATED[cuts.solution])
    heads = tuple(step.head for step in steps)
    encoder = [found for found in head_attention(model, first) if found.head.kind == "encoder"]
    moving = max(encoder, key=lambda found: found.shift)
    return PronounReport(
        seed=timing[0],
        train_seconds=timing[1],
        pronoun_accuracy=sum(right) / len(right),
        exact_match=sum(exact) / len(exact),
        heads={role: _best(encoder, role) for role in ROLES},
        moving_head=(moving.head, moving.shift),
        cuts=cuts,
        patches=measure_patches(model, first, probe([other_ending(scene) for scene in scenes[:size]])),
        ablated_heads=heads,
        ablated_accuracy=steps[-1].accuracy,
        zeroed_accuracy=_accuracy_without(model, second, heads),
        history=tuple(_history(model, run, first)),
    )


def _accuracy_without(model: AnyTransducer, probe: Probe, heads: tuple[HeadName, ...]) -> float:
    with replace(model, Ablation(heads=heads).hooks(model)):
        return probe.accuracy(model)


def _best(heads: Sequence[HeadAttention], ending: Role) -> tuple[HeadName, float]:
    best = max(heads, key=lambda found: found.to_right_noun(ending))
    return best.head, best.to_right_noun(ending)


def _history(model: AnyTransducer, run: Path, probe: Probe) -> Iterator[tuple[int, float, float]]:
    """Yield update, accuracy and attention to the right noun of every checkpoint."""
    earlier = copy.deepcopy(model)  # a twin shares its weights
    for update in SavedCheckpoints(run).updates():
        put_weights(earlier, checkpoint_weights(run, update), run)
        encoder = [found for found in head_attention(earlier, probe) if found.head.kind == "encoder"]
        yield update, probe.accuracy(earlier), min(_best(encoder, role)[1] for role in ROLES)

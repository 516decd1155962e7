"""Scenes of the pronoun experiment as one batch under teacher forcing, and what each head attends to in it.

The decoder reads the reference up to the word before the pronoun and chooses between pronouns, so that nothing but this
choice is tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.experiments.pronoun_corpus import Scene
from transduce.experiments.pronoun_words import BECAUSE, PRONOUNS, ROLES, Language, Role
from transduce.inference.padding import source_batch, target_batch
from transduce.inspection.component import HeadName, attention_kind
from transduce.models.interface import AnyTransducer, Memory
from transduce.nn.hook import record
from transduce.text.tokenizer import AnyTokenizer

CLAUSE = ("because", "it", "was", "too")
"""Words before the adjective, the same in every sentence."""


@dataclass(frozen=True, eq=False)
class Probe:
    """A batch of scenes with the positions of the words that matter."""

    scenes: tuple[Scene, ...]
    source: Tensor
    """(B S) tokens."""
    allowed: Tensor
    """(B S), False for padding."""
    target: Tensor
    """(B T) what the decoder reads: the start token, then the reference."""
    pronoun: Tensor
    """(B) tokens to be predicted."""
    choices: Tensor
    """(P) the pronouns of the target language."""
    step: Tensor
    """(B) target positions that predict them."""
    words: dict[str, Tensor]
    """(B) source positions of it, adjective, animal and place."""
    source_clause: Tensor
    """(B S), True in the clause with *it*, at the full stop and at the end token, which may hold what it decided."""
    target_clause: Tensor
    """(B T), True in its translation up to the pronoun, and at the start token."""

    @classmethod
    def of(cls, scenes: Sequence[Scene], language: Language, source: AnyTokenizer, target: AnyTokenizer) -> Probe:
        """Encode scenes. Tokens are whole words: the corpus has so few that the tokenizer knows them all."""
        rows = [_encoded(scene, language, source, target) for scene in scenes]
        sources, targets, words, steps, clauses = zip(*rows, strict=True)
        device = torch.device("cpu")
        source_BS, allowed_BS = source_batch(sources, source.specials, device)
        target_BT, output_BT, _ = target_batch(targets, target.specials, device)
        step_B = torch.tensor(steps)
        return cls(
            scenes=tuple(scenes),
            source=source_BS,
            allowed=allowed_BS,
            target=target_BT,
            pronoun=output_BT[torch.arange(len(rows)), step_B],
            choices=torch.tensor([target.encode(BECAUSE[language] + word)[-1] for word in PRONOUNS[language].values()]),
            step=step_B,
            words={name: torch.tensor([found[name] for found in words]) for name in words[0]},
            source_clause=_spans([spans[0] for spans in clauses], source_BS.shape[1]) | _ends(source_BS, source),
            target_clause=_spans([spans[1] for spans in clauses], target_BT.shape[1])
            | (torch.arange(target_BT.shape[1]) == 0),
        )

    def is_about(self, role: Role) -> Tensor:
        """(B), True where *it* means this noun."""
        return torch.tensor([scene.referent == role for scene in self.scenes])

    def encode(self, model: AnyTransducer) -> Memory:
        """The encoder's output."""
        with torch.no_grad():
            memory: Memory = model.encode(self.source, self.allowed)
        return memory

    def log_probabilities(self, model: AnyTransducer, memory: Memory | None = None) -> Tensor:
        """Log-probabilities of the pronouns, relative to one another.  -> (B P)."""
        with torch.no_grad():
            hidden_BTD = model(self.target, self.encode(model) if memory is None else memory)
            logits_BV: Tensor = model.logits(hidden_BTD[torch.arange(len(self.step)), self.step])
        return logits_BV[:, self.choices].log_softmax(dim=-1)

    def predict(self, model: AnyTransducer, memory: Memory | None = None) -> Tensor:
        """The pronouns that the model chooses.  -> (B) tokens."""
        return self.choices[self.log_probabilities(model, memory).argmax(dim=-1)]

    def accuracy(self, model: AnyTransducer) -> float:
        """Share of scenes whose pronoun is right."""
        return float((self.predict(model) == self.pronoun).float().mean())


def _encoded(
    scene: Scene, language: Language, source: AnyTokenizer, target: AnyTokenizer
) -> tuple[list[int], list[int], dict[str, int], int, tuple[tuple[int, int], tuple[int, int]]]:
    """Return tokens of both sides, positions of the words, the step that predicts the pronoun, and both clauses."""
    source_tokens, target_tokens = source.encode(scene.source()), target.encode(scene.target(language))
    pieces, written = _words(source, source_tokens), _words(target, target_tokens)
    words = {"adjective": scene.adjective.en, "animal": scene.animal.en, "place": scene.place.en}
    words |= {name: name for name in CLAUSE}
    positions = {name: pieces.index(word) for name, word in words.items() if word != "was"}
    positions["was"] = positions["it"] + 1  # the passive has another one
    begin = written.index(BECAUSE[language].split()[0])
    step = written.index(scene.pronoun(language), begin)
    spans = (pieces.index("because"), positions["adjective"] + 1), (begin + 1, step + 1)  # step 0 reads the start token
    return source_tokens, target_tokens, positions, step, spans


def _words(tokenizer: AnyTokenizer, tokens: Sequence[int]) -> list[str]:
    return [piece.strip("▁").lower() for piece in tokenizer.pieces(tokens)]


def _ends(source: Tensor, tokenizer: AnyTokenizer) -> Tensor:
    return (source == tokenizer.end) | (source == tokenizer.encode("x.")[-1])


def _spans(spans: Sequence[tuple[int, int]], length: int) -> Tensor:
    begin_B1, end_B1 = torch.tensor(spans).T[:, :, None]
    place_1N = torch.arange(length)[None]
    inside_BN: Tensor = (place_1N >= begin_B1) & (place_1N < end_B1)
    return inside_BN


class HeadAttention(NamedTuple):
    """Mean attention of one head to words of the source: from *it* in the encoder, from the pronoun's step in cross."""

    head: HeadName
    attention: dict[Role, dict[str, float]]
    """By ending (what *it* means), then by word attended to: it, adjective, animal, place."""

    def to_right_noun(self, ending: Role) -> float:
        """Attention to the noun that *it* means, for sentences with this ending."""
        return self.attention[ending][ending]

    @property
    def shift(self) -> float:
        """How much attention moves from one noun to the other with the ending, mean of both nouns."""
        animal, place = self.attention["animal"], self.attention["place"]
        return (animal["animal"] - place["animal"] + place["place"] - animal["place"]) / 2


def head_attention(model: AnyTransducer, probe: Probe) -> list[HeadAttention]:
    """Measure every encoder head from *it*, and every cross-attention head while the pronoun is predicted."""
    with record(model) as recorded:
        probe.predict(model)
    index_B = torch.arange(len(probe.step))
    found = []
    for path, weight_BHQM in recorded.items():
        kind = attention_kind(path)
        if kind == "decoder":
            continue
        row_BHM = weight_BHQM[index_B, :, probe.words["it"] if kind == "encoder" else probe.step]
        for head in range(row_BHM.shape[1]):
            means: dict[Role, dict[str, float]] = {}
            for role in ROLES:
                about_B = probe.is_about(role)
                to_word = {name: row_BHM[index_B, head, at_B] for name, at_B in probe.words.items()}
                means[role] = {name: float(weight_B[about_B].mean()) for name, weight_B in to_word.items()}
            found.append(HeadAttention(HeadName(kind, int(path.split(".")[1]) + 1, head + 1), means))
    return found

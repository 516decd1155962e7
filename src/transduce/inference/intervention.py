"""Interventions on one text: both models search, and both score what each of them writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from transduce.errors import SettingsError
from transduce.inference.subject import Subject
from transduce.inspection.intervention import ComparedOutput, Intervention
from transduce.inspection.patching import Patch, Where, patched
from transduce.inspection.replay import token_log_probabilities
from transduce.models.interface import AnyTransducer


def compare(subject: Subject, intact: AnyTransducer, changed: AnyTransducer, changes: tuple[str, ...]) -> Intervention:
    """Search with both models, which are twins, and score what each of them writes by both."""
    found = [subject.force(subject.search(model).hypotheses[0]) for model in (intact, changed)]
    start = subject.request.unscored
    original, new = (
        ComparedOutput(
            text=forced.output,
            tokens=forced.produced_tokens[start:],
            pieces=forced.produced_pieces[start:],
            before=tuple(token_log_probabilities(intact, forced)[start:]),
            after=tuple(token_log_probabilities(changed, forced)[start:]),
        )
        for forced in found
    )
    return Intervention(subject.text, changes, original, new)


def compare_patched(
    subject: Subject, other: Subject, patch: Patch, intact: AnyTransducer, changed: AnyTransducer
) -> Intervention:
    """Compare a model with one that takes some activations of another text; both are twins."""
    source = [*other.request.source, other.source.end]
    with patched(changed, source, subject.source.pad, patch) as model:
        return compare(subject, intact, model, (patch.describe(),))


def choose_patch(
    subject: Subject,
    other: Subject,
    where: Where,
    words: Iterable[int] | None,
    tokens: Iterable[int] | None,
    steps: Iterable[int] | None,
) -> Patch:
    """Return a patch, with the positions that correspond in both texts."""
    patch = Patch(where)
    if not patch.is_of_source:
        if words is not None or tokens is not None:
            raise SettingsError("words and tokens are for patches in the encoder; give steps of the target")
        return patch if steps is None else Patch(where, tuple((step, step) for step in sorted(steps)))
    if steps is not None:
        raise SettingsError("steps are for patches in the decoder and cross-attention; give words or tokens")
    if words is not None or tokens is not None:
        return Patch(where, tuple(_corresponding(subject, other, tuple(words or ()), tuple(tokens or ()))))
    lengths = [len(one.request.source) + 1 for one in (subject, other)]
    if where != "memory" and lengths[0] != lengths[1]:
        raise SettingsError(f"the texts have {lengths[0]} and {lengths[1]} source tokens; give the words to patch")
    return patch


def _corresponding(
    subject: Subject, other: Subject, words: Sequence[int], tokens: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Yield pairs of source positions: tokens of the same number, and the tokens of words of the same number."""
    yield from zip(subject.positions((), tokens), other.positions((), tokens), strict=True)
    for word in words:
        ours, theirs = subject.positions([word]), other.positions([word])
        if len(ours) != len(theirs):
            raise SettingsError(
                f"word {word} has {len(ours)} tokens in one text and {len(theirs)} in the other; choose "
                "words of equally many tokens"
            )
        yield from zip(ours, theirs, strict=True)

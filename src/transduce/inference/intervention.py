"""Interventions on one text: both models search, and both score what each of them writes."""

from __future__ import annotations

from collections.abc import Iterable

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
    """Return a patch, with the positions that correspond in both texts; word i of one to word i of the other."""
    patch = Patch(where)
    if patch.is_of_source:
        if steps is not None:
            raise SettingsError("steps are for patches in the decoder and cross-attention; give words or tokens")
        if words is None and tokens is None:
            ours, theirs = (len(one.request.source) + 1 for one in (subject, other))
            if ours != theirs and where != "memory":
                raise SettingsError(f"the texts have {ours} and {theirs} source tokens; give the words to patch")
            return patch
        chosen, plain = tuple(words or ()), tuple(tokens or ())
        pairs = [*zip(plain, plain, strict=True)]
        other.positions((), plain)
        for word in chosen:
            ours_of_word, theirs_of_word = subject.positions([word]), other.positions([word])
            if len(ours_of_word) != len(theirs_of_word):
                raise SettingsError(
                    f"word {word} is {len(ours_of_word)} tokens in one text and {len(theirs_of_word)} in the other; "
                    "choose words of as many tokens"
                )
            pairs += zip(ours_of_word, theirs_of_word, strict=True)
        subject.positions((), plain)
        return Patch(where, tuple(sorted(pairs)))
    if words is not None or tokens is not None:
        raise SettingsError("words and tokens are for patches in the encoder; give steps of the target")
    return patch if steps is None else Patch(where, tuple((step, step) for step in sorted(steps)))

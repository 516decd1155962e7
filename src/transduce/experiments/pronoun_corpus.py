"""Pairs of the pronoun experiment: English *it*, whose gender in German or French depends on the noun that it means.

"The animal didn't cross the street because it was too tired" is about the animal (*es*), "… too wide" about the street
(*sie*): the adjective fits only one of the two nouns. Both nouns of a pair differ in gender, and both endings are
equally frequent, so that a system that always takes the same noun is right half of the time.

A quarter of the training pairs has *I*, *you*, *he* or *she* in place of *it*, so that a translator has to read the
pronoun and cannot only look for a noun.

A fifth of the combinations of noun and adjective is held out: no training pair has both words. The adjective of a test
pair was never seen with the noun that it describes, and neither was *tired* with *animal* or *wide* with *street*.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from transduce.experiments.pronoun_words import (
    ACCUSATIVE,
    ADJECTIVES,
    ADVERBS,
    DATIVE,
    EVENTS,
    LANDMARKS,
    NOMINATIVE,
    NOUNS,
    PERSONS,
    PREPOSITIONS,
    PRONOUNS,
    ROLES,
    VERBS,
    VOWELS,
    Adjective,
    Event,
    Language,
    Noun,
    Person,
    Role,
    Verb,
)
from transduce.rng import StableRandom

PERSON_SHARE = 4
"""One sentence in this many has another pronoun in place of *it*."""
HELD_OUT = 5
"""One combination of noun and adjective in this many is held out."""
Order = Literal["active", "because-first", "adverb-first", "passive"]
ORDERS: tuple[Order, ...] = ("active", "because-first", "adverb-first", "passive")
Modal = Literal["did", "could", "would"]
MODALS: tuple[Modal, ...] = ("did", "could", "would")


@dataclass(frozen=True)
class Scene:
    """What a sentence says; `source` and `target` write it down."""

    animal: Noun
    place: Noun
    adjective: Adjective
    referent: Role
    """What *it* means, decided by the adjective."""
    verb: Verb = VERBS[0]
    modal: Modal = "did"
    order: Order = "active"
    adverb: int = 0
    """Index into ADVERBS, for the order `adverb-first`."""
    landmark: tuple[int, Noun] | None = None
    """Preposition and noun after the animal: a third noun, which *it* never means."""
    events: tuple[Event, ...] = ()
    """The clause "when …" between nouns and pronoun, four English words per event."""
    person: Person | None = None
    """In place of *it*, which is then not in the sentence."""
    stop: str = ""
    """A full stop, or nothing."""

    @property
    def noun(self) -> Noun:
        """The noun that *it* means."""
        return self.animal if self.referent == "animal" else self.place

    @property
    def other(self) -> Noun:
        """The noun that *it* does not mean."""
        return self.place if self.referent == "animal" else self.animal

    def pronoun(self, language: Language) -> str:
        """The translation of *it*."""
        return PRONOUNS[language][self.noun.gender(language)]

    @property
    def is_held_out(self) -> bool:
        """Whether *it* means a noun that training never combines with the adjective."""
        return self.person is None and held_out(self.referent, self.noun, self.adjective)

    @property
    def is_for_training(self) -> bool:
        """Whether neither noun is held out with this adjective."""
        return not any(held_out(role, getattr(self, role), self.adjective) for role in ROLES)

    def source(self) -> str:
        """The English sentence."""
        because = f"because {'it was' if self.person is None else self.person.en} too {self.adjective.en}"
        animal = f"the {self.animal.en}"
        if self.landmark is not None:
            preposition, noun = self.landmark
            animal += f" {PREPOSITIONS[preposition][0]} the {noun.en}"
        when = "".join(
            f" {word} the {event.noun.en} {event.en}" for word, event in _joined(("when", "and"), self.events)
        )
        if self.order == "passive":
            return self._sentence(f"the {self.place.en} was not {self.verb.en_participle} by {animal}{when} {because}")
        main = f"{animal} {self.modal}n't {self.verb.en} the {self.place.en}{when}"
        if self.order == "because-first":
            return self._sentence(f"{because}, {main}")
        if self.order == "adverb-first":
            main = f"{ADVERBS[self.adverb][0]} {main}"
        return self._sentence(f"{main} {because}")

    def target(self, language: Language) -> str:
        """Its translation."""
        return self._german() if language == "de" else self._french()

    def _german(self) -> str:
        landmark = ""
        if self.landmark is not None:
            preposition, noun = self.landmark
            landmark = f" {PREPOSITIONS[preposition][1]} {DATIVE[noun.de_gender]} {noun.de}"
        animal = f"{NOMINATIVE[self.animal.de_gender]} {self.animal.de}{landmark}"
        place = f"{ACCUSATIVE[self.place.de_gender]} {self.place.de}"
        verb, infinitive = self.verb.de, ""
        if self.modal != "did":
            verb, infinitive = {"could": "konnte", "would": "wollte"}[self.modal], f" {self.verb.de_infinitive}"
        when = "".join(
            f" {word} {NOMINATIVE[event.noun.de_gender]} {event.noun.de} {event.de}"
            for word, event in _joined(("als", "und"), self.events)
        )
        when = f",{when}" if when else ""
        because = f"weil {self.pronoun('de')} zu {self.adjective.de} war"
        if self.person is not None:
            because = f"weil {self.person.de} zu {self.adjective.de} {self.person.de_verb}"
        if self.order == "passive":
            by = f"{'von der' if self.animal.de_gender == 'f' else 'vom'} {self.animal.de}{landmark}"
            place = f"{NOMINATIVE[self.place.de_gender]} {self.place.de}"
            return self._sentence(f"{place} wurde {by} nicht {self.verb.de_participle}{when}, {because}")
        if self.order == "because-first":
            return self._sentence(f"{because}, {verb} {animal} {place} nicht{infinitive}{when}")
        if self.order == "adverb-first":
            return self._sentence(
                f"{ADVERBS[self.adverb][1]} {verb} {animal} {place} nicht{infinitive}{when}, {because}"
            )
        return self._sentence(f"{animal} {verb} {place} nicht{infinitive}{when}, {because}")

    def _french(self) -> str:
        animal = _french_noun(self.animal)
        if self.landmark is not None:
            preposition, noun = self.landmark
            animal += f" {PREPOSITIONS[preposition][2]} {_french_noun(noun)}"
        verb = f"n'a pas {self.verb.fr_participle}"
        if self.modal != "did":
            verb = f"ne {'pouvait' if self.modal == 'could' else 'voulait'} pas {self.verb.fr}"
        when = "".join(
            f" {word} {_french_noun(event.noun)} {event.fr}"
            for word, event in _joined(("quand", "et que"), self.events)
        )
        feminine = self.noun.fr_gender == "f"
        adjective = self.adjective.fr_feminine if feminine else self.adjective.fr
        because = f"parce qu'{self.pronoun('fr')} était trop {adjective}"
        if self.person is not None:
            adjective = self.adjective.fr_feminine if self.person.en == "she was" else self.adjective.fr
            because = f"parce {self.person.fr} trop {adjective}"
        if self.order == "passive":
            participle = self.verb.fr_participle + ("e" if self.place.fr_gender == "f" else "")
            return self._sentence(f"{_french_noun(self.place)} n'a pas été {participle} par {animal}{when} {because}")
        main = f"{animal} {verb} {_french_noun(self.place)}{when}"
        if self.order == "because-first":
            return self._sentence(f"{because}, {main}")
        if self.order == "adverb-first":
            main = f"{ADVERBS[self.adverb][2]} {main}"
        return self._sentence(f"{main} {because}")

    def _sentence(self, text: str) -> str:
        return f"{text[0].upper()}{text[1:]}{self.stop}"


def _joined(words: tuple[str, str], events: Sequence[Event]) -> Iterator[tuple[str, Event]]:
    """Pair each event with its conjunction: the first word, then the second."""
    return zip(itertools.chain(words[:1], itertools.repeat(words[1])), events, strict=False)


def _french_noun(noun: Noun) -> str:
    if noun.fr[0] in VOWELS:
        return f"l'{noun.fr}"
    return f"{'la' if noun.fr_gender == 'f' else 'le'} {noun.fr}"


def held_out(role: Role, noun: Noun, adjective: Adjective) -> bool:
    """Whether a noun and an adjective never occur together in training: a fifth, the same share for every word."""
    adjectives = (*ADJECTIVES["animal"], *ADJECTIVES["place"])
    return (NOUNS[role].index(noun) + adjectives.index(adjective)) % HELD_OUT == 0


def famous(referent: Role) -> Scene:
    """The sentence that every text about self-attention shows, with one of its two endings."""
    return Scene(NOUNS["animal"][0], NOUNS["place"][0], ADJECTIVES[referent][0], referent)


class Variety(NamedTuple):
    """What scenes are drawn from."""

    plain: int = 75
    """Percent of the scenes without any extras, active or with the clause first. A model learns the rest from few."""
    orders: tuple[Order, ...] = ORDERS
    """Orders of the others."""
    events: tuple[int, ...] = (0, 0, 1, 2)
    """Numbers of their events."""


DEFAULT_VARIETY = Variety()
PLAIN = Variety(orders=("active", "because-first"), events=(0,))


def draw_scene(random: StableRandom, language: Language, variety: Variety) -> Scene:
    """Draw a scene whose two nouns differ in gender."""
    while True:
        animal, place = random.choice(NOUNS["animal"]), random.choice(NOUNS["place"])
        if animal.gender(language) != place.gender(language):
            break
    person = random.choice(PERSONS) if random.below(PERSON_SHARE) == 0 else None
    referent: Role = random.choice(ROLES) if person is None else "animal"
    is_plain = random.below(100) < variety.plain
    if is_plain:
        variety = PLAIN
    chosen: list[Event] = []
    count = random.choice(variety.events)
    while len(chosen) < count:
        event = random.choice(EVENTS)
        if event not in chosen:
            chosen.append(event)
    order = random.choice(variety.orders)
    beside = (random.below(len(PREPOSITIONS)), random.choice(LANDMARKS))
    return Scene(
        animal,
        place,
        random.choice(ADJECTIVES[referent]),
        referent,
        random.choice(VERBS),
        "did" if is_plain or order == "passive" else random.choice(MODALS),
        order,
        random.below(len(ADVERBS)),
        None if is_plain or random.below(4) else beside,
        tuple(chosen),
        person,
        random.choice(("", ".")),
    )


def draw_scenes(
    name: str,
    count: int,
    language: Language,
    wanted: Callable[[Scene], bool],
    variety: Variety = DEFAULT_VARIETY,
) -> list[Scene]:
    """Draw different scenes that are `wanted`; they are a function of the name and the other arguments."""
    random, found = StableRandom(f"pronoun {name} {language}"), dict[str, Scene]()
    while len(found) < count:
        scene = draw_scene(random, language, variety)
        if wanted(scene):
            found.setdefault(scene.source(), scene)
    return list(found.values())


def other_ending(scene: Scene) -> Scene:
    """The same sentence with an adjective of the other noun, held out with it where the first is."""
    role: Role = "place" if scene.referent == "animal" else "animal"
    held = [one for one in ADJECTIVES[role] if held_out(role, scene.other, one) == scene.is_held_out]
    adjective = held[ADJECTIVES[scene.referent].index(scene.adjective) % len(held)]
    return replace(scene, adjective=adjective, referent=role)

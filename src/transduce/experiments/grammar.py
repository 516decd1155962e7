"""A generated language for studies: sentences with their German translation and their tree, drawn from a grammar.

The function words and the grammar are English and German, the content words are invented: so the corpus needs neither
a download nor a licence, and no text has been memorised. It is small, but has what makes translation hard:

- a lexicon whose words have frequencies by Zipf's law, so that the tail is seen once or never in training;
- agreement: articles and adjectives follow gender, case and number, verbs follow the subject;
- reordering: verbs and separable prefixes at the end of the clause, and inversion after a fronted adverb;
- ambiguity: nouns whose translation depends on the adjective before them, prepositional phrases that attach to the verb
  or to the noun before them, depending on the verb;
- choice: verbs with two equally valid translations, so that no model reaches a perplexity of 1.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal, NamedTuple, TypeVar

from transduce.rng import StableRandom

Case = Literal["nominative", "accusative", "dative"]
Gender = Literal["m", "f", "n"]
Tense = Literal["present", "perfect", "modal"]
Word = TypeVar("Word")

ENGLISH = (
    ("b", "br", "d", "dr", "f", "fl", "g", "gl", "k", "kr", "m", "n", "p", "pl", "r", "st", "t", "tr", "v", "w"),
    ("a", "e", "i", "o", "oo", "ea"),
    ("b", "ck", "d", "ft", "g", "ll", "m", "n", "nd", "p", "r", "sk", "t", "x"),
)
GERMAN = (
    ("b", "d", "f", "g", "h", "j", "k", "kn", "l", "m", "pf", "r", "sch", "schl", "sp", "t", "w", "z", "zw"),
    ("a", "au", "e", "ei", "ie", "o", "u", "ü"),
    ("ch", "f", "g", "ll", "lz", "m", "n", "ng", "pf", "r", "rt", "tz"),
)

PREFIXES = ("ab", "an", "auf", "aus", "ein", "mit", "vor", "zu")
PREPOSITIONS: tuple[tuple[str, str, Case], ...] = (
    ("with", "mit", "dative"),
    ("near", "bei", "dative"),
    ("after", "nach", "dative"),
    ("for", "für", "accusative"),
    ("without", "ohne", "accusative"),
    ("against", "gegen", "accusative"),
)
ADVERBS = (
    ("today", "heute"),
    ("often", "oft"),
    ("now", "jetzt"),
    ("here", "hier"),
    ("soon", "bald"),
    ("always", "immer"),
)

DEFINITE: dict[Case, dict[str, str]] = {
    "nominative": {"m": "der", "f": "die", "n": "das", "plural": "die"},
    "accusative": {"m": "den", "f": "die", "n": "das", "plural": "die"},
    "dative": {"m": "dem", "f": "der", "n": "dem", "plural": "den"},
}
INDEFINITE: dict[Case, dict[str, str]] = {
    "nominative": {"m": "ein", "f": "eine", "n": "ein", "plural": ""},
    "accusative": {"m": "einen", "f": "eine", "n": "ein", "plural": ""},
    "dative": {"m": "einem", "f": "einer", "n": "einem", "plural": ""},
}
STRONG_ENDINGS: dict[Case, dict[str, str]] = {
    "nominative": {"m": "er", "f": "e", "n": "es", "plural": "e"},
    "accusative": {"m": "en", "f": "e", "n": "es", "plural": "e"},
    "dative": {"m": "en", "f": "en", "n": "en", "plural": "en"},
}
"""Endings of an adjective after an indefinite article, or in the plural none."""


class Node(NamedTuple):
    """A node of a tree: its label and its parts; a word is a part that is a string."""

    label: str
    parts: tuple[Node | str, ...]

    def words(self) -> Iterator[str]:
        """Yield the words below it, from left to right."""
        for part in self.parts:
            if isinstance(part, str):
                yield part
            else:
                yield from part.words()


class Sentence(NamedTuple):
    """One English sentence with its translation and its tree."""

    english: str
    german: str
    tree: Node


@dataclass(frozen=True)
class Noun:
    """A noun. With a second sense, its translation depends on the class of the adjective before it."""

    english: str
    german: tuple[str, ...]
    genders: tuple[Gender, ...]


@dataclass(frozen=True)
class Verb:
    """A verb; with several translations, each is equally valid."""

    english: str
    german: tuple[str, ...]
    prefix: str
    """A separable prefix, or none."""
    takes_phrase: bool
    """Whether a prepositional phrase after its object belongs to the verb, not to the object."""


@dataclass(frozen=True)
class Adjective:
    """An adjective; its class selects the sense of an ambiguous noun."""

    english: str
    german: str
    sense: int


@dataclass(frozen=True)
class Sizes:
    """How many words of each kind there are."""

    nouns: int = 200
    transitive: int = 80
    intransitive: int = 40
    adjectives: int = 60


class Zipf:
    """Draws items, the first most often: the one of rank r with a weight of 1 / (r + 2)."""

    def __init__(self, count: int) -> None:
        self._sums = list(accumulate(1.0 / (rank + 2) for rank in range(count)))

    def draw(self, random: StableRandom) -> int:
        return min(bisect(self._sums, random.below(2**40) / 2**40 * self._sums[-1]), len(self._sums) - 1)


@dataclass
class Lexicon:
    """The invented words; a function of their numbers alone, so that every corpus has the same language."""

    sizes: Sizes = field(default_factory=Sizes)

    def __post_init__(self) -> None:
        random, taken = StableRandom("lexicon"), set[str]()

        def stem(sounds: tuple[Sequence[str], ...]) -> str:
            onsets, vowels, codas = sounds
            while True:
                syllables = [random.choice(onsets) + random.choice(vowels) for _ in range(random.between(1, 2))]
                word = "".join(syllables) + random.choice(codas)
                if word not in taken:
                    taken.add(word)
                    return word

        def verb() -> Verb:
            german = tuple(stem(GERMAN) for _ in range(1 + (random.below(6) == 0)))
            prefix = random.choice(PREFIXES) if random.below(4) == 0 else ""
            return Verb(stem(ENGLISH), german, prefix, random.below(2) == 0)

        def noun() -> Noun:
            senses = 1 + (random.below(8) == 0)
            genders: tuple[Gender, ...] = tuple(random.choice(("m", "f", "n")) for _ in range(senses))
            return Noun(stem(ENGLISH), tuple(stem(GERMAN).capitalize() for _ in range(senses)), genders)

        self.nouns = [noun() for _ in range(self.sizes.nouns)]
        self.transitive = [verb() for _ in range(self.sizes.transitive)]
        self.intransitive = [verb() for _ in range(self.sizes.intransitive)]
        self.adjectives = [Adjective(stem(ENGLISH), stem(GERMAN), turn % 2) for turn in range(self.sizes.adjectives)]
        self.ranks = {count: Zipf(count) for count in set(vars(self.sizes).values())}


@dataclass(frozen=True)
class Phrase:
    """A noun phrase; `gender` is "plural" for several."""

    tree: Node
    german: dict[Case, str]
    gender: str

    @property
    def is_plural(self) -> bool:
        return self.gender == "plural"


@dataclass(frozen=True)
class Predicate:
    """A predicate: the English tree, and the German parts of the clause."""

    tree: Node
    finite: str
    """The German verb that agrees with the subject."""
    middle: str
    """Objects and phrases."""
    closing: str
    """A participle, infinitive or separable prefix at the end of a main clause."""
    at_end: str
    """All verbs as they stand at the end of a subordinate clause."""


class Grammar:
    """Draws sentences; a corpus is a function of the seed and the sizes."""

    def __init__(self, seed: int | str, sizes: Sizes | None = None) -> None:
        self.lexicon = Lexicon(sizes or Sizes())
        self.random = StableRandom(f"grammar {seed}")

    def sentences(self, count: int) -> Iterator[Sentence]:
        """Yield sentences; the first of a larger corpus are those of a smaller one."""
        return (self.sentence() for _ in range(count))

    def sentence(self) -> Sentence:
        """Draw a sentence: a main clause, sometimes with a reason."""
        tree, german = self._main_clause()
        if self._one_in(4):
            reason, subordinate = self._subordinate_clause()
            tree = Node("S", (*tree.parts, Node("SBAR", ("because", reason))))
            german = f"{german}, weil {subordinate}"
        english = " ".join(tree.words())
        return Sentence(f"{english}.", _punctuated(german), tree)

    def _main_clause(self) -> tuple[Node, str]:
        subject = self._noun_phrase(depth=0)
        predicate = self._predicate(subject.is_plural, depth=0)
        if self._one_in(4):
            english, german = self.random.choice(ADVERBS)
            tree = Node("S", (Node("ADVP", (english,)), subject.tree, predicate.tree))
            german = _joined(
                german, predicate.finite, subject.german["nominative"], predicate.middle, predicate.closing
            )
        else:
            tree = Node("S", (subject.tree, predicate.tree))
            german = _joined(subject.german["nominative"], predicate.finite, predicate.middle, predicate.closing)
        return tree, german

    def _subordinate_clause(self) -> tuple[Node, str]:
        subject = self._noun_phrase(depth=1)
        predicate = self._predicate(subject.is_plural, depth=1)
        german = _joined(subject.german["nominative"], predicate.middle, predicate.at_end)
        return Node("S", (subject.tree, predicate.tree)), german

    def _noun_phrase(self, depth: int, bare: bool = False) -> Phrase:
        """Draw a noun phrase; only the outer ones have clauses and phrases of their own, and `bare` ones never."""
        noun, plural, definite = self._draw(self.lexicon.nouns), self._one_in(3), self.random.below(10) < 7
        adjective = self._draw(self.lexicon.adjectives) if self._one_in(3) else None
        sense = min(adjective.sense if adjective else 0, len(noun.german) - 1)
        gender = "plural" if plural else noun.genders[sense]
        article = "the" if definite else "" if plural else "a"
        english = [article, adjective.english if adjective else "", noun.english + "s" * plural]
        tree = Node("NP", tuple(word for word in english if word))
        german = {case: _declined(case, gender, definite, adjective, noun.german[sense]) for case in DEFINITE}
        phrase = Phrase(tree, german, gender)
        if depth == 0 and not bare and self._one_in(5):
            return self._with_relative_clause(phrase)
        return phrase

    def _with_relative_clause(self, phrase: Phrase) -> Phrase:
        """Add a clause in which the noun is the subject or the object."""
        if self._one_in(2):
            predicate = self._predicate(phrase.is_plural, depth=1)
            clause = Node("SBAR", ("that", predicate.tree))
            german = _joined(DEFINITE["nominative"][phrase.gender], predicate.middle, predicate.at_end)
        else:
            subject = self._noun_phrase(depth=1)
            verb, tense = self._draw(self.lexicon.transitive), self._tense()
            english, _, at_end, _ = self._conjugated(verb, tense, subject.is_plural)
            clause = Node("SBAR", ("that", Node("S", (subject.tree, Node("VP", tuple(english))))))
            german = _joined(DEFINITE["accusative"][phrase.gender], subject.german["nominative"], at_end)
        tree = Node("NP", (phrase.tree, clause))
        return Phrase(tree, {case: f"{text} , {german} ," for case, text in phrase.german.items()}, phrase.gender)

    def _predicate(self, plural: bool, depth: int) -> Predicate:
        tense = self._tense()
        if self._one_in(3):
            verb, parts, middle = self._draw(self.lexicon.intransitive), list[Node | str](), ""
        else:
            verb = self._draw(self.lexicon.transitive)
            direct = self._noun_phrase(depth)
            parts, middle = [direct.tree], direct.german["accusative"]
        if self._one_in(4):
            phrase, german = self._prepositional_phrase()
            if parts and not verb.takes_phrase:
                parts = [Node("NP", (*parts, phrase))]
            else:
                parts = [*parts, phrase]
            middle = _joined(middle, german)
        english, finite, at_end, closing = self._conjugated(verb, tense, plural)
        return Predicate(Node("VP", (*english, *parts)), finite, middle, closing, at_end)

    def _prepositional_phrase(self) -> tuple[Node, str]:
        english, german, case = self.random.choice(PREPOSITIONS)
        noun = self._noun_phrase(depth=1, bare=True)
        return Node("PP", (english, noun.tree)), f"{german} {noun.german[case]}"

    def _conjugated(self, verb: Verb, tense: Tense, plural: bool) -> tuple[list[str], str, str, str]:
        """Return the English words, the German finite verb, the verbs at the end of a subordinate clause, and what
        ends a main clause."""
        stem, prefix, negated = self.random.choice(verb.german), verb.prefix, self._one_in(6)
        no = "nicht" if negated else ""
        if tense == "present":
            english = (
                ["do" if plural else "does", "not", verb.english] if negated else [verb.english + "s" * (not plural)]
            )
            finite = stem + ("en" if plural else "t")
            return english, finite, _joined(no, prefix + finite), _joined(no, prefix)
        helper = {"perfect": ("has", "have", "hat", "haben"), "modal": ("can", "can", "kann", "können")}[tense]
        form, german = (
            (verb.english + "ed", f"{prefix}ge{stem}t") if tense == "perfect" else (verb.english, f"{prefix}{stem}en")
        )
        english = [helper[plural], *(["not"] if negated else []), form]
        finite = helper[2 + plural]
        return english, finite, _joined(no, german, finite), _joined(no, german)

    def _tense(self) -> Tense:
        tenses: tuple[Tense, ...] = ("present", "present", "perfect", "modal")
        return self.random.choice(tenses)

    def _one_in(self, count: int) -> bool:
        return self.random.below(count) == 0

    def _draw(self, words: Sequence[Word]) -> Word:
        return words[self.lexicon.ranks[len(words)].draw(self.random)]


def _declined(case: Case, gender: str, definite: bool, adjective: Adjective | None, noun: str) -> str:
    article = (DEFINITE if definite else INDEFINITE)[case][gender]
    if definite:
        ending = "e" if gender != "plural" and case != "dative" and (gender, case) != ("m", "accusative") else "en"
    else:
        ending = STRONG_ENDINGS[case][gender]
    ending_of_noun = "" if gender != "plural" else "en"
    return _joined(article, adjective.german + ending if adjective else "", noun + ending_of_noun)


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _punctuated(clauses: str) -> str:
    """End a German sentence, with one comma where two clauses meet and none before the full stop."""
    text = f"{clauses} .".replace(" , ,", " ,").replace(" ,,", " ,").replace(" , .", " .")
    return (text[0].upper() + text[1:]).replace(" ,", ",").replace(" .", ".")

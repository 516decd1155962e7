"""Vocabulary of the pronoun demo: words in English, German and French, with the forms and genders that are needed."""

from __future__ import annotations

from typing import Literal, NamedTuple

Language = Literal["de", "fr"]
Role = Literal["animal", "place"]
ROLES: tuple[Role, Role] = ("animal", "place")


class Noun(NamedTuple):
    """A noun: English, then word and gender in German and in French."""

    en: str
    de: str
    de_gender: str
    fr: str
    fr_gender: str

    def word(self, language: Language) -> str:
        """The noun in a target language."""
        return self.de if language == "de" else self.fr

    def gender(self, language: Language) -> str:
        """Its gender: m, f or n."""
        return self.de_gender if language == "de" else self.fr_gender


class Adjective(NamedTuple):
    """An adjective that describes animals only, or places only."""

    en: str
    de: str
    fr: str
    fr_feminine: str


class Verb(NamedTuple):
    """A transitive verb in the forms that are needed."""

    en: str
    en_participle: str
    de: str
    """Past tense, third person."""
    de_infinitive: str
    de_participle: str
    fr: str
    """Infinitive."""
    fr_participle: str


class Event(NamedTuple):
    """A clause that has nothing to do with the rest: the noun as in `Noun`, the verb in three languages."""

    noun: Noun
    en: str
    de: str
    fr: str


class Person(NamedTuple):
    """A pronoun that means the same whatever the sentence says, with its verb."""

    en: str
    de: str
    de_verb: str
    fr: str
    """From "parce" on."""


def _nouns(table: str) -> tuple[Noun, ...]:
    return tuple(Noun(*row.split()) for row in table.strip().splitlines())


def _adjectives(table: str) -> tuple[Adjective, ...]:
    rows = [row.split() for row in table.strip().splitlines()]
    return tuple(Adjective(en, de, fr, feminine[0] if feminine else fr) for en, de, fr, *feminine in rows)


NOUNS: dict[Role, tuple[Noun, ...]] = {
    "animal": _nouns("""
        animal   Tier      n  animal     m
        dog      Hund      m  chien      m
        cat      Katze     f  chat       m
        horse    Pferd     n  cheval     m
        frog     Frosch    m  grenouille f
        cow      Kuh       f  vache      f
        chicken  Huhn      n  poule      f
        fox      Fuchs     m  renard     m
        goat     Ziege     f  chèvre     f
        weasel   Wiesel    n  belette    f
        panther  Panther   m  panthère   f
        mouse    Maus      f  souris     f
        sheep    Schaf     n  mouton     m
        donkey   Esel      m  âne        m
        snake    Schlange  f  serpent    m
    """),
    "place": _nouns("""
        street   Straße    f  rue        f
        path     Weg       m  sentier    m
        field    Feld      n  champ      m
        bridge   Brücke    f  pont       m
        hill     Hügel     m  colline    f
        valley   Tal       n  vallée     f
        meadow   Wiese     f  prairie    f
        river    Fluss     m  rivière    f
        swamp    Moor      n  marais     m
        alley    Gasse     f  ruelle     f
        square   Platz     m  place      f
        plateau  Plateau   n  plateau    m
        desert   Wüste     f  désert     m
        forest   Wald      m  forêt      f
        terrain  Gelände   n  terrain    m
    """),
}
ADJECTIVES: dict[Role, tuple[Adjective, ...]] = {
    "animal": _adjectives("""
        tired       müde         fatigué     fatiguée
        hungry      hungrig      affamé      affamée
        thirsty     durstig      assoiffé    assoiffée
        sleepy      schläfrig    somnolent   somnolente
        sick        krank        malade
        weak        schwach      faible
        lazy        faul         paresseux   paresseuse
        nervous     nervös       nerveux     nerveuse
        shy         scheu        timide
        impatient   ungeduldig   impatient   impatiente
        exhausted   erschöpft    épuisé      épuisée
        stubborn    stur         têtu        têtue
        frightened  verängstigt  effrayé     effrayée
        confused    verwirrt     désorienté  désorientée
        clumsy      ungeschickt  maladroit   maladroite
    """),
    "place": _adjectives("""
        wide      breit      large
        steep     steil      escarpé      escarpée
        long      lang       long         longue
        crowded   überfüllt  bondé        bondée
        icy       vereist    verglacé     verglacée
        slippery  rutschig   glissant     glissante
        bumpy     holprig    bosselé      bosselée
        dusty     staubig    poussiéreux  poussiéreuse
        rocky     felsig     rocheux      rocheuse
        stony     steinig    pierreux     pierreuse
        uneven    uneben     inégal       inégale
        sandy     sandig     sablonneux   sablonneuse
        muddy     schlammig  boueux       boueuse
        foggy     neblig     brumeux      brumeuse
        flat      flach      plat         plate
    """),
}
VERBS = tuple(
    Verb(*row.split())
    for row in """
        cross    crossed   überquerte   überqueren   überquert   traverser  traversé
        leave    left      verließ      verlassen    verlassen   quitter    quitté
        reach    reached   erreichte    erreichen    erreicht    atteindre  atteint
        explore  explored  erkundete    erkunden     erkundet    explorer   exploré
        visit    visited   besuchte     besuchen     besucht     visiter    visité
        search   searched  durchsuchte  durchsuchen  durchsucht  fouiller   fouillé
    """.strip().splitlines()
)
LANDMARKS = _nouns("""
    church    Kirche   f  église    f
    mill      Mühle    f  moulin    m
    tower     Turm     m  tour      f
    castle    Schloss  n  château   m
    gate      Tor      n  portail   m
    fountain  Brunnen  m  fontaine  f
""")
EVENTS = tuple(
    Event(Noun(*row[:5]), *row[5:])
    for row in map(
        str.split,
        """
        bell   Glocke  f  cloche   f  rang       läutete    sonnait
        wind   Wind    m  vent     m  blew       wehte      soufflait
        rain   Regen   m  pluie    f  fell       fiel       tombait
        snow   Schnee  m  neige    f  melted     schmolz    fondait
        sun    Sonne   f  soleil   m  shone      schien     brillait
        fire   Feuer   n  feu      m  burned     brannte    brûlait
        music  Musik   f  musique  f  played     spielte    jouait
        train  Zug     m  train    m  arrived    ankam      arrivait
        clock  Uhr     f  horloge  f  struck     schlug     sonnait
        light  Licht   n  lumière  f  flickered  flackerte  vacillait
        ice    Eis     n  glace    f  cracked    knackte    craquait
        water  Wasser  n  eau      f  rose       stieg      montait
        """.strip().splitlines(),
    )
)
ADVERBS = (
    ("yesterday", "gestern", "hier,"),
    ("today", "heute", "aujourd'hui,"),
    ("tonight", "heute Nacht", "cette nuit,"),
    ("this time", "diesmal", "cette fois,"),
)
PREPOSITIONS = (("behind", "hinter", "derrière"), ("in front of", "vor", "devant"))

PERSONS = (
    Person("I was", "ich", "war", "que j'étais"),
    Person("you were", "du", "warst", "que tu étais"),
    Person("he was", "er", "war", "qu'il était"),
    Person("she was", "sie", "war", "qu'elle était"),
)

PRONOUNS: dict[Language, dict[str, str]] = {
    "de": {"m": "er", "f": "sie", "n": "es"},
    "fr": {"m": "il", "f": "elle"},
}
BECAUSE: dict[Language, str] = {"de": "weil ", "fr": "parce qu'"}
"""What stands before the pronoun."""
NOMINATIVE = {"m": "der", "f": "die", "n": "das"}
ACCUSATIVE = {"m": "den", "f": "die", "n": "das"}
DATIVE = {"m": "dem", "f": "der", "n": "dem"}
VOWELS = "aâeéèêiîoôuûh"

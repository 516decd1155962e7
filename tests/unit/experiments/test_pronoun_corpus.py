"""The pairs of the pronoun demo: grammar by hand-written sentences, held-out combinations, balance."""

from __future__ import annotations

from transduce.experiments.pronoun_corpus import (
    ADJECTIVES,
    EVENTS,
    LANDMARKS,
    NOUNS,
    PERSONS,
    ROLES,
    VERBS,
    Language,
    Scene,
    draw_scenes,
    famous,
    other_ending,
)

ANIMALS = {noun.en: noun for noun in NOUNS["animal"]}
PLACES = {noun.en: noun for noun in NOUNS["place"]}


def scenes(count: int = 400, language: Language = "de", test: bool = False) -> list[Scene]:
    """Draw some scenes for training or for the test."""
    return draw_scenes("x", count, language, lambda s: s.is_held_out if test else s.is_for_training)


def test_the_famous_sentences_are_translated_as_everybody_would() -> None:
    expected = {
        "animal": (
            "The animal didn't cross the street because it was too tired",
            "Das Tier überquerte die Straße nicht, weil es zu müde war",
            "L'animal n'a pas traversé la rue parce qu'il était trop fatigué",
        ),
        "place": (
            "The animal didn't cross the street because it was too wide",
            "Das Tier überquerte die Straße nicht, weil sie zu breit war",
            "L'animal n'a pas traversé la rue parce qu'elle était trop large",
        ),
    }
    for role in ROLES:
        scene = famous(role)
        assert (scene.source(), scene.target("de"), scene.target("fr")) == expected[role]
        assert scene.is_held_out and not scene.is_for_training


def test_every_order_case_and_gender_follows_the_grammar() -> None:
    cross, leave, reach = VERBS[:3]
    hungry, wide = ADJECTIVES["animal"][1], ADJECTIVES["place"][0]
    church, bell, clock = LANDMARKS[0], EVENTS[0], EVENTS[8]
    dog, cat, frog = ANIMALS["dog"], ANIMALS["cat"], ANIMALS["frog"]
    path, street, field = PLACES["path"], PLACES["street"], PLACES["field"]
    cases = [
        (
            Scene(dog, street, hungry, "animal", leave, "could", "because-first"),
            "Because it was too hungry, the dog couldn't leave the street",
            "Weil er zu hungrig war, konnte der Hund die Straße nicht verlassen",
            "Parce qu'il était trop affamé, le chien ne pouvait pas quitter la rue",
        ),
        (
            Scene(cat, path, wide, "place", reach, "did", "passive", events=(bell, clock), stop="."),
            "The path was not reached by the cat when the bell rang and the clock struck because it was too wide.",
            "Der Weg wurde von der Katze nicht erreicht, als die Glocke läutete und die Uhr schlug, weil er zu breit "
            "war.",
            "Le sentier n'a pas été atteint par le chat quand la cloche sonnait et que l'horloge sonnait parce qu'il "
            "était trop large.",
        ),
        (
            Scene(frog, field, hungry, "animal", cross, "would", "adverb-first", 0, (0, church)),
            "Yesterday the frog behind the church wouldn't cross the field because it was too hungry",
            "Gestern wollte der Frosch hinter der Kirche das Feld nicht überqueren, weil er zu hungrig war",
            "Hier, la grenouille derrière l'église ne voulait pas traverser le champ parce qu'elle était trop affamée",
        ),
        (
            Scene(cat, path, hungry, "animal", cross),
            "The cat didn't cross the path because it was too hungry",
            "Die Katze überquerte den Weg nicht, weil sie zu hungrig war",
            "Le chat n'a pas traversé le sentier parce qu'il était trop affamé",
        ),
        (
            Scene(dog, street, hungry, "animal", cross, "did", "passive"),
            "The street was not crossed by the dog because it was too hungry",
            "Die Straße wurde vom Hund nicht überquert, weil er zu hungrig war",
            "La rue n'a pas été traversée par le chien parce qu'il était trop affamé",
        ),
    ]
    you, she = PERSONS[1], PERSONS[3]
    cases += [
        (
            Scene(dog, street, hungry, "animal", person=you),
            "The dog didn't cross the street because you were too hungry",
            "Der Hund überquerte die Straße nicht, weil du zu hungrig warst",
            "Le chien n'a pas traversé la rue parce que tu étais trop affamé",
        ),
        (
            Scene(dog, street, hungry, "animal", person=she),
            "The dog didn't cross the street because she was too hungry",
            "Der Hund überquerte die Straße nicht, weil sie zu hungrig war",
            "Le chien n'a pas traversé la rue parce qu'elle était trop affamée",
        ),
    ]
    for scene, source, german, french in cases:
        assert (scene.source(), scene.target("de"), scene.target("fr")) == (source, german, french)


def test_the_pronoun_has_the_gender_of_the_noun_that_the_adjective_fits() -> None:
    pronouns: dict[Language, dict[str, str]] = {
        "de": {"m": "er", "f": "sie", "n": "es"},
        "fr": {"m": "il", "f": "elle"},
    }
    for language, by_gender in pronouns.items():
        for scene in scenes(language=language):
            assert scene.adjective in ADJECTIVES[scene.referent]
            assert scene.animal.gender(language) != scene.place.gender(language)
            if scene.person is not None:
                continue
            words = scene.target(language).lower().replace("'", " ").replace(",", " ").split()
            [written] = [word for word in words if word in by_gender.values()]
            assert written == by_gender[scene.noun.gender(language)]


def test_test_pairs_combine_words_that_no_training_pair_combines() -> None:
    def combinations(chosen: list[Scene]) -> set[tuple[str, str]]:
        return {(noun.en, scene.adjective.en) for scene in chosen for noun in (scene.animal, scene.place)}

    train = scenes(3000)
    assert not combinations(train) & {(s.noun.en, s.adjective.en) for s in scenes(500, test=True)}
    every = {(noun.en, one.en) for role in ROLES for noun in NOUNS[role] for one in ADJECTIVES[role]}
    held = {(noun.en, one.en) for role in ROLES for noun in NOUNS[role] for one in ADJECTIVES[role]} & {
        (s.noun.en, s.adjective.en) for s in scenes(2000, test=True)
    }
    assert len(held) == len(every) / 5
    seen = combinations(train)
    assert {word for word, _ in seen} == {*ANIMALS, *PLACES}
    assert {word for _, word in seen} == {one.en for role in ROLES for one in ADJECTIVES[role]}


def test_always_taking_the_same_noun_is_right_half_of_the_time() -> None:
    for test in (False, True):
        drawn = [scene for scene in scenes(2000, test=test) if scene.person is None]
        assert 0.45 < sum(scene.referent == "animal" for scene in drawn) / len(drawn) < 0.55


def test_scenes_are_a_function_of_their_name() -> None:
    assert scenes(50) == scenes(50) == scenes(80)[:50]
    assert len({scene.source() for scene in scenes(300)}) == 300


def test_the_other_ending_changes_only_the_adjective() -> None:
    for scene in scenes(100, test=True):
        other = other_ending(scene)
        assert other.is_held_out and other.referent != scene.referent
        assert other.source() == scene.source().replace(scene.adjective.en, other.adjective.en)


def test_nouns_have_all_genders_in_equal_numbers() -> None:
    for role in ROLES:
        genders = [noun.de_gender for noun in NOUNS[role]]
        assert {genders.count(gender) for gender in "mfn"} == {5}
        assert 5 <= [noun.fr_gender for noun in NOUNS[role]].count("f") <= 10

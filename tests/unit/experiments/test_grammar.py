"""The generated language: the same for everybody, grammatical, and hard enough."""

from __future__ import annotations

from itertools import islice

from transduce.experiments.grammar import DEFINITE, Grammar, Lexicon, Node, Sizes

SMALL = Sizes(nouns=11, transitive=7, intransitive=5, adjectives=3)


def test_a_seed_stands_for_one_corpus_and_a_longer_one_begins_with_it() -> None:
    first = list(Grammar(1, SMALL).sentences(20))
    assert first == list(islice(Grammar(1, SMALL).sentences(30), 20))
    assert first != list(Grammar(2, SMALL).sentences(20))


def test_the_words_of_the_tree_are_the_sentence() -> None:
    for sentence in Grammar(3, SMALL).sentences(50):
        assert " ".join(sentence.tree.words()) + "." == sentence.english


def test_a_subordinate_clause_has_its_verb_at_the_end() -> None:
    stems = {stem for verb in Lexicon(SMALL).transitive + Lexicon(SMALL).intransitive for stem in verb.german}
    clauses = [s.german.rstrip(".").split(", weil ")[1] for s in Grammar(4, SMALL).sentences(200) if "weil" in s.german]
    assert len(clauses) > 20
    for clause in clauses:
        last = clause.split()[-1]
        assert last in ("hat", "haben", "kann", "können") or any(stem in last for stem in stems), clause


def test_articles_agree_with_the_gender_of_their_noun() -> None:
    genders = {
        german: gender
        for noun in Lexicon(SMALL).nouns
        for german, gender in zip(noun.german, noun.genders, strict=True)
    }
    for sentence in Grammar(5, SMALL).sentences(200):
        first, second, *_ = sentence.german.split()
        if second.rstrip(".,") in genders and first.lower() in ("der", "die", "das"):
            assert first.lower() == DEFINITE["nominative"][genders[second.rstrip(".,")]], sentence.german


def test_punctuation_is_clean() -> None:
    for sentence in Grammar(6, SMALL).sentences(300):
        assert sentence.german[0].isupper() and sentence.german.endswith(".")
        assert not any(bad in sentence.german for bad in (",,", ",.", " ,", " .", "  "))


def test_clauses_and_phrases_nest() -> None:
    labels = {node.label for sentence in Grammar(7, SMALL).sentences(100) for node in _nodes(sentence.tree)}
    assert labels == {"S", "NP", "VP", "PP", "SBAR", "ADVP"}


def _nodes(node: Node) -> list[Node]:
    return [node, *(found for part in node.parts if isinstance(part, Node) for found in _nodes(part))]

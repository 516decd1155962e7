from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import transduce
from tests.unit.small_language_model import WINDOW, save_writer, writer
from transduce.errors import SettingsError
from transduce.inference.generator import Generator
from transduce.model_folder import ModelFolder
from transduce.text.corpus import DocumentPart
from transduce.text.tokenizer.streaming import StreamedText
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer


def hasty() -> ModelFolder:
    """A model that ends as soon as it may."""
    contents = writer()
    with torch.no_grad():
        contents.transducer.output.bias[contents.target_tokenizer.end] = 50.0  # type: ignore[index]
    return contents


def next_token(generator: Generator, context: list[int]) -> int:
    """The likeliest token behind a context, read at once; neither padding nor start are ever written."""
    tokens = torch.tensor([context])
    with torch.no_grad():
        memory = generator.model.encode(tokens[:, :0], tokens[:, :0].bool())
        scores = generator.model.logits(generator.model(tokens, memory))[0, -1]
    scores[[generator.tokenizer.pad, generator.tokenizer.start]] = -torch.inf
    return int(scores.argmax())


@pytest.mark.parametrize("prompt", ["", "the cat", "x" * (WINDOW - 3)])
def test_a_greedy_continuation_reads_on_from_the_second_half_of_a_full_window(prompt: str) -> None:
    generator = Generator(writer())
    end = generator.tokenizer.end
    tokens = [end, *generator.tokenizer.encode(prompt)]
    room = WINDOW - min(90, WINDOW // 2)
    context, written = tokens[-room:], []
    while len(written) < 90:
        token = next_token(generator, context)
        if token == end:
            break
        written.append(token)
        context = [*context, token]
        if len(context) == WINDOW:
            context = [*tokens, *written][-(WINDOW // 2) :]
    answer = generator.generate([prompt], method="greedy", max_length=90, n_best=1)[0][0]
    assert answer.tokens == len(written) > WINDOW
    assert answer.text == generator.tokenizer.decode(written)


def test_only_the_end_of_a_long_prompt_is_read_and_that_is_counted() -> None:
    generator = Generator(writer())
    long = "and the dog lay down " * 5
    found = generator.generate([long, "a"], method="greedy", max_length=10)
    assert (generator.counts.prompts, generator.counts.shortened) == (2, 1)
    bare = Generator(writer(notes={"prompt_start": "nothing"}))
    kept = WINDOW - 10
    assert bare.generate([long[-kept:]], method="greedy", max_length=10) == found[:1]
    assert bare.counts.shortened == 0


def test_what_stands_before_a_prompt_is_the_end_of_a_document_unless_the_folder_says_otherwise() -> None:
    answers = {
        first: Generator(writer(notes={"prompt_start": first})).generate(["the c"], method="greedy", max_length=8)
        for first in ("end", "start", "nothing")
    }
    assert Generator(writer()).generate(["the c"], method="greedy", max_length=8) == answers["end"]
    assert len({tuple(answer) for answer in answers.values()}) == 3


def test_a_document_may_open_with_token_0() -> None:
    contents = writer(notes={"prompt_start": "start"})
    contents.target_tokenizer.start = 0
    generator = Generator(contents)
    context = [0, *generator.tokenizer.encode("the c")]
    written = [next_token(generator, context)]
    while len(written) < 8:
        written.append(next_token(generator, [*context, *written]))
    found = generator.generate(["the c"], method="greedy", max_length=8)
    assert found == [generator.tokenizer.decode(written)]


@pytest.mark.parametrize("kind", ["character", "byte", "bpe", "word"])
@pytest.mark.parametrize("given", [{"method": "greedy"}, {"seed": 3}, {"seed": 5, "top_k": 7, "temperature": 1.3}])
def test_a_stream_says_the_same_piece_by_piece(kind: str, given: dict[str, object]) -> None:
    generator = Generator(writer(kind))
    options = generator.options(max_length=60, **given)
    (whole,) = generator.generate(["the cat"], max_length=60, **given)
    pieces = list(generator.stream("the cat", options))
    assert "".join(pieces) == whole
    assert len(pieces) > 3


def test_broken_bytes_are_streamed_once_they_are_certain() -> None:
    contents = writer()
    with torch.no_grad():
        contents.transducer.output.bias[3:259] = 2.0  # type: ignore[index]
    generator = Generator(contents)
    for seed in range(5):
        (whole,) = generator.generate(["the cat"], seed=seed, max_length=60)
        assert "\ufffd" in whole
        assert "".join(generator.stream("the cat", generator.options(seed=seed, max_length=60))) == whole


def test_a_seed_repeats_a_sample_and_several_are_drawn_with_scores() -> None:
    generator = Generator(writer())
    assert generator.generate(["a", "b"], seed=1) == generator.generate(["a", "b"], seed=1)
    assert generator.generate(["a"], seed=1) != generator.generate(["a"], seed=2)
    (several,) = generator.generate(["a"], seed=1, n_best=4, max_length=8)
    assert len({one.text for one in several}) == 4
    assert all(one.log_probability < 0 and one.tokens <= 8 for one in several)


def test_a_score_is_of_the_whole_text_however_often_the_window_moved() -> None:
    generator = Generator(writer())
    ((one,),) = generator.generate(
        ["a"], seed=1, n_best=1, max_length=100, length_normalization="power", length_penalty=1.0
    )
    assert one.tokens > (generator.model.max_target or 0)
    assert one.score == pytest.approx(one.log_probability / (one.tokens + one.ended))


def test_a_beam_is_at_least_as_likely_as_taking_the_best_each_time() -> None:
    generator = Generator(writer())
    (greedy,) = generator.generate(["the"], method="greedy", n_best=1, max_length=6, length_penalty=0.0)
    (beam,) = generator.generate(["the"], beam_size=8, n_best=2, max_length=6, length_penalty=0.0)
    best = max(one.log_probability for one in beam)
    assert best >= greedy[0].log_probability - 1e-5


def test_lengths_stop_strings_and_forbidden_words() -> None:
    generator = Generator(writer())
    (plain,) = generator.generate(["the"], seed=4, max_length=100)
    stop = plain[40:43]
    assert len(plain) > 60 and plain.index(stop) == 40
    (stopped,) = generator.generate(["the"], seed=4, max_length=100, stop_at=[stop])
    assert stopped == plain[: plain.index(stop)]
    options, constraints = generator.options(seed=4, max_length=100), generator.constraints((), [stop])
    assert "".join(generator.stream("the", options, constraints)) == stopped
    generator = Generator(hasty())
    short = generator.generate(["the cat"], method="greedy", n_best=1, max_length=70, min_length=50)[0][0]
    assert short.tokens == 50 and short.ended
    assert generator.generate(["the cat"], method="greedy") == [""]
    words = Generator(writer("word"))
    (free,) = words.generate(["the"], method="greedy", max_length=12)
    unwanted = free.split()[0]
    (without,) = words.generate(["the"], method="greedy", max_length=12, forbid=[unwanted])
    assert unwanted not in without.split() and without.split()


def test_a_continuation_starts_where_the_prompt_ended() -> None:
    generator = Generator(writer("bpe"))
    (rest,) = generator.generate(["the ca"], method="greedy", max_length=5)
    tokens = generator.tokenizer.encode("the ca")
    whole = [generator.tokenizer.end, *tokens]
    for _ in range(5):
        whole.append(next_token(generator, whole))
    assert "the ca" + rest == generator.tokenizer.decode(whole)


def test_a_text_is_scored_in_one_window_as_forward_scores_it() -> None:
    generator = Generator(writer())
    found = generator.score_text([DocumentPart("the cat"), DocumentPart("a dog")])
    end, encode = generator.tokenizer.end, generator.tokenizer.encode
    tokens = torch.tensor([[end, *encode("the cat"), end, *encode("a dog"), end]])
    with torch.no_grad():
        memory = generator.model.encode(tokens[:, :0], tokens[:, :0].bool())
        scores = generator.model.logits(generator.model(tokens[:, :-1], memory))[0]
    loss = torch.nn.functional.cross_entropy(scores, tokens[0, 1:], reduction="sum")
    assert found.log_probability == pytest.approx(-float(loss), rel=1e-5)
    assert (found.tokens, found.words, found.bytes) == (tokens.shape[1] - 1, 4, 12)


def test_load_gives_what_the_folder_is_for(tmp_path: Path) -> None:
    folder = save_writer(tmp_path / "writer", notes={"search": {"method": "sample", "temperature": 0.5}})
    generator = transduce.load(folder)
    assert isinstance(generator, Generator) and generator.defaults.temperature == 0.5
    assert generator.defaults.max_length == 200
    assert isinstance(generator("the"), str)
    with pytest.raises(SettingsError, match=r"holds a language model.*use `transduce generate"):
        transduce.load(folder, folder)
    with pytest.raises(TypeError, match="generate takes a list of prompts"):
        generator.generate("the")


@pytest.mark.parametrize("kind", ["bpe", "unigram", "character", "byte", "word", "wordpiece"])
def test_streamed_text_is_decoded_in_a_window_and_equals_the_whole(kind: str) -> None:
    text = ["the quick brown fox, isn't it? ä ö 東京 no"] * 3
    tokenizer = train_tokenizer(kind, text, TokenizerConfig(vocab_size=300, min_frequency=1, kind="byte"))
    draw, longest = random.Random(kind), 0
    written = [draw.randrange(4, tokenizer.size) for _ in range(500)]
    prompt = tokenizer.encode("the fox")

    def decode(tokens: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(tokens))
        return tokenizer.decode(tokens)

    streamed = StreamedText(decode, prompt)
    for count in range(1, len(written) + 1):
        before, tail = streamed.decode(written[:count])
        if count % 50 == 0 and not tail.endswith("\ufffd"):
            whole = tokenizer.decode([*prompt, *written[:count]])
            assert before + tail == whole[len(tokenizer.decode(prompt)) :]
    assert longest < 300

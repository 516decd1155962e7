"""Jobs carried out with real models through the schedulers: the answers are those of the models alone."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.copy_translator import WORDS_OF_TEXT, copier
from transduce.inference.ctranslate2.export import is_installed
from transduce.inference.load import load_generator, load_text_encoder, load_translator
from transduce.inference.text_encoder import as_json
from transduce.serving.caller import CALLER, Caller
from transduce.serving.job import EmbedJob, GenerateJob, Job, JobError, PredictJob, Result, TranslateJob
from transduce.serving.loading import load_runner, state_bytes
from transduce.serving.process import EngineSettings
from transduce.serving.runner import Runner, TranslatorRunner
from transduce.serving.scheduler import Capacity

STORED = Path(__file__).resolve().parents[1] / "stored"
WORDS = ("one", "two", "three", "red", "green", "blue")
TEXTS = [" ".join(WORDS[(start + step) % 6] for step in range(1 + start % 5)) for start in range(24)]


def run(runner: Runner, job: Job, caller: Caller | None = None) -> Result:
    CALLER.set(caller or Caller("a test", time.monotonic() + 60))
    return runner.run(job)


def streamed(runner: Runner, job: Job) -> tuple[list[str], Result]:
    CALLER.set(Caller("a test", time.monotonic() + 60))
    pieces, stream = [], runner.stream(job)
    while True:
        try:
            pieces.append(next(stream))
        except StopIteration as end:
            return pieces, end.value


@pytest.fixture(params=["translation", "language_modeling", "text_encoding"])
def settings(request: pytest.FixtureRequest) -> EngineSettings:
    return EngineSettings(str(STORED / request.param), request.param)


@pytest.fixture
def translation() -> Iterator[Runner]:
    runner, _ = load_runner(EngineSettings(str(STORED / "translation"), "translation"))
    yield runner
    runner.close()


@pytest.fixture
def words() -> Iterator[Runner]:
    runner = TranslatorRunner(copier("bpe"), Capacity())
    yield runner
    runner.close()


def texts_of(result: Result) -> list[str]:
    return [ranked[0]["text"] for ranked in result["translations"]]


def test_a_model_is_described(settings: EngineSettings) -> None:
    runner, info = load_runner(settings)
    runner.close()
    assert (info.name, info.task, info.engine, info.precision) == (settings.name, settings.name, "torch", "float32")
    assert info.memory_bytes > 4 * info.parameters > 0


def test_translations_are_those_of_the_model_alone(translation: Runner) -> None:
    alone = load_translator(STORED / "translation")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: texts_of(run(translation, TranslateJob(texts=[text])))[0], TEXTS))
    assert found == alone.translate(TEXTS)
    assert texts_of(run(translation, TranslateJob(texts=TEXTS[:3], search={"beam_size": 2}))) == alone.translate(
        TEXTS[:3], beam_size=2
    )


def test_an_answer_has_scores_alternatives_alignment_and_counts(translation: Runner) -> None:
    job = TranslateJob(texts=["one two red"], search={"n_best": 2}, align=True)
    result = run(translation, job)
    (ranked,) = result["translations"]
    (alone,) = load_translator(STORED / "translation").translate(["one two red"], n_best=2, align=True)
    assert [(one["text"], pytest.approx(one["score"])) for one in ranked] == [(one.text, one.score) for one in alone]
    assert ranked[0]["links"] == [list(link) for link in alone[0].links] and ranked[0]["links"]
    assert result["source_tokens"] == 3 and result["target_tokens"] > 0


def test_constraints_reach_the_search(words: Runner) -> None:
    first, second, third, *_ = WORDS_OF_TEXT
    text = f"{first} {second} {third}"
    assert texts_of(run(words, TranslateJob(texts=[text]))) == [text]
    stopped = TranslateJob(texts=[text], stop=[third], search={"method": "greedy"})
    assert texts_of(run(words, stopped))[0].strip() == f"{first} {second}"
    termed = run(words, TranslateJob(texts=[text], terms={second: "tree"}, search={"beam_size": 4}))
    assert "tree" in texts_of(termed)[0] and termed["translations"][0][0]["missing"] == []


@pytest.mark.parametrize("search", [{"method": "greedy"}, {"beam_size": 3}, {"method": "sample", "seed": 3}])
def test_a_stream_is_the_answer(translation: Runner, search: dict[str, Any]) -> None:
    job = TranslateJob(texts=["one two red. green blue one three"], search=search, align=True)
    pieces, streamed_result = streamed(translation, job)
    whole = run(translation, job)
    assert "".join(pieces) == texts_of(whole)[0] and all(pieces)
    for one, other in zip(streamed_result["translations"][0], whole["translations"][0], strict=True):
        assert one["text"] == other["text"] and one["score"] == pytest.approx(other["score"])
        assert one["ended"] == other["ended"]


def test_placeholders_in_a_stream_are_rejected(translation: Runner) -> None:
    with pytest.raises(JobError, match="placeholders"):
        streamed(translation, TranslateJob(texts=["one"], placeholders=True))


def test_a_language_model_continues_prompts_and_streams() -> None:
    runner, _ = load_runner(EngineSettings(str(STORED / "language_modeling"), "lm"))
    search = {"method": "sample", "seed": 7, "max_length": 30}
    alone = load_generator(STORED / "language_modeling")
    result = run(runner, GenerateJob(prompts=["one two", "red"], search=search))
    expected = alone.generate(["one two", "red"], **search)
    assert [ranked[0]["text"] for ranked in result["continuations"]] == expected
    assert result["prompt_tokens"] == 3
    pieces, last = streamed(runner, GenerateJob(prompts=["one two"], search=search))
    (whole,) = alone.generate(["one two"], n_best=1, **search)[0]
    assert "".join(pieces) == whole.text == last["continuations"][0][0]["text"]
    assert last["continuations"][0][0]["log_probability"] == pytest.approx(whole.log_probability)
    assert (last["continuations"][0][0]["ended"], last["written_tokens"]) == (whole.ended, whole.tokens)
    runner.close()


def test_a_text_encoder_predicts_and_embeds_in_shared_batches() -> None:
    runner, info = load_runner(EngineSettings(str(STORED / "text_encoding"), "encoder"))
    assert info.head == "labels"
    alone = load_text_encoder(STORED / "text_encoding")

    def embed(text: str) -> str:
        return str(run(runner, EmbedJob(texts=[text], normalize=True))["vectors"][0])

    with ThreadPoolExecutor(8) as pool:
        vectors = [np.frombuffer(base64.b64decode(one), "<f4") for one in pool.map(embed, TEXTS)]
    np.testing.assert_allclose(np.stack(vectors), alone.embed(TEXTS, normalize=True), atol=1e-5)
    predicted = run(runner, PredictJob(texts=[*TEXTS[:3]]))["predictions"]
    labels = [as_json(one) for one in alone.predict(TEXTS[:3])]
    assert [one["label"] for one in predicted] == [one["label"] for one in labels]  # type: ignore[call-overload]
    runner.close()


def test_a_text_that_cannot_be_read_is_an_error_of_its_own_request() -> None:
    runner, _ = load_runner(EngineSettings(str(STORED / "text_encoding"), "encoder"))
    with ThreadPoolExecutor(4) as pool:
        jobs = [EmbedJob(texts=[["a", "b", "c"]] if number == 2 else ["one two"]) for number in range(5)]
        futures = [pool.submit(run, runner, job) for job in jobs]
    assert [future.exception() is not None for future in futures] == [False, False, True, False, False]
    runner.close()


def test_a_cancelled_job_ends_at_once(words: Runner) -> None:
    caller = Caller("a test", time.monotonic() + 60)
    caller.cancel()
    with pytest.raises(CancelledError):
        run(words, TranslateJob(texts=["the quick fox"]), caller)
    assert words.statistics().waiting == words.statistics().active == 0


@pytest.mark.skipif(not is_installed(), reason="CTranslate2 is not installed; pip install 'transduce[fast]'")
def test_ctranslate2_translates_in_shared_batches() -> None:
    runner, info = load_runner(EngineSettings(str(STORED / "translation"), "ct2", engine="ctranslate2", threads=2))
    assert info.engine == "ctranslate2"
    alone = load_translator(STORED / "translation")
    alone.use("ctranslate2")
    search: dict[str, Any] = {"beam_size": 2, "length_normalization": "power", "stop_rule": "beam_finished"}
    with ThreadPoolExecutor(8) as pool:
        jobs = [TranslateJob(texts=[text], search=search) for text in TEXTS]
        found = [texts_of(result)[0] for result in pool.map(lambda job: run(runner, job), jobs)]
    assert found == alone.translate(TEXTS, **search)
    runner.close()


def test_the_state_of_a_decoder_is_measured() -> None:
    translator = load_translator(STORED / "translation")
    config = translator.model
    per_token = state_bytes(config, translator.source.specials)
    layers, width = len(config.decoder), config.width  # type: ignore[attr-defined]
    assert per_token >= 2 * layers * width * 4 // 2, "keys and values of every layer, of source or target"

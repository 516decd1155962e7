"""Signals as wishes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from transduce.training.interruption import Interrupted, catch_signals

pytestmark = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(),
    reason="signals come to the main thread only; run pytest without a plugin that runs tests elsewhere",
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_remembered_and_stops_nothing_by_itself(number: signal.Signals) -> None:
    with catch_signals() as interruption:
        assert interruption.wanted is None
        signal.raise_signal(number)
        assert interruption.wanted == number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopping_ends_the_program_as_that_signal_would(number: signal.Signals) -> None:
    with catch_signals("runs/x") as interruption:
        signal.raise_signal(number)
        with pytest.raises(Interrupted) as stop:
            interruption.stop(update=12_345)
    assert stop.value.exit_code == 128 + number
    assert "update 12,345" in str(stop.value)
    assert "--resume runs/x" in str(stop.value)


@pytest.fixture
def recorded() -> Iterator[list[int]]:
    """What reaches whoever listened before us."""
    numbers: list[int] = []
    before = {
        number: signal.signal(number, lambda got, _: numbers.append(got)) for number in (signal.SIGINT, signal.SIGTERM)
    }
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_second_signal_does_what_it_would_have_done_without_us(recorded: list[int]) -> None:
    with catch_signals():
        signal.raise_signal(signal.SIGINT)
        assert recorded == []
        signal.raise_signal(signal.SIGTERM)
    assert recorded == [signal.SIGTERM]


def test_an_impatient_second_ctrl_c_is_a_keyboard_interrupt() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), catch_signals():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_that_should_be_ignored_stays_ignored(recorded: list[int]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with catch_signals() as interruption:
        signal.raise_signal(signal.SIGINT)
        assert interruption.wanted is None
    assert recorded == []


def test_the_handlers_of_before_are_back_afterwards_even_after_an_error() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(ValueError, match="inside"), catch_signals():
        assert signal.getsignal(signal.SIGINT) != before[0]
        raise ValueError("inside")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_in_another_thread_signals_are_ignored_and_nothing_breaks() -> None:
    before, recorded = signal.getsignal(signal.SIGINT), []

    def elsewhere() -> None:
        with catch_signals() as interruption:
            recorded.append((interruption.wanted, signal.getsignal(signal.SIGINT) == before))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert recorded == [(None, True)]

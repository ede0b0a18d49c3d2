"""Batching across requests: who is answered with what, fairness, cancelling, failures and stopping."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any

import pytest
from services import Blocked, reversed_words
from translators import window

from vtrans.apps.documents.document import Translated
from vtrans.apps.server.batching import LONG_LINE, WINDOW, Batch, RequestOptions, Slots, Worker
from vtrans.translate.steps.line import Line

ONE = RequestOptions()


class Gated:
    """A model that translates a batch each time the gate is opened, and records the batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.busy, self.gate = threading.Event(), threading.Semaphore(0)

    def __call__(self, lines: Sequence[Line], options: RequestOptions, ready: Batch) -> list[list[Translated]]:
        self.batches.append([line.text for line in lines])
        self.busy.set()
        assert self.gate.acquire(timeout=30)
        return reversed_words(lines, options)


def with_event_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Makes a test of a coroutine, which must end."""
    return wraps(test)(lambda: asyncio.run(asyncio.wait_for(test(), 60)))


def ask(worker: Worker, *lines: str) -> asyncio.Future[list[list[Translated]]]:
    """Asks for the translations of some lines without waiting for them."""
    return asyncio.ensure_future(worker.translate(window(lines), ONE))


async def until_busy(model: Gated) -> None:
    assert await asyncio.to_thread(model.busy.wait, 30)
    model.busy.clear()


@with_event_loop
async def test_each_request_gets_the_translations_of_its_own_lines() -> None:
    worker = Worker(reversed_words, nbest=4)
    requests = [[f"{i} {k}" for k in range(i % 7)] for i in range(300)]
    answers = await asyncio.gather(*(ask(worker, *lines) for lines in requests))
    assert [[found[0].text for found in answer] for answer in answers] == [
        [f"{k} {i}" for k in range(i % 7)] for i in range(300)
    ]
    assert worker.lines == sum(map(len, requests))
    assert worker.batches < 300


@with_event_loop
async def test_waiting_requests_are_translated_together_in_turns() -> None:
    model = Gated()
    worker = Worker(model)
    first = ask(worker, "first")
    await until_busy(model)
    long = ask(worker, *(f"long {k}" for k in range(2 * WINDOW)))
    short = ask(worker, "short a", "short b")
    await asyncio.sleep(0)
    assert worker.waiting == 2 * WINDOW + 2
    model.gate.release(4)
    assert [found[0].text for found in await short] == ["a short", "b short"]
    assert len(await long) == 2 * WINDOW
    await first
    assert model.batches[1][:4] == ["long 0", "short a", "long 1", "short b"]
    assert [len(batch) for batch in model.batches] == [1, WINDOW, WINDOW, 2]


@with_event_loop
async def test_requests_that_had_no_turn_are_the_first_in_the_next_batch() -> None:
    model = Gated()
    worker = Worker(model)
    texts = [["first"], *([f"{k} a", f"{k} b"] for k in range(WINDOW)), ["late"]]
    asked = [ask(worker, *texts[0])]
    await until_busy(model)
    asked += [ask(worker, *lines) for lines in texts[1:]]
    await asyncio.sleep(0)
    model.gate.release(4)
    await asyncio.gather(*asked)
    assert "late" not in model.batches[1]
    assert model.batches[2][:2] == ["late", "0 b"]


@with_event_loop
async def test_lines_that_want_something_else_are_another_batch() -> None:
    model = Gated()
    worker = Worker(model, nbest=3)
    model.gate.release(4)
    first = ask(worker, "x")
    await until_busy(model)
    wishes = [ONE, RequestOptions(3), ONE, RequestOptions(formality="more")]
    asked = (worker.translate(window([line]), wish) for line, wish in zip("abcd", wishes, strict=True))
    answers = await asyncio.gather(*asked, first)
    assert [len(answer[0]) for answer in answers] == [1, 3, 1, 1, 1]
    assert sorted(model.batches) == [["a", "c"], ["b"], ["d"], ["x"]]


@with_event_loop
async def test_a_cancelled_request_leaves_the_queue() -> None:
    model = Gated()
    worker = Worker(model)
    first = ask(worker, "first")
    await until_busy(model)
    gone = ask(worker, *["gone"] * 100)
    stays = ask(worker, "stays")
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert worker.waiting == 1
    model.gate.release(2)
    await asyncio.gather(first, stays)
    assert model.batches == [["first"], ["stays"]]


@with_event_loop
async def test_only_the_request_that_fails_gets_the_error() -> None:
    def picky(lines: Sequence[Line], options: RequestOptions, ready: Batch) -> list[list[Translated]]:
        if any(line.text == "bad" for line in lines):
            raise ValueError("bad")
        return reversed_words(lines, options)

    worker = Worker(picky)
    asked = (ask(worker, *lines) for lines in (["a b"], ["c", "bad"], ["d e"]))
    good, bad, other = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(bad, ValueError)
    assert not isinstance(good, BaseException)
    assert not isinstance(other, BaseException)
    assert (good[0][0].text, other[0][0].text) == ("b a", "e d")


@with_event_loop
async def test_slots_bound_the_batches_that_several_workers_translate_at_a_time() -> None:
    model, slots = Gated(), Slots(2)
    workers = [Worker(model, slots=slots) for _ in range(3)]
    asked = []
    for number in range(6):
        asked.append(ask(workers[number % 3], f"line {number}"))
        if number < 2:
            await until_busy(model)
    await asyncio.sleep(0.05)
    assert len(model.batches) == 2
    model.gate.release(6)
    assert [found[0].text for (found,) in await asyncio.gather(*asked)] == [f"{number} line" for number in range(6)]


@with_event_loop
async def test_a_request_is_answered_when_its_own_lines_are_ready() -> None:
    class Early(Gated):
        def __call__(self, lines: Sequence[Line], options: RequestOptions, ready: Batch) -> list[list[Translated]]:
            for k, found in enumerate(reversed_words(lines, options)):
                if "early" in lines[k].text:
                    ready(k, found)
            return super().__call__(lines, options, ready)

    model = Early()
    worker = Worker(model)
    late = ask(worker, "a late", "b early")
    early = ask(worker, "c early")
    ((found,),) = await asyncio.wait_for(early, 30)
    assert found.text == "early c"
    assert not late.done()
    await until_busy(model)  # the answer comes before the model records the batch
    assert model.batches == [["a late", "c early", "b early"]]
    model.gate.release()
    assert [line[0].text for line in await late] == ["late a", "early b"]
    assert worker.lines == 3


@with_event_loop
async def test_a_batch_ends_when_nobody_waits_for_it_any_more() -> None:
    model = Blocked()
    worker = Worker(model)
    gone = [ask(worker, "never") for _ in range(2)]
    assert await asyncio.to_thread(model.busy.wait, 30)
    gone[0].cancel()
    await asyncio.sleep(0.05)
    assert not model.ended.is_set()
    gone[1].cancel()
    assert await asyncio.to_thread(model.ended.wait, 30)
    assert [found[0].text for found in await ask(worker, "a b")] == ["b a"]


@with_event_loop
async def test_long_lines_leave_a_slot_to_others() -> None:
    class GatedIfLong(Gated):
        def __call__(self, lines: Sequence[Line], options: RequestOptions, ready: Batch) -> list[list[Translated]]:
            return (
                super().__call__(lines, options, ready)
                if len(lines[0].text) > LONG_LINE
                else reversed_words(lines, options)
            )

    model = GatedIfLong()
    worker = Worker(model, slots=Slots(2))
    long = [ask(worker, f"{k} " * LONG_LINE) for k in range(4)]
    await until_busy(model)
    assert [found[0].text for found in await ask(worker, "a b", "c d")] == ["b a", "d c"]
    assert worker.waiting == 3
    model.gate.release(4)
    assert [len(found[0].text.split()) for (found,) in await asyncio.gather(*long)] == [LONG_LINE] * 4
    assert [len(batch) for batch in model.batches] == [1] * 4


@with_event_loop
async def test_long_lines_and_others_take_turns_in_a_single_slot() -> None:
    model = Gated()
    worker = Worker(model)
    long = ask(worker, *["x " * LONG_LINE] * 4)
    await until_busy(model)
    short = ask(worker, "a b")
    await asyncio.sleep(0)
    model.gate.release(5)
    await asyncio.gather(long, short)
    assert model.batches[1] == ["a b"]

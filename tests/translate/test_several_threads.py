"""Several threads with one translator: each gets what it would get alone."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from translators import sentences
from translators import translator as made

THREADS = 8


@pytest.mark.parametrize("name", ["search", "token_logprobs"])
def test_one_thread_at_a_time_is_in_the_engine(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Buffers and tables of a model, such as sinusoidal positions that grow, belong to one search at a time."""
    translator = made()
    inside, most = 0, 0
    usual = getattr(translator.engine, name)

    def watched(*args: Any, **named: Any) -> Any:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.002)
        found = usual(*args, **named)
        found = iter(list(found)) if isinstance(found, Iterator) else found
        inside -= 1
        return found

    monkeypatch.setattr(translator.engine, name, watched)
    begin = threading.Barrier(THREADS)

    def work(number: int) -> int:
        begin.wait()
        lines = sentences(3, seed=number)
        return len(list(translator.translate(lines) if name == "search" else translator.logprob(lines, lines)))

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == [3] * THREADS
    assert most == 1

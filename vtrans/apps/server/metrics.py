"""Metrics of the service in Prometheus' text format. They contain no text of a request and no address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from vtrans.apps.server.batching import Worker
from vtrans.apps.server.service import Service

BOUNDS = ("0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "30.0", "+Inf")  # seconds


class Metrics:
    """Counts answered requests and the time that they took."""

    def __init__(self, service: Service) -> None:
        self.answering = 0
        self._workers = service.workers
        self._answers: Counter[str] = Counter()
        self._seconds: Counter[str] = Counter()  # a histogram

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Counts a request that took this time."""
        self._answers[f'{{path="{path}",status="{status}"}}'] += 1
        for bound in BOUNDS:
            self._seconds[f'_bucket{{path="{path}",le="{bound}"}}'] += seconds <= float(bound)
        self._seconds[f'_sum{{path="{path}"}}'] += seconds  # type: ignore[assignment]  # a Counter adds floats too
        self._seconds[f'_count{{path="{path}"}}'] += 1

    async def answer(self, request: Request) -> Response:
        """Returns all figures in Prometheus' text format."""

        def of_workers(figure: Callable[[Worker], float]) -> dict[str, float]:
            workers = self._workers.items()
            return {f'{{source="{pair.src}",target="{pair.tgt}"}}': figure(worker) for pair, worker in workers}

        families = (
            ("requests_total", "counter", "Requests answered.", self._answers),
            ("requests_in_progress", "gauge", "Requests being answered.", {"": self.answering}),
            ("request_seconds", "histogram", "Time to answer a request.", self._seconds),
            ("sentences_total", "counter", "Sentences translated.", of_workers(lambda w: w.counts.lines)),
            ("batches_total", "counter", "Batches translated.", of_workers(lambda w: w.counts.batches)),
            ("busy_seconds_total", "counter", "Time spent translating.", of_workers(lambda w: w.counts.seconds)),
            ("waiting_sentences", "gauge", "Sentences that wait.", of_workers(lambda w: w.waiting)),
        )
        lines = []
        for name, kind, help, values in families:
            lines += [f"# HELP vtrans_{name} {help}", f"# TYPE vtrans_{name} {kind}"]
            lines += [f"vtrans_{name}{labels} {value}" for labels, value in values.items()]
        return Response("\n".join([*lines, ""]), media_type="text/plain; version=0.0.4")

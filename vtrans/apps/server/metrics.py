"""Figures of the service in Prometheus' text format. They hold no text of a request and no address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from vtrans.apps.server.service import Service

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds, of the histogram


class Metrics:
    """Counts answered requests and the time that they took."""

    def __init__(self) -> None:
        self.answering = 0
        self._answers: Counter[tuple[str, int]] = Counter()
        self._seconds: Counter[str] = Counter()
        self._within: Counter[tuple[str, float]] = Counter()

    def answered(self, path: str, status: int, seconds: float) -> None:
        self._answers[path, status] += 1
        self._seconds[path] += seconds  # type: ignore[assignment]  # a Counter adds floats too
        for bound in BOUNDS:
            self._within[path, bound] += seconds <= bound

    def text(self, service: Service) -> str:
        """Returns all figures."""
        return "\n".join([*self._requests(), *_workers(service), ""])

    def _requests(self) -> Iterator[str]:
        yield "# HELP vtrans_requests_total Requests answered."
        yield "# TYPE vtrans_requests_total counter"
        for (path, status), count in sorted(self._answers.items()):
            yield f'vtrans_requests_total{{path="{path}",status="{status}"}} {count}'
        yield "# HELP vtrans_requests_in_progress Requests being answered."
        yield "# TYPE vtrans_requests_in_progress gauge"
        yield f"vtrans_requests_in_progress {self.answering}"
        yield "# HELP vtrans_request_seconds Time to answer a request."
        yield "# TYPE vtrans_request_seconds histogram"
        for path, seconds in sorted(self._seconds.items()):
            count = sum(n for (other, _), n in self._answers.items() if other == path)
            for bound in BOUNDS:
                yield f'vtrans_request_seconds_bucket{{path="{path}",le="{bound}"}} {self._within[path, bound]}'
            yield f'vtrans_request_seconds_bucket{{path="{path}",le="+Inf"}} {count}'
            yield f'vtrans_request_seconds_sum{{path="{path}"}} {seconds:.6f}'
            yield f'vtrans_request_seconds_count{{path="{path}"}} {count}'


def _workers(service: Service) -> Iterator[str]:
    workers = service.workers.items()
    figures = (
        ("vtrans_sentences_total", "counter", "Sentences translated.", [w.counts.lines for _, w in workers]),
        ("vtrans_batches_total", "counter", "Batches translated.", [w.counts.batches for _, w in workers]),
        ("vtrans_busy_seconds_total", "counter", "Time spent translating.", [w.counts.seconds for _, w in workers]),
        ("vtrans_waiting_sentences", "gauge", "Sentences that wait.", [w.waiting for _, w in workers]),
    )
    for name, kind, help, values in figures:
        yield f"# HELP {name} {help}"
        yield f"# TYPE {name} {kind}"
        for (pair, _), value in zip(workers, values, strict=True):
            yield f'{name}{{source="{pair.src}",target="{pair.tgt}"}} {value}'

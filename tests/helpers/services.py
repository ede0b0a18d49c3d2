"""A server with a fake model for tests, and requests to it over a real connection on the loopback interface."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from vtrans.apps.documents.document import Translated
from vtrans.apps.documents.memory import Memory
from vtrans.apps.server.access import Access
from vtrans.apps.server.app import make_app
from vtrans.apps.server.batching import Batch, RequestOptions, Worker
from vtrans.apps.server.limits import Limits
from vtrans.apps.server.running import listen, make_server
from vtrans.apps.server.service import Service
from vtrans.system.errors import AbandonedError
from vtrans.text.languages import Languages
from vtrans.translate.steps.line import Line

EN_DE, DE_EN = Languages("en", "de"), Languages("de", "en")
JSON, FORM = "application/json", "application/x-www-form-urlencoded"


def reversed_words(lines: Sequence[Line], options: RequestOptions, ready: object = None) -> list[list[Translated]]:
    """Translates each line as its words in reverse order; the others of an n-best list have a number in front. Each
    word is aligned with itself."""
    found = []
    for line in lines:
        words = line.text.split()[::-1]
        links = tuple(sorted((len(words) - 1 - j, j) for j in range(len(words)))) if options.alignments else None
        text = " ".join(words)
        found.append([Translated(f"{n} {text}" if n else text, links) for n in range(options.nbest)])
    return found


class Blocked:
    """A model that translates the words "never" only once nobody waits for them any more, and then records that."""

    def __init__(self) -> None:
        self.busy, self.ended = threading.Event(), threading.Event()

    def __call__(self, lines: Sequence[Line], options: RequestOptions, ready: Batch) -> list[list[Translated]]:
        if any(line.text == "never" for line in lines):
            self.busy.set()
            until = time.monotonic() + 30
            while not ready.abandoned() and time.monotonic() < until:
                time.sleep(0.002)
            assert ready.abandoned()
            self.ended.set()
            raise AbandonedError("abandoned")
        return reversed_words(lines, options)


@dataclass
class Reply:
    """The answer to a request."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """Sends requests to a running server."""

    port: int
    warnings: list[str] = field(default_factory=list)
    timeout: float = 30

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def send(
        self, method: str, path: str, body: bytes | Iterator[bytes] = b"", kind: str = "", **headers: str
    ) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body or None, {**({"Content-Type": kind} if kind else {}), **named})
            answer = connection.getresponse()
            return Reply(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, path: str) -> Reply:
        return self.send("GET", path)

    def post(self, path: str, **fields: Any) -> Reply:
        """Sends the fields as JSON."""
        return self.send("POST", path, json.dumps(fields).encode(), JSON)

    def form(self, path: str, fields: Mapping[str, Any]) -> Reply:
        return self.send("POST", path, urlencode(fields, doseq=True).encode(), FORM)

    def translate(self, q: Any, source: str = "en", target: str = "de", **fields: Any) -> Reply:
        return self.post("/translate", q=q, source=source, target=target, **fields)


@contextmanager
def serving(
    *,
    translate: Any = reversed_words,
    pairs: Sequence[Languages] = (EN_DE,),
    limits: Limits = Limits(),  # noqa: B008 - it does not change
    check: Callable[[RequestOptions], None] = lambda options: None,
    memory: Memory | None = None,
    fuzzy: Sequence[Languages] = (),
    pivot: str | None = None,
    **access: Any,
) -> Iterator[Client]:
    """Serves fake models at a free port of the loopback interface until the end of the block. `access` are the fields
    of an Access."""
    allowed = Access(**access)
    service = Service({pair: Worker(translate, nbest=4, check=check) for pair in pairs}, memory, fuzzy, pivot)
    client = Client(0)
    app = make_app(service, limits, access=allowed, warn=client.warnings.append, version="9.9")
    server = make_server(app, allowed.trusted_proxy)
    with listen("127.0.0.1", 0) as made:
        client.port = made.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [made]}, daemon=True)
        thread.start()
        until = time.monotonic() + 20
        while not server.started and time.monotonic() < until:
            time.sleep(0.005)
        assert server.started
        try:
            yield client
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()

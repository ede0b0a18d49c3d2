"""Work in threads: clients take turns, and other requests do not wait for it."""

import asyncio
import json
import threading
from pathlib import Path

import pytest
from services import FORM, JSON, serving

from vtrans.apps.documents.memory import Memory
from vtrans.apps.server import requests
from vtrans.apps.server.deepl import glossaries
from vtrans.apps.server.service import CLIENT, in_thread


def test_an_abandoned_call_holds_up_its_client_only() -> None:
    began, release, done = threading.Event(), threading.Event(), list[str]()

    def block() -> None:
        began.set()
        release.wait(30)

    async def use() -> None:
        CLIENT.set("one")
        abandoned = asyncio.create_task(in_thread(block))
        asyncio.create_task(in_thread(lambda: done.append("one")))  # noqa: RUF006 - it never begins
        CLIENT.set("two")
        while not began.is_set():
            await in_thread(lambda: done.append("two"))
        abandoned.cancel()
        await in_thread(lambda: done.append("two"))
        assert set(done) == {"two"}
        release.set()

    asyncio.run(use())


GLOSSARY = {"name": "a", "source_lang": "en", "target_lang": "de", "entries": "a\tb", "entries_format": "tsv"}


@pytest.mark.parametrize(
    ("module", "name", "path", "body", "kind"),
    [
        (glossaries, "dictionary_of", "/v2/glossaries", json.dumps(GLOSSARY).encode(), JSON),
        (requests, "parse_qsl", "/translate", b"a=1&" * 20_000, FORM),
    ],
    ids=["a glossary", "a form"],
)
def test_large_requests_do_not_hold_up_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: object, name: str, path: str, body: bytes, kind: str
) -> None:
    began, release = threading.Event(), threading.Event()
    read = getattr(module, name)

    def slowly(text: str, *options: object, **more: object) -> object:
        if text:
            began.set()
            assert release.wait(10)
        return read(text, *options, **more)

    monkeypatch.setattr(module, name, slowly)
    statuses = list[int]()
    with serving(memory=Memory(tmp_path / "memory")) as client:

        def send() -> None:
            statuses.append(client.send("POST", path, body, kind, Authorization="DeepL-Auth-Key a").status)

        thread = threading.Thread(target=send)
        thread.start()
        assert began.wait(10)
        assert client.get("/health").status == 200
        assert not statuses
        release.set()
        thread.join(20)
        assert statuses == [201 if kind == JSON else 400]
        assert client.warnings == []

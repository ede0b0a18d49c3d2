"""The cases of `frozen.py`: commands, programs that use the library, and servers with requests.

`frozen_inputs` holds the texts and documents that they translate, and the tables of options.
"""

from __future__ import annotations

import gzip
import io
import json
import shlex
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SHIPPED = "en-de"
ALONE = "--threads 1"  # one process with one thread, on any machine
INPUTS = Path(__file__).parent / "frozen_inputs"
TABLES: dict[str, Any] = tomllib.loads((INPUTS / "cases.toml").read_text(encoding="utf-8"))
SEARCH: dict[str, str] = TABLES["search"]
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
BIG = {"q": "A dog runs in the park. Where is the red car?", "source": "en", "target": "de"}


def read(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((INPUTS / folder).iterdir())}


def zipped(members: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name), content)
    return made.getvalue()


TEXTS = read("texts")
TEXTS["hostile.txt"] = "".join(f"{line}\n" for line in TABLES["hostile"]).encode()
TEXTS["bad-utf8.txt"] = b"A dog.\nA c\xffat.\n\xc3\n"
TEXTS["plain.txt.gz"] = gzip.compress(TEXTS["plain.txt"], mtime=0)
STREAM = b"\xef\xbb\xbfA dog runs.\r\n\r\nA cat\xe2\x80\xa8sleeps.\nno end"
DOCUMENTS = read("documents")
DOCUMENTS["a.md"] = DOCUMENTS.pop("md.txt")  # tests follow the links of each file that ends in .md
DOCUMENTS["a.docx"] = zipped({"word/document.xml": DOCUMENTS.pop("docx.xml"), "word/media/a.txt": b"A picture"})
OPEN_DOCUMENT = b"application/vnd.oasis.opendocument.text"
DOCUMENTS["a.odt"] = zipped({"mimetype": OPEN_DOCUMENT, "content.xml": DOCUMENTS.pop("odt.xml")})


@dataclass
class Request:
    """A request to a server."""

    name: str
    method: str
    path: str
    body: bytes = b""
    kind: str = JSON


@dataclass
class Case:
    """What runs: commands one after the other, a program that uses the library, or a server with requests."""

    name: str
    commands: list[list[str]]
    stdin: bytes = b""
    files: dict[str, bytes] = field(default_factory=lambda: TEXTS)
    program: str = ""
    serve: list[str] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)


def case(name: str, text: str, stdin: bytes = b"", files: dict[str, bytes] | None = None) -> Case:
    """A case of commands, separated by `&&`."""
    commands = [shlex.split(command) for command in text.split("&&")]
    return Case(name, commands, stdin, TEXTS | (files or {}))


def model(name: str) -> str:
    return name if name == SHIPPED else f"models/{name}/averaged.safetensors"


def translate(name: str, models: str, options: str, text: str = "plain.txt") -> Case:
    """A case of `vtrans translate`, which prints its counts if the name says so."""
    quiet = "" if name.endswith("counts") else "--quiet"
    return case(name, f"translate --model {models} {ALONE} {quiet} --input {text} {options}")


def of_the_shipped_model() -> Iterator[Case]:
    engines = {precision: f"--precision {precision}" for precision in ("int8", "float32", "bfloat16")}
    for engine, chosen in {**engines, "torch": "--engine torch"}.items():
        for processes, beam in ((1, 1), (1, 4), (1, 8), (2, 4)):
            if engine != "torch" or (processes, beam) == (1, 4):
                form = f"{chosen} --processes {processes} --beam {beam} --nbest {min(beam, 2)} --tsv"
                yield translate(f"hostile/{engine}-{processes}-{beam}", SHIPPED, form, "hostile.txt")
        if engine != "torch":
            yield translate(f"hostile/{engine}-threads-2", SHIPPED, f"{chosen} --threads 2", "hostile.txt")
        yield translate(f"hostile/{engine}-long", SHIPPED, f"{chosen} --tsv --nbest 2", "long.txt")
        for name, options in {**SEARCH, **TABLES["calibrated"]}.items():
            yield translate(f"search/{engine}-{name}", SHIPPED, f"{chosen} {options}")


def for_small(options: str) -> str:
    """Options for PLAIN as options for SMALL."""
    for name in ("prefix.txt", "constraints.jsonl", "terms.tsv"):
        options = options.replace(f" {name}", f" small-{name}")
    return options


def of_small_models() -> Iterator[Case]:
    for name in TABLES["models"]:
        for to in ("de", "en") if name == "both-ways" else ("",):
            prefix, chosen = f"small/{name}{to and '-' + to}", f"--to {to} " if to else ""
            for option in TABLES["each"]:
                options = chosen + for_small(SEARCH[option])
                yield translate(f"{prefix}-{option}", model(name), options, "small.txt")
                if option in TABLES["torch_each"]:
                    yield translate(f"{prefix}-torch-{option}", model(name), f"--engine torch {options}", "small.txt")
            for option in ("beam-4", "alignments"):
                options = f"--precision int8 {chosen}{SEARCH[option]}"
                yield translate(f"{prefix}-int8-{option}", model(name), options, "small.txt")
            yield translate(f"{prefix}-hostile", model(name), f"{chosen}--tsv --nbest 2 --max-length 40", "hostile.txt")
            files = {"a.po": DOCUMENTS["a.po"]}
            asked = f"translate a.po -o out.po --memory memory.po --model {model(name)} {ALONE} {chosen}"
            yield case(f"documents/{name}{to}", asked, files=files)
        to = "--to de" if name == "both-ways" else ""
        pairs = f"logprob small.txt small-prefix.txt --json --model {model(name)} {ALONE} {to}"
        yield case(f"logprob/model-{name}", pairs)
    for name in TABLES["calibrated_models"]:
        for option, options in TABLES["calibrated"].items():
            yield translate(f"small/{name}-{option}", model(name), options, "small.txt")
    for option in ("beam-1", "beam-4", "json", "constraints", "glossary", "sample"):
        options = for_small(SEARCH[option])
        for engine in ("compiled", "torch"):
            asked = f"--shortlist --engine {engine} {options}"
            yield translate(f"small/plain-shortlist-{engine}-{option}", model("plain"), asked, "small.txt")


def of_ensembles() -> Iterator[Case]:
    for name, models in TABLES["ensembles"].items():
        shipped, chosen = SHIPPED in models, " --model ".join(map(model, models))
        weights = " ".join(f"--weight {weight}" for weight in range(1, len(models) + 1))
        for option in ("beam-1", "beam-4", "constraints", "sample", "groups", "alignments-protect", "stop-exhaustive"):
            options, text = (SEARCH[option], "plain.txt") if shipped else (for_small(SEARCH[option]), "small.txt")
            yield translate(f"ensembles/{name}-{option}", chosen, options, text)
            yield translate(f"ensembles/{name}-weighted-{option}", chosen, f"{options} {weights}", text)
            if not shipped:
                yield translate(f"ensembles/{name}-torch-{option}", chosen, f"{options} --engine torch", text)


def of_documents() -> Iterator[Case]:
    for name, content in DOCUMENTS.items():
        ending = name.rpartition(".")[2]
        for option, options in TABLES["formats"].items():
            asked = f"translate {name} -o out.{ending} --model {SHIPPED} {ALONE} --precision int8 {options}"
            yield case(f"documents/{name.replace('.', '-')}-{option}", asked, files={name: content})
    folder = {f"in/{name}": content for name, content in DOCUMENTS.items()}
    yield case("documents/folder", f"translate in -o out --model {SHIPPED} {ALONE} --precision int8", files=folder)
    yield case("documents/two-processes", f"translate in -o out --model {SHIPPED} --processes 2", files=folder)
    yield case("documents/stdout", f"translate in/a.po --model {SHIPPED} {ALONE}", files=folder)
    yield case("documents/format", f"translate in/a.md --format txt --model {SHIPPED} {ALONE} -o out", files=folder)


def of_commands() -> Iterator[Case]:
    """Streams, chunks, log-probabilities, scores, attention and calibrations."""
    for name, text in TABLES["commands"].items():
        stdin = STREAM if name.startswith("text/") else b""
        yield case(name, text.format(shipped=f"--model {SHIPPED} {ALONE} --precision int8"), stdin)


def of_the_library() -> Iterator[Case]:
    for engine, given in TABLES["settings"].items():
        for name, program in TABLES["programs"].items():
            text = TABLES["program"].format(model=SHIPPED, settings=given, program=program.replace("\n", "\n    "))
            yield Case(f"library/{engine}-{name}", [], program=text)


def requests() -> Iterator[Request]:
    asked = {name: json.loads(fields) for name, fields in TABLES["asked"].items()}
    asked |= {"html": {"q": DOCUMENTS["a.html"].decode(), "format": "html"}, "too-long": {"q": "a " * 30000}}
    for name, fields in asked.items():
        given = {key: value for key, value in {**BIG, **fields}.items() if value is not None}
        yield Request(name, "POST", "/translate", json.dumps(given).encode())
    query = "q=A+dog+runs.&source=en&target=de&alternatives=1"
    yield Request("form", "POST", "/translate", query.encode(), FORM)
    yield Request("form-list", "POST", "/translate", f"{query}&q=Time+flies.".encode(), FORM)
    yield Request("query", "POST", f"/translate?{query}")
    for name, body in {"no-json": b"{", "a-list": b"[]", "nan": b'{"q": NaN}', "latin-1": b'{"q": "\xff"}'}.items():
        yield Request(name, "POST", "/translate", body)
    for path in ("languages", "health", "frontend/settings", "spec", "nothing", "translate", "download_file/x"):
        yield Request(f"get-{path.replace('/', '-')}", "GET", f"/{path}")
    for name, text in {"en": "The dog runs in the park.", "de": "Der Hund läuft.", "blank": " "}.items():
        yield Request(f"detect-{name}", "POST", "/detect", json.dumps({"q": text}).encode())
    for name, content in [*DOCUMENTS.items(), ("a.exe", b"MZ"), ("b.docx", b"no zip"), ("b.po", b"no po")]:
        fields = {"source": "en", "target": "de", "beam": "2"}
        parts = [f'--x\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{v}\r\n' for key, v in fields.items()]
        parts.append(f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n')
        body = "".join(parts).encode() + content + b"\r\n--x--\r\n"
        yield Request(
            f"file-{name.replace('.', '-')}", "POST", "/translate_file", body, "multipart/form-data; boundary=x"
        )


def correcting(q: str, s: str, asked: str) -> Iterator[Request]:
    """A text, its correction, and what is then asked for."""
    texts = {"before": asked, "after": asked, "exact": q, "longer": f"{q} Time flies."}
    for name, text in texts.items():
        if name == "after":
            yield Request("suggest", "POST", "/suggest", json.dumps({**BIG, "q": q, "s": s}).encode())
        yield Request(name, "POST", "/translate", json.dumps({**BIG, "q": text, "alignments": True}).encode())
    page = {**BIG, "q": f"<p>{q}</p><p><b>{q[:3]}</b>{q[3:]}</p>", "format": "html", "alternatives": 1}
    yield Request("html", "POST", "/translate", json.dumps(page).encode())
    yield Request("blank-suggestion", "POST", "/suggest", json.dumps({**BIG, "q": q, "s": " "}).encode())


def of_servers() -> Iterator[Case]:
    for name, options in {"int8": "", "rules": "--no-repeat-ngram 3 --beam 3 --alpha 1 --glossary terms.tsv"}.items():
        yield Case(f"http/{name}", [], serve=shlex.split(f"{SHIPPED} {ALONE} {options}"), requests=list(requests()))
    served = shlex.split(f"{SHIPPED} {ALONE} --glossary terms.tsv --memory memory.db")
    asked = list(correcting("A dog runs.", "Ein Köter rennt.", "The dog runs."))
    yield Case("http/memory", [["memory", "memory.db"]], serve=served, requests=asked)
    served = shlex.split(f"{model('fuzzy')} --pair de-en={model('both-ways')} {ALONE} --memory memory.db")
    asked = list(correcting("My tulip was red.", "Meine Tulpe war rot.", "My tulip was blue."))
    back = {"q": "Meine Tulpe war blau.", "source": "de", "target": "en"}
    asked.append(Request("back", "POST", "/translate", json.dumps(back).encode()))
    yield Case("http/fuzzy", [["memory", "memory.db"]], serve=served, requests=asked)


def of_mistakes() -> Iterator[Case]:
    for number, options in enumerate(TABLES["mistakes"].strip().split("\n")):
        name = f"mistakes/{number:02}-" + "-".join(options.replace("/", "").split()[:3]).strip("-")
        words = "" if options.startswith("!") else f"translate --model {SHIPPED} {ALONE} --input plain.txt "
        yield case(name, words + options.removeprefix("!"))


def cases() -> Iterator[Case]:
    """Yields all cases, whose names differ."""
    for kind in (of_the_shipped_model, of_small_models, of_ensembles, of_documents, of_commands):
        yield from kind()
    for kind in (of_the_library, of_servers, of_mistakes):
        yield from kind()

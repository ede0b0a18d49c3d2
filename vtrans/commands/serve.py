"""`vtrans serve`: its options, and the models behind each pair of languages."""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import vtrans
from vtrans.commands.generated import option
from vtrans.commands.options import GLOSSARY, Device, Quiet, Threads
from vtrans.config import DEFAULT_RUN, EngineConfig
from vtrans.console import Console
from vtrans.errors import InputError
from vtrans.keys import check_value, keys_of
from vtrans.languages import Languages, languages_in
from vtrans.server.limits import Keys, Limits

if TYPE_CHECKING:
    from vtrans.translate.translator import Translator
    from vtrans.wording.glossary import Glossary

NEEDED = ("starlette", "uvicorn", "python_multipart", "py3langid", "sentencex", "turbohtml")  # the extra `serve`

_access, _address = (partial(typer.Option, rich_help_panel=panel) for panel in ("Access", "Address"))


def _limit(flag: str, name: str, metavar: str = "N") -> Any:
    """Returns the option for a limit."""
    key, default = keys_of(Limits)[name], getattr(Limits, name)
    help = f"{key.help[0].upper()}{key.help[1:]}.  [default: {default}]"
    return typer.Option(flag, help=help, metavar=metavar, rich_help_panel="Limits")


ModelsToServe = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Run folders, model files or exported folders that record their languages.  "
        f"[default: {DEFAULT_RUN}, unless --pair is given]",
        metavar="MODEL",
    ),
]
PairModels = Annotated[
    list[str] | None,
    typer.Option(
        "--pair", help="A model and its languages, such as en-de=run. May be repeated.", metavar="SRC-TGT=MODEL"
    ),
]
DIVIDE = (
    "The number of processes that translate, on the CPU of a Linux system. They share the memory of the models. Each "
    "has one thread, or --threads. The engine ctranslate2 uses that many workers in one process instead.  [default: "
    "one per core that may be used, if there are 2 GB of free memory for each; 1 with --threads, and on other systems "
    "and devices]"
)
Compile = Annotated[bool, option(keys_of(EngineConfig)["compile"].help, panel="Speed", flag="--compile")]
Processes = Annotated[int | None, typer.Option(help=DIVIDE, metavar="N", rich_help_panel="Speed")]
Glossaries = Annotated[
    list[str] | None,
    typer.Option(
        "--glossary", help=f"{GLOSSARY} May be repeated, once for each pair of languages.", metavar="[SRC-TGT=]FILE"
    ),
]
Host = Annotated[str, _address(help="The address to listen at; 0.0.0.0 means every address.", metavar="ADDRESS")]
Port = Annotated[int, _address(help="The port to listen at; 0 means any free port.", metavar="N")]
Characters = Annotated[int | None, _limit("--char-limit", "characters")]
Texts = Annotated[int | None, _limit("--batch-limit", "texts")]
PerMinute = Annotated[int | None, _limit("--req-limit", "per_minute")]
Requests = Annotated[int | None, _limit("--max-requests", "requests")]
Timeout = Annotated[float | None, _limit("--timeout", "timeout", "SECONDS")]
ApiKeys = Annotated[
    Path | None, _access("--api-keys", help="A file of API keys, one per line. Requests then need one.", metavar="FILE")
]
FileBytes = Annotated[int | None, _limit("--file-limit", "file_bytes")]
FileCharacters = Annotated[int | None, _limit("--file-char-limit", "file_characters")]
CORS = "A web site whose pages may send requests, such as https://example.com; * means every site. May be repeated."
Cors = Annotated[list[str] | None, _access("--cors", help=CORS, metavar="ORIGIN")]
PROXY = (
    "The address or network of a proxy in front of the server, whose X-Forwarded-For tells the addresses of clients. "
    "May be repeated."
)
TrustedProxy = Annotated[list[str] | None, _address("--trusted-proxy", help=PROXY, metavar="ADDRESS")]
PUBLIC = "The address of the server behind its proxies, such as https://example.com/translate."
PublicUrl = Annotated[str | None, _address("--public-url", help=PUBLIC, metavar="URL")]


def serve(
    models: ModelsToServe = None,
    pairs: PairModels = None,
    glossaries: Glossaries = None,
    device: Device = None,
    threads: Threads = None,
    processes: Processes = None,
    compile_: Compile = False,
    host: Host = "127.0.0.1",
    port: Port = 5000,
    characters: Characters = None,
    texts: Texts = None,
    per_minute: PerMinute = None,
    requests: Requests = None,
    timeout: Timeout = None,
    file_bytes: FileBytes = None,
    file_characters: FileCharacters = None,
    api_keys: ApiKeys = None,
    cors: Cors = None,
    trusted_proxy: TrustedProxy = None,
    public_url: PublicUrl = None,
    quiet: Quiet = False,
) -> None:
    """Serve models over HTTP, with LibreTranslate's interface.

    Each model translates one pair of languages, or several if it has tags for them. The server stops at Ctrl-C or
    SIGTERM, after it has answered the requests that it has accepted. It needs the optional packages of
    `pip install 'vtrans[serve]'`.
    """
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise InputError(
            f"`vtrans serve` needs the package {missing[0]}; install it with `pip install 'vtrans[serve]'`."
        )
    console = Console(quiet=quiet)
    sizes = {"characters": characters, "texts": texts, "file_bytes": file_bytes, "file_characters": file_characters}
    limits = _limits({**sizes, "per_minute": per_minute, "requests": requests, "timeout": timeout})
    from vtrans.server.access import Access
    from vtrans.server.app import make_app
    from vtrans.server.models import workers_for
    from vtrans.server.running import listen, run, url_of
    from vtrans.server.service import Service
    from vtrans.translate.division import divide

    access = Access(Keys(api_keys) if api_keys else None, cors or (), trusted_proxy or (), public_url)
    listen(host, port).close()  # a wrong address is reported before the models are loaded
    division = divide(processes, threads)
    translators = _translators(models or [], pairs or [], device, division.total, compile_, console)
    # The copies of this process must not have its socket: clients could connect to it until the last copy ends.
    terms = _glossaries(glossaries or [], translators)
    with workers_for(translators, terms, division, console.warn) as workers, listen(host, port) as made:
        service = Service(workers)
        app = make_app(service, limits, access=access, warn=console.warn, version=vtrans.__version__)
        served = ", ".join(f"{pair.src} to {pair.tgt}" for pair in service.workers)
        console.info(f"serving {served} at {url_of(made)}; stop with Ctrl-C")
        run(app, made, access.trusted_proxy)
    console.info("stopped; every accepted request was answered")


def _limits(values: dict[str, float | None]) -> Limits:
    """Returns the limits, of which some are given. Raises InputError for a value that is not allowed."""
    keys = keys_of(Limits)
    chosen = {name: value for name, value in values.items() if value is not None}
    return Limits(**{name: check_value(keys[name], f"`{name}`", value) for name, value in chosen.items()})


def _translators(
    models: list[Path], pairs: list[str], device: str | None, threads: int, compile: bool, console: Console
) -> dict[Languages, Translator]:
    """Returns the model of each pair of languages, in the order of the options."""
    from vtrans.translate.loading import load

    named = [_pair(text) for text in pairs]
    if not models and not named:
        models = [Path(DEFAULT_RUN)]
    loaded: dict[Path, Translator] = {}
    translators: dict[Languages, Translator] = {}
    for own, path in [*((None, path) for path in models), *named]:
        if path not in loaded:
            loaded[path] = load(path, device=device, workers=threads, compile=compile, console=console)
            loaded[path].console = None  # its warnings would name lines of batches, which no client knows
        translator = loaded[path]
        if not (served := [own] if own else translator.engine.languages):
            raise InputError(f"{path} does not record its languages; name them with --pair en-de={path}.")
        for languages in served:
            if languages in translators:
                raise InputError(f"there are two models from {languages.src} to {languages.tgt}; give only one.")
            if (tags := translator.engine.tags) and languages.tgt not in tags:
                raise InputError(
                    f"--pair must name a target language of {path} ({', '.join(tags)}), got {languages.tgt}."
                )
            translators[languages] = translator
    return translators


def _glossaries(options: list[str], translators: dict[Languages, Translator]) -> dict[Languages, Glossary]:
    """Returns the glossaries of the pairs of languages that have one. A file without languages belongs to the only
    pair."""
    from vtrans.server.models import takes_glossaries
    from vtrans.wording.glossary import read_glossary

    found: dict[Languages, Glossary] = {}
    for text in options:
        codes, _, path = text.partition("=")
        languages = languages_in(codes) if path else None
        if languages is None and len(translators) == 1:
            languages, path = next(iter(translators)), text
        if languages not in translators:
            raise InputError(
                f"--glossary must be the languages of a model and a file, such as en-de=FILE, got {text!r}."
            )
        if languages in found:
            raise InputError(f"there are two glossaries from {languages.src} to {languages.tgt}; give only one.")
        if not takes_glossaries(translators[languages], languages):
            raise InputError(
                f"the model from {languages.src} to {languages.tgt} does not support --glossary; leave it out."
            )
        found[languages] = read_glossary(Path(path))
    return found


def _pair(text: str) -> tuple[Languages, Path]:
    """Returns the languages and the model of a --pair."""
    codes, _, path = text.partition("=")
    languages = languages_in(codes)
    if languages is None or not path:
        raise InputError(f"--pair must be languages and a model, such as en-de=run, got {text!r}.")
    return languages, Path(path)

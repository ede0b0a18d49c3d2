"""`vtrans serve`: its options, and the models behind each pair of languages."""

from __future__ import annotations

from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import vtrans
from vtrans.apps.documents.command_line import NEEDED as DOCUMENT_PACKAGES
from vtrans.apps.server.limits import Keys, Limits
from vtrans.commands.generated import Given, Models, generated, option
from vtrans.commands.shared_options import GLOSSARY, STORED, Processes, Quiet, Threads
from vtrans.config import DEFAULT_RUN, EngineConfig, SearchConfig
from vtrans.system.console import Console
from vtrans.system.errors import FileError, InputError, need_packages
from vtrans.text.languages import Languages, languages_in

if TYPE_CHECKING:
    from vtrans.apps.server.access import Access
    from vtrans.apps.server.models import Model
    from vtrans.translate.confidence import Calibration
    from vtrans.translate.translator import Translator

NEEDED = (*DOCUMENT_PACKAGES, "pydantic", "starlette", "uvicorn", "python_multipart", "py3langid")  # the extra `serve`
MODELS = "Run folders or model files that record their languages."
PAIRS = "Model and its languages, such as en-de=run. May be repeated."
PIVOT = "Language through which texts are translated where no model has the pair, such as en."
GLOSSARIES = f"{GLOSSARY} May be repeated, once for each pair of languages."
HOST = "Address to listen on; 0.0.0.0 means every address."
API_KEYS = "File of API keys, one per line. Requests then need one."
MEMORY = (
    "File of corrections, which /suggest adds to and later requests get, and of glossaries. It is made if it does not "
    "exist. Each API key has its own; without --api-keys, only programs on this machine may write them, or whoever "
    "reaches one of --allowed-hosts."
)
CORS = "Web site whose pages may send requests, such as https://example.com; * means every site. May be repeated."
PROXY = (
    "Address or network of a proxy in front of the server, whose X-Forwarded-For tells the addresses of clients. May "
    "be repeated."
)
HOSTS = (
    "Name by which browsers may reach the server, such as translate.example.com. All others are then refused except "
    "localhost and the host of --public-url, as they always are at a loopback address. May be repeated."
)
PUBLIC = "Address of the server behind its proxies, such as https://example.com/translate."


@generated
def serve(
    *,
    models: Annotated[list[Path], Models(MODELS, True, f"{DEFAULT_RUN}, unless --pair is given")],
    pairs: Annotated[list[str] | None, option(PAIRS, "SRC-TGT=MODEL", flag="--pair")] = None,
    pivot: Annotated[str | None, option(PIVOT, "LANGUAGE", hidden=True)] = None,
    glossaries: Annotated[list[str] | None, option(GLOSSARIES, "[SRC-TGT=]FILE", flag="--glossary")] = None,
    engine: Annotated[dict[str, Any], Given(EngineConfig, ("engine", "device", "code"))],
    threads: Threads = None,
    processes: Processes = None,
    search: Annotated[dict[str, Any], Given(SearchConfig, otherwise=STORED)],
    host: Annotated[str, option(HOST, "ADDRESS", "Address")] = "127.0.0.1",
    port: Annotated[int, option("Port to listen on; 0 means any free port.", "N", "Address")] = 5000,
    trusted_proxy: Annotated[list[str] | None, option(PROXY, "ADDRESS", "Address", hidden=True)] = None,
    public_url: Annotated[str | None, option(PUBLIC, "URL", "Address", hidden=True)] = None,
    allowed_hosts: Annotated[list[str] | None, option(HOSTS, "HOST", "Access")] = None,
    limits: Limits,
    api_keys: Annotated[Path | None, option(API_KEYS, "FILE", "Access")] = None,
    memory: Annotated[Path | None, option(MEMORY, "FILE", "Access")] = None,
    cors: Annotated[list[str] | None, option(CORS, "ORIGIN", "Access", hidden=True)] = None,
    quiet: Quiet = False,
) -> None:
    """Serve models over HTTP, with the APIs of LibreTranslate and DeepL.

    Each model translates one pair of languages, or several if it has tags for them. The server stops at Ctrl-C or
    SIGTERM, after it has answered the requests that it has accepted. It needs the optional packages of the extra
    `serve`: `pip install '.[serve]'` in a checkout of vtrans, or `pip install 'WHEEL[serve]'` with its wheel.
    """
    need_packages("`vtrans serve` needs the package {}", "serve", *NEEDED)
    console = Console(quiet=quiet)
    from vtrans.apps.documents.memory import Memory
    from vtrans.apps.server.access import Access, url_at
    from vtrans.apps.server.app import make_app
    from vtrans.apps.server.models import workers_for
    from vtrans.apps.server.running import listen, make_server
    from vtrans.apps.server.service import Service
    from vtrans.translate.stream import divide

    keys = Keys(api_keys) if api_keys else None
    access = Access(keys, cors or (), trusted_proxy or (), public_url, allowed_hosts or (), host)
    if memory:
        _check_memory(memory, access)
    listen(host, port).close()  # a wrong address is reported before the models are loaded
    division = divide(processes, threads, engine.get("device"))
    loaded = _models(models, pairs or [], console, engine, search)
    _add_glossaries(loaded, glossaries or [])
    # The copies of this process must not inherit its socket: clients could connect to it until the last copy ends.
    making = workers_for(loaded, division, console.warn)
    kept = closing(Memory(memory)) if memory else nullcontext()
    with making as workers, kept as corrections, listen(host, port) as made:
        fuzzy = [pair for pair, model in loaded.items() if model.translator.uses_matches]
        service = Service(workers, corrections, fuzzy, pivot)
        app = make_app(service, limits, access=access, warn=console.warn, version=vtrans.__version__)
        through = {pair: f" (through {pivot.through})" for pair, pivot in service.pivots.items()}
        served = ", ".join(f"{pair.src} to {pair.tgt}{through.get(pair, '')}" for pair in service.pairs)
        console.info(f"serving {served} at {url_at(*made.getsockname())}; stop with Ctrl-C")
        make_server(app, access.trusted_proxy).run(sockets=[made])
    console.info("stopped; every accepted request was answered")


def _check_memory(path: Path, access: Access) -> None:
    """Raises InputError if others than this machine could write to the memory, and FileError if it cannot be used."""
    from vtrans.apps.documents.memory import Memory
    from vtrans.apps.server.access import is_loopback

    behind_proxy = access.trusted_proxy or access.public_url
    open_to_others = (behind_proxy or not is_loopback(access.host)) and not access.allowed_hosts
    if access.keys is None and (access.cors or open_to_others):
        raise InputError(
            "--memory needs --api-keys, because others than this machine could change translations; without --cors, "
            "--allowed-hosts lets whoever reaches the server change them."
        )
    Memory(path).close()


def _models(
    paths: list[Path], pairs: list[str], console: Console, engine: dict[str, Any], search: dict[str, Any]
) -> dict[Languages, Model]:
    """Returns the model of each pair of languages, in the order of the options, loaded with these settings."""
    from vtrans.apps.server.models import Model
    from vtrans.translate.loading import load

    named = [_pair(text) for text in pairs]
    if not paths and not named:
        paths = [Path(DEFAULT_RUN)]
    loaded: dict[Path, tuple[Translator, Calibration | None]] = {}
    models: dict[Languages, Model] = {}
    for asked, path in [*((None, path) for path in paths), *named]:
        if path not in loaded:
            translator = load(path, console=console, **engine, **search)
            translator.console = None  # its warnings would name lines of batches, which no client knows
            loaded[path] = translator, _calibration(path, translator, EngineConfig(**engine), console)
        translator, calibration = loaded[path]
        if not (served := [asked] if asked else translator.engine.languages):
            raise InputError(f"{path} does not record its languages; name them with --pair en-de={path}.")
        for languages in served:
            if languages in models:
                raise InputError(f"there are two models from {languages.src} to {languages.tgt}; give only one.")
            if (tags := translator.engine.tags) and languages.tgt not in tags:
                raise InputError(
                    f"--pair must name a target language of {path} ({', '.join(tags)}), got {languages.tgt}."
                )
            models[languages] = Model(languages, translator, calibration)
    return models


def _calibration(path: Path, translator: Translator, engine: EngineConfig, console: Console) -> Calibration | None:
    """Returns the calibration of a model, or None if it has none. If it cannot be used, there is a warning."""
    from vtrans.storage.run_folder import choose_model
    from vtrans.translate.confidence import Calibration, made_with

    file = choose_model(path).file
    if not Calibration.path([file]).exists():
        return None
    try:
        calibration = Calibration.load([file])
    except FileError as error:
        console.warn(f"no word gets a confidence: {error}")
        return None
    calibration.check(made_with(translator.search, engine, ()), console)
    return calibration


def _add_glossaries(models: dict[Languages, Model], options: list[str]) -> None:
    """Adds glossaries to the models of their pairs. A file without languages belongs to the only pair."""
    from vtrans.translate.wording.glossary import read_glossary

    for text in options:
        codes, _, path = text.partition("=")
        languages = languages_in(codes) if path else None
        if languages is None and len(models) == 1:
            languages, path = next(iter(models)), text
        if languages not in models:
            raise InputError(
                f"--glossary must be the languages of a model and a file, such as en-de=FILE, got {text!r}."
            )
        model = models[languages]
        if model.glossary:
            raise InputError(f"there are two glossaries from {languages.src} to {languages.tgt}; give only one.")
        if model.translator.search.contradicts_phrases("glossary"):
            raise InputError(
                f"the model from {languages.src} to {languages.tgt} does not support --glossary; leave it out."
            )
        models[languages] = replace(model, glossary=read_glossary(Path(path)))


def _pair(text: str) -> tuple[Languages, Path]:
    """Returns the languages and the model of a --pair."""
    codes, _, path = text.partition("=")
    languages = languages_in(codes)
    if languages is None or not path:
        raise InputError(f"--pair must be languages and a model, such as en-de=run, got {text!r}.")
    return languages, Path(path)

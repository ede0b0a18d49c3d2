"""Installs programs that translate with DeepL or LibreTranslate, and lets them use `vtrans serve`.

    python tests/soak/clients.py weblate       # the model en-de; Debian 12 or later
    python tests/soak/clients.py deepl-node    # needs node and npm
    python tests/soak/clients.py weblate --model run --folder weblate

Weblate's own classes for machine translation send all requests; its database is not used: the strings come from the
fake units of its tests, and the glossary from this program. It needs packages that have no wheel: Debian's are unpacked
in the folder, and what only backups and screenshots need is left out. deepl-node, DeepL's client for Node.js, calls
every method that the server serves. Nothing outside the folder changes. The exit code is 1 if something is not as it
should be, and 2 if the client cannot be installed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

WITHOUT_WHEEL = ("borgbackup", "pygobject", "pycairo", "tesserocr")
DEBIAN = (
    "python3-cairo python3-gi python3-gi-cairo gir1.2-glib-2.0 gir1.2-freedesktop gir1.2-gdkpixbuf-2.0 "
    "gir1.2-harfbuzz-0.0 gir1.2-pango-1.0 gir1.2-rsvg-2.0 libpangoxft-1.0-0 librsvg2-2"
)
SETTINGS = """
from weblate.settings_example import *
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
SECRET_KEY, SITE_DOMAIN = "any", "example.com"
DATA_DIR = CACHE_DIR = "."
"""
INSIDE = "--inside"


def step(folder: Path, name: str, *words: str | Path) -> None:
    """Runs a command of an installation, and ends the program if it fails."""
    print(f"{name} ...", flush=True)
    done = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        print(f"{name} answered {done.returncode}:\n{done.stdout[-2000:]}")
        raise SystemExit(2)


def install_weblate(folder: Path) -> dict[str, str]:
    """Makes an environment with Weblate in a folder. Returns the variables with which its programs run."""
    pip: list[str | Path] = [folder / "env/bin/pip", "install", "--quiet", "--prefer-binary"]
    step(folder, "making an environment with Debian's Python", "/usr/bin/python3", "-m", "venv", "env")
    step(folder, "installing Weblate itself", *pip, "--no-deps", "Weblate")
    (metadata,) = folder.glob("env/lib/python3*/site-packages/[Ww]eblate-*.dist-info/METADATA")
    lines = re.findall(r"(?m)^Requires-Dist: (.*)$", metadata.read_text(encoding="utf-8"))
    needed = [line for line in lines if "extra ==" not in line and not line.lower().startswith(WITHOUT_WHEEL)]
    (folder / "needed.txt").write_text("\n".join(needed), encoding="utf-8")
    step(folder, "installing what it needs", *pip, "-r", "needed.txt")
    step(folder, "fetching packages of Debian", "apt-get", "download", *DEBIAN.split())
    for package in folder.glob("*.deb"):
        step(folder, f"unpacking {package.name}", "dpkg", "-x", package, "debian")
    (folder / "weblate_settings.py").write_text(SETTINGS, encoding="utf-8")
    (libraries,) = folder.glob("debian/usr/lib/*-linux-gnu*")
    return {
        "PYTHONPATH": f"{folder}:{folder}/debian/usr/lib/python3/dist-packages",
        "LD_LIBRARY_PATH": str(libraries),
        "GI_TYPELIB_PATH": str(libraries / "girepository-1.0"),
        "DJANGO_SETTINGS_MODULE": "weblate_settings",
    }


@contextmanager
def served(folder: Path, model: str) -> Iterator[str]:
    """Serves a model with a memory and the key "key". Yields the address."""
    (folder / "keys").write_text("key\n", encoding="utf-8")
    for old in folder.glob("memory*"):
        old.unlink()
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "vtrans",
        "serve",
        model,
        "--port",
        "0",
        "--memory",
        folder / "memory",
    ]
    with subprocess.Popen([*command, "--api-keys", folder / "keys"], stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        try:
            yield next(found[0] for line in server.stderr if (found := re.search(r"http://[\d.:]+", line)))
        finally:
            server.terminate()
            server.stderr.read()


def inside(url: str) -> None:
    """Uses the server at an address, in Weblate's environment."""
    importlib.import_module("django").setup()
    deepl = importlib.import_module("weblate.machinery.deepl").DeepLTranslation
    libre = importlib.import_module("weblate.machinery.libretranslate").LibreTranslateTranslation
    errors = importlib.import_module("weblate.machinery.base")
    unit = importlib.import_module("weblate.checks.tests.test_checks").MockUnit
    tsv = "weblate.glossary.models.get_glossary_tsv"

    def translated(machine: Any, source: str, terms: str = "", code: str = "de", flags: str = "") -> str:
        machine.delete_cache()
        with patch(tsv, new=lambda translation: terms):
            text = machine.translate(unit(code=code, source=source, flags=flags))[0][0]["text"]
        print(f"  {machine.name}: {source!r} -> {text!r}")
        return str(text)

    def settings(**changed: str) -> dict[str, str]:
        return {"key": "key", "url": f"{url}/v2/", "formality": "default", "context": "An app.", **changed}

    machine = deepl(settings())
    machine.validate_settings()
    assert ("EN", "DE") in machine.supported_languages
    assert machine.is_glossary_supported("EN", "DE")
    assert "%s" in translated(machine, "The dog sees %s.", flags="python-format")
    assert "&" in translated(machine, "Cats & dogs <run>.")
    assert "Köter" in translated(machine, "The dog runs.", "dog\tKöter\ncat\tKater")
    names = list(machine.list_glossaries())
    assert "Köter" in translated(machine, "The dog runs here.", "dog\tKöter\ncat\tKater")
    assert list(machine.list_glossaries()) == names
    assert "Welpe" in translated(machine, "The dog runs.", "dog\tWelpe")
    assert len(machine.list_glossaries()) == len(names) == 1
    machine.delete_oldest_glossary()
    assert not machine.list_glossaries()
    try:
        machine.delete_glossary("none")
        raise AssertionError("a glossary was deleted that is not there")
    except errors.GlossaryDoesNotExistError:
        pass
    if ("EN", "DE@FORMAL") in machine.supported_languages:
        forms = [translated(machine, "Where do you live?", code=f"de@{form}") for form in ("formal", "informal")]
        assert ("Sie" in forms[0], "Sie" in forms[1]) == (True, False)
    else:
        print("  the model has not learned forms of address: only preferring one is possible")
        translated(deepl(settings(formality="prefer_more")), "Where do you live?")
        refused(errors, lambda: translated(deepl(settings(formality="more")), "Where do you live?"), "formality")
    refused(errors, lambda: translated(deepl(settings(key="wrong")), "The dog runs."), "")
    assert "%s" in translated(libre({"key": "key", "url": url}), "The dog sees %s.", flags="python-format")
    refused(errors, lambda: translated(libre({"key": "wrong", "url": url}), "The dog runs."), "")


def refused(errors: Any, call: Any, word: str) -> None:
    """Calls what Weblate must report as an error with this word."""
    said = ""
    try:
        call()
    except (errors.MachineTranslationError, IndexError) as error:  # without languages, there are no translations
        said = repr(error)
    assert said, "the server did not refuse"
    assert word in said, said


def weblate(folder: Path, model: str) -> int:
    variables = install_weblate(folder)
    with served(folder, model) as url:
        words = [str(folder / "env/bin/python"), __file__, INSIDE, url]
        return subprocess.run(words, env={**os.environ, **variables}).returncode


def deepl_node(folder: Path, model: str) -> int:
    step(folder, "installing deepl-node", "npm", "install", "--no-fund", "deepl-node")
    with served(folder, model) as url:
        return subprocess.run(["node", Path(__file__).with_name("deepl_node.mjs"), url], cwd=folder).returncode


CLIENTS = {"weblate": weblate, "deepl-node": deepl_node}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("--model", default="en-de", help="a model from English to German")
    parser.add_argument("--folder", type=Path, help="a folder for the client, which is kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        folder.mkdir(exist_ok=True)
        failed = CLIENTS[options.client](folder, options.model)
    print(f"{options.client} {'does not translate as it should' if failed else 'translates with the server'}")
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    if sys.argv[1:2] == [INSIDE]:
        inside(sys.argv[2])
    else:
        main()

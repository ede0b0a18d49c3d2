"""Run one experiment from text to scores, such as `make multi30k`: fetch the text if none is given, then run the five
commands.

`--data` names a folder with train, valid (or val, dev) and test files, such as train.en and train.de, plain or
compressed; several training corpora are named train-NAME.en. Without it, the text is downloaded from its public
source, or the experiment is refused. Each command is printed before it runs, in a
form that can be pasted into a shell.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vtrans.apps.experiments.experiment_files import TextFiles
from vtrans.apps.experiments.work import run
from vtrans.system.console import Console
from vtrans.system.errors import InputError, VtransError
from vtrans.system.files import atomic_path, file_sha256
from vtrans.text.lines import lines_in, read_lines, write_lines

HELD_OUT = 2000


@dataclass(frozen=True)
class Experiment:
    """The recipe of an experiment, and what the commands need besides. Without `fetch` the user must have the text."""

    recipe: str
    languages: tuple[str, str]
    vocab_size: int
    fetch: Callable[[Path, str, str, Console], None] | None = None


def download(url: str, sha256: str | None, folder: Path, console: Console) -> Path:
    """Downloads `url` to `folder` unless the file exists, and returns its path; VtransError for a wrong checksum."""
    path = folder / url.rpartition("/")[2]
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with (
                atomic_path(path) as part,
                urllib.request.urlopen(url, timeout=60) as source,
                part.open("wb") as target,
            ):
                total = int(source.headers.get("Content-Length") or 0)
                with console.progress(url, total or None, "bytes") as counter:
                    while block := source.read(1 << 20):
                        counter.advance(target.write(block))
                if total and target.tell() != total:
                    raise OSError(f"it ended before its {total} bytes were read")
        except OSError as error:
            raise VtransError(
                f"{url} cannot be downloaded: {error}; download it yourself and pass its folder."
            ) from None
    seen = file_sha256(path)
    if sha256 is None:
        console.warn(f"the SHA-256 of {url} is not known, so the file was not checked; it is {seen}")
    elif seen != sha256:
        raise VtransError(f"{path} must have the SHA-256 {sha256}, got {seen}; delete it and try again.")
    return path


def lines_of(path: str | Path) -> list[str]:
    """Returns the lines of a file, which may be compressed."""
    return list(lines_in(path))


# The repository at a fixed commit, so that the checksums stay valid. Tested with a copy of these files.
MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw/"
MULTI30K_SHA256 = {
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.fr.gz": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.fr.gz": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.fr.gz": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
}


def fetch_multi30k(folder: Path, src: str, tgt: str, console: Console) -> None:
    """Downloads Multi30k, task 1: 29,000 captions (Elliott et al. 2016)."""
    for stem in ("train", "val", "test_2016_flickr"):
        for language in (src, tgt):
            name = f"{stem}.{language}.gz"
            if name not in MULTI30K_SHA256:
                raise InputError(f"the languages of multi30k must be among en, de and fr, got {language}.")
            download(MULTI30K + name, MULTI30K_SHA256[name], folder, console)


# Not tested: there was no network. The checksum is not known.
TATOEBA = "https://object.pouta.csc.fi/OPUS-Tatoeba/v2023-04-12/moses/{pair}.txt.zip"


def fetch_tatoeba(folder: Path, src: str, tgt: str, console: Console) -> None:
    """Downloads Tatoeba from OPUS (CC BY 2.0 FR). The split is by source sentence: none of the test is in training."""
    pair = "-".join(sorted((src, tgt)))
    archive = download(TATOEBA.format(pair=pair), None, folder / "downloads", console)
    with zipfile.ZipFile(archive) as zipped:
        names = [f"Tatoeba.{pair}.{language}" for language in (src, tgt)]
        sides = [read_lines(io.BytesIO(zipped.read(name)), name) for name in names]
    pairs = list(dict.fromkeys(zip(*sides, strict=True)))
    first = dict(reversed(pairs))
    # Sorting by hash draws a random sample that is the same on every machine.
    drawn = sorted(first, key=lambda text: hashlib.sha256(text.encode()).digest())[: 2 * HELD_OUT]
    held_out = set(drawn)
    train = [item for item in pairs if item[0] not in held_out]
    for name, chosen in (
        ("train", train),
        ("valid", [(source, first[source]) for source in drawn[:HELD_OUT]]),
        ("test", [(source, first[source]) for source in drawn[HELD_OUT:]]),
    ):
        write_lines(folder / f"{name}.{src}", (source for source, _ in chosen))
        write_lines(folder / f"{name}.{tgt}", (target for _, target in chosen))


def fetch_demo(folder: Path, src: str, tgt: str, console: Console) -> None:
    """Unpacks the text of `make demo` as the chain `demo` needs it: the first 3,000 pairs, the target side of the next
    21,000, and the source side of the 21,000 after them."""
    if {src, tgt} != {"en", "de"}:
        raise InputError(f"the languages of demo must be en and de, got {src} and {tgt}.")
    last = {"train": 3000, "valid": None, "test": None}
    for language in (src, tgt):
        for stem, end in last.items():
            write_lines(folder / f"{stem}.{language}", excerpt(f"{stem}.{language}")[:end])
    write_lines(folder / f"mono.{tgt}", excerpt(f"train.{tgt}")[3000:24_000])
    write_lines(folder / f"mono.{src}", excerpt(f"train.{src}")[24_000:45_000])


def excerpt(name: str) -> list[str]:
    """Returns the lines of a file of the text of `make demo`, such as `train.en`."""
    return lines_of(Path(__file__).parent / "demo" / f"{name}.xz")


EXPERIMENTS = {
    "demo": Experiment("demo", ("en", "de"), 4000, fetch_demo),
    "multi30k": Experiment("multi30k-hour", ("en", "de"), 8000, fetch_multi30k),
    "tatoeba": Experiment("tatoeba", ("en", "de"), 8000, fetch_tatoeba),
    "iwslt14": Experiment("iwslt14", ("de", "en"), 10_000),
    "wmt14-base": Experiment("paper-base", ("en", "de"), 37_000),
    "wmt14-big": Experiment("paper-big", ("en", "de"), 37_000),
}


def fetched(experiment: Experiment, folder: Path, src: str, tgt: str, console: Console) -> Path:
    """Returns the folder with the experiment's text, which is downloaded the first time. It exists only if complete."""
    if not folder.exists():
        if experiment.fetch is None:
            raise InputError("this experiment needs text: DATA=folder. recipes/README.md says where to get it.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = folder.with_name(folder.name + ".part")  # keeps its downloads after a failure
        unfinished.mkdir(exist_ok=True)
        experiment.fetch(unfinished, src, tgt, console)
        unfinished.rename(folder)
    return folder


def text_of(name: str, src: str, tgt: str) -> Path:
    """Returns the folder with the text of an experiment, which is downloaded once for all targets of make."""
    return fetched(EXPERIMENTS[name], Path("work") / name / f"text-{src}-{tgt}", src, tgt, Console())


def score(text: TextFiles, names: Iterable[str], model: str, work: Path) -> None:
    """Translates sets of a text with a model to files in `work`, and scores them."""
    for name in names:
        src, tgt = text.pairs[name]
        hypothesis = str(work / f"{name}.hyp.{text.languages[1]}")
        run(["vtrans", "translate", "--model", model, "--input", src, "--out", hypothesis])
        run(["vtrans", "score", tgt, "--hyp", hypothesis])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run one experiment; the Makefile describes the options.")
    parser.add_argument("name", choices=sorted(EXPERIMENTS))
    for name in ("--data", "--src", "--tgt", "--work", "--recipe", "--run"):
        parser.add_argument(name)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args(arguments)

    experiment = EXPERIMENTS[options.name]
    src, tgt = options.src or experiment.languages[0], options.tgt or experiment.languages[1]
    work = Path(options.work or f"work/{options.name}")
    text = TextFiles.of(Path(options.data or text_of(options.name, src, tgt)), src, tgt)
    data, model = str(work / "data"), str(options.run or work / "run")
    work.mkdir(parents=True, exist_ok=True)

    run(["vtrans", "prepare-bpe", *text.options, "--out", data, "--vocab-size", str(experiment.vocab_size)])
    changes = [word for change in options.set for word in ("--set", change)]
    run(["vtrans", "train", "--data", data, "--out", model, "--recipe", options.recipe or experiment.recipe, *changes])
    run(["vtrans", "average", model])
    score(text, [text.valid, *text.tests], model, work)
    return 0

"""Records what translating answers, and compares a later version with the record.

    PYTHONPATH=CHECKOUT python tests/soak/frozen.py record FOLDER [--only PATTERN]
    PYTHONPATH=CHECKOUT python tests/soak/frozen.py compare FOLDER [--only PATTERN] [--tolerance 1e-5]

The version in CHECKOUT answers, through its command line, `vtrans.load` and its server. `record` writes a text file
per case, and trains small models in FOLDER/models unless they are there. `compare` runs the cases again with these
models, and prints a unified diff per difference, once for all cases that have it. Texts must have equal bytes, and
numbers may differ by the tolerance. A text may differ if its score does not (a near-tie): it is printed, but is no
difference. Both must run on the same machine. The exit code is 1 if a case differs.
"""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import gzip
import http.client
import io
import json
import lzma
import math
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import vtrans

# The helpers of the version that answers. Those of some versions lie in tests/ itself.
sys.path.extend(str(Path(vtrans.__file__).parents[1] / folder) for folder in ("tests/helpers", "tests"))

from forking import ENVIRONMENT, start_python
from frozen_cases import TABLES, Case, Request, cases

TOP = Path(vtrans.__file__).parents[1]
SECONDS = 180  # limit of a case
# What differs between equal runs: speeds, ports, names of files, and where the compiled code is.
MASKS = (
    (r"compiled code: .*\n", ""),
    (r"in [\d.,]+ m?s of translating \([^)]*\)", "in SECONDS of translating (SPEED)"),
    (r"pairs in [\d.]+ s;", "pairs in SECONDS;"),
    (r"\b[\d.,]+ (pairs|lines|subwords|target subwords|tokens)/s", r"SPEED \1/s"),
    (r"(chunk-\d+)\.[0-9a-f]{12}", r"\1.HASH"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
    (r"download_file/[\w.-]+", "download_file/KEY"),
)
NOT_SHOWN = re.compile(r"\.safetensors$|\.db(-\w+)?$|(^|/)job\.json$")  # outputs
NUMBER = re.compile(r"-?\d+(?:\.\d+(?:e-?\d+)?|e-\d+)")
SCORE = re.compile(r"-?\d+\.\d{6,}")


def masked(text: str, folder: Path) -> str:
    """Returns a text without what differs between equal runs."""
    for place, name in ((folder, "."), (TOP, "VTRANS")):
        text = text.replace(str(place), name)
    for pattern, replacement in MASKS:
        text = re.sub(pattern, replacement, text)
    return text


def readable(content: bytes) -> str:
    """Returns the content of a file as text, decompressed; of a zip file, that of its members."""
    if content.startswith(b"\x1f\x8b"):
        content = gzip.decompress(content)
    if content.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            return "".join(f"[{name}]\n{readable(file.read(name))}\n" for name in file.namelist())
    return content.decode(errors="backslashreplace")


def section(title: str, text: str) -> str:
    return f"--- {title}\n{text}" + ("" if text.endswith("\n") or not text else "\n(no line end)\n")


def outputs(folder: Path, given: dict[str, bytes]) -> Iterator[str]:
    """Yields the files of a case that its commands have written or changed."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or name.startswith(("models/", ".")) or NOT_SHOWN.search(name):
            continue
        if name not in given or path.read_bytes() != given[name]:
            yield section(name, readable(path.read_bytes()))


def run(words: Sequence[str], folder: Path, stdin: bytes = b"") -> tuple[int, str, str]:
    """Runs Python with these arguments in a folder. Returns the exit code, stdout and stderr."""
    paths = [folder / name for name in (".in", ".out", ".err")]
    paths[0].write_bytes(stdin)
    with paths[0].open("rb") as given, paths[1].open("wb") as out, paths[2].open("wb") as err:
        streams = {"stdin": given, "stdout": out, "stderr": err}
        process = start_python(words, ENVIRONMENT, cwd=folder, start_new_session=True, **streams)
        try:
            code = process.wait(SECONDS)
        finally:
            process.kill()
    return code, readable(paths[1].read_bytes()), readable(paths[2].read_bytes())


@contextmanager
def server(words: Sequence[str], folder: Path) -> Iterator[int]:
    """Serves until the end of the block. Yields the port."""
    log = folder / ".err"
    with log.open("wb") as err:
        streams = {"stdin": subprocess.DEVNULL, "stdout": err, "stderr": err}
        process = start_python(["-m", "vtrans", "serve", *words, "--port", "0"], ENVIRONMENT, cwd=folder, **streams)
    try:
        until = time.monotonic() + SECONDS
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())):
            if process.poll() is not None or time.monotonic() > until:
                sys.exit(f"vtrans serve did not start: {log.read_text()}")
            time.sleep(0.02)
        yield int(found[1])
    finally:
        process.terminate()
        process.wait(SECONDS)


def answer(port: int, request: Request) -> str:
    """Sends a request. Returns it with its answer; the file of an answer with an address is fetched, too."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request(request.method, request.path, request.body or None, {"Content-Type": request.kind})
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    shown = readable(body)
    if "json" in (response.getheader("Content-Type") or ""):
        shown = json.dumps(json.loads(body), ensure_ascii=False, indent=1)
    asked = f"{request.method} {request.path}\n{readable(request.body)}"
    text = section("request", asked) + section(f"status {response.status}", shown)
    if found := re.search(r"/download_file/[^\"]+", shown):
        text += answer(port, Request("", "GET", found[0]))
    return text


def results(case: Case, root: Path) -> Iterator[tuple[str, str]]:
    """Runs a case. Yields its record, or one for each of its requests, with the name."""
    with tempfile.TemporaryDirectory(prefix="frozen-") as name:
        folder = Path(name)
        (folder / "models").symlink_to(root.absolute() / "models")
        for path, content in case.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        if case.requests:
            with server(case.serve, folder) as port:
                for request in case.requests:
                    yield f"{case.name}/{request.name}", masked(answer(port, request), folder)
        text = ""
        for words in [["-c", case.program]] if case.program else [["-m", "vtrans", *words] for words in case.commands]:
            code, out, err = run(words, folder, case.stdin)
            text += section(f"command, exit code {code}", " ".join(words) + "\n")
            text += section("stderr", err) + section("stdout", out)
        if text:
            end = f"{case.name}/end" if case.requests else case.name
            yield end, masked(text + "".join(outputs(folder, case.files)), folder)


def train(root: Path) -> None:
    """Makes the small models that are missing."""
    made = root / "models"
    made.mkdir(parents=True, exist_ok=True)
    if not (made / "text").exists():
        (made / "text").mkdir()
        for stem, number in (("train", 200), ("valid", 20), ("test", 20)):
            for language in ("en", "de"):
                lines = lzma.decompress((TOP / f"recipes/demo/{stem}.{language}.xz").read_bytes()).splitlines(True)
                (made / f"text/{stem}.{language}").write_bytes(b"".join(lines[:number]))
    for name, options in TABLES["data"].items():
        if not (made / f"data-{name}").exists():
            words = [*options.split(), *TABLES["pairs"].split(), "--out", f"data-{name}"]
            must(["-m", "vtrans", "prepare-bpe", *words], made)
    for name, (data, changes) in TABLES["models"].items():
        file = made / name / "averaged.safetensors"
        if file.exists():
            continue
        keys = [word for key in f"{TABLES['recipe']} {changes}".split() for word in ("--set", key)]
        with tempfile.TemporaryDirectory() as run_folder:
            words = ["--data", f"data-{data}", "--out", run_folder, "--threads", "1", *keys]
            must(["-m", "vtrans", "train", *words], made)
            file.parent.mkdir(exist_ok=True)
            must(["-m", "vtrans", "average", run_folder, "--out", str(file)], made)
        if name in TABLES["calibrated_models"]:
            texts = ["text/train.en", "text/train.de"]
            must(["-m", "vtrans", "calibrate", *texts, "--model", str(file), "--threads", "1"], made)
            must(["-m", "vtrans", "shortlist", str(file), "--data", f"data-{data}", "--frequent", "60"], made)


def must(words: Sequence[str], folder: Path) -> None:
    """Runs Python with these arguments, and ends this program if they fail."""
    code, _, err = run(words, folder)
    if code:
        sys.exit(f"{' '.join(words)} ended with {code}: {err}")


def close(old: str, new: str, form: re.Pattern[str], tolerance: float) -> bool:
    """Returns whether two texts have the same numbers of this form, but for `tolerance`."""
    a, b = (list(map(float, form.findall(text))) for text in (old, new))
    pairs = zip(a, b, strict=False)
    return len(a) == len(b) and all(math.isclose(*pair, rel_tol=tolerance, abs_tol=tolerance) for pair in pairs)


def near_tie(old: list[str], new: list[str], tolerance: float) -> bool:
    """Returns whether all lines that differ have scores, which are equal but for ten times `tolerance`."""
    differing = [pair for pair in zip(old, new, strict=False) if pair[0] != pair[1]]
    scored = all(SCORE.search(a) and close(a, b, SCORE, 10 * tolerance) for a, b in differing)
    return scored and len(old) == len(new)


def compare(found: Iterator[tuple[str, str]], root: Path, tolerance: float) -> int:
    """Prints the differences from the record, each once with the cases that have it. Returns their number."""
    differing: dict[str, list[str]] = defaultdict(list)
    different = 0
    for name, new in found:
        path = root / f"{name}.txt"
        old = path.read_bytes().decode() if path.exists() else "(no record)\n"
        if NUMBER.sub("", old) == NUMBER.sub("", new) and close(old, new, NUMBER, tolerance):
            continue
        before, after = old.split("\n"), new.split("\n")
        tie = near_tie(before, after, tolerance)
        different += not tie
        lines = list(difflib.unified_diff(before, after, "recorded", "now", lineterm=""))
        changed = "\n".join(line for line in lines[2:] if line[:1] in "+-")
        if changed not in differing:
            print(f"\n=== {name}{' (near-tie)' if tie else ''}", *lines, sep="\n", flush=True)
        differing[changed].append(name)
    for names in differing.values():
        if len(names) > 1:
            print(f"\nequal to the difference of {names[0]}: {', '.join(names[1:])}")
    print(f"\n{different} cases differ")
    return different


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="*", help="cases whose names match this pattern, such as 'search/*'")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    options = parser.parse_args()
    train(options.folder)
    chosen = [case for case in cases() if fnmatch.fnmatch(case.name, options.only)]
    found = (result for case in chosen for result in results(case, options.folder))
    if options.action == "compare":
        sys.exit(compare(found, options.folder, options.tolerance) > 0)
    for name, text in found:
        path = options.folder / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


if __name__ == "__main__":
    main()

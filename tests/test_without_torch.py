"""Translating and preparing need no torch: neither is it imported where it is installed, nor missed where it is not."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from compilers import needs_compiler

from vtrans.storage.run_folder import RunFolder

pytestmark = needs_compiler

LIBRARY = """
import vtrans

made = vtrans.load(RUN, beam=2)
lines = ["The dog sees me today.", "", "a dog"]
assert len(list(made.nbest(lines, 2, alignments=True))) == 3
assert list(made.translate(lines[:1], vtrans.Sampling(seed=1)))
assert list(made.translate(lines[:1], mbr=vtrans.Mbr()))
assert list(made.translate(lines[:1], prefixes=["Der"], constraints=[{"avoid": ["die"]}]))
assert len(list(made.logprob(lines[:1], ["der Hund"]))) == 1
assert made.engine.name == "compiled"
"""
COMMANDS = """
from vtrans.cli import main

def run(*words):
    sys.argv = ["vtrans", *words]
    try:
        main()
    except SystemExit as end:
        return end.code

open("lines.en", "w").write("a dog\\n")
open("page.html", "w").write("<p>a <b>dog</b></p>")
assert not run("translate", "--model", RUN, "--input", "lines.en", "--output", "lines.de")
assert not run("translate", "page.html", "--model", RUN, "--to", "de", "--output", "page.de.html")
assert not run("logprob", "lines.en", "lines.de", "--model", RUN, "--output", "scores")
assert open("page.de.html").read()
open("some.en", "w").write("a dog\\na cat\\n")
open("some.de", "w").write("ein Hund\\neine Katze\\n")
assert not run("prepare-bpe", "--src", "some.en", "--tgt", "some.de")
"""
SERVER = """
from vtrans.apps.server import app, models, running, service
"""
GONE = "sys.modules['torch'] = None\n"  # importing it then fails as if it were not installed


def python(program: str, run: RunFolder, folder: Path) -> subprocess.CompletedProcess[str]:
    program = f"import sys\nRUN = {str(run.path)!r}\n{program}"
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("program", [LIBRARY, COMMANDS, SERVER], ids=["library", "commands", "server"])
def test_translating_and_preparing_import_no_torch(
    program: str, missing: bool, tmp_path: Path, tiny_run: RunFolder
) -> None:
    after = "\nassert sys.modules.get('torch') is None"
    done = python((GONE if missing else "") + program + after, tiny_run, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--data", "data"],
        ["average", "run"],
        ["translate", "--model", "RUN", "--engine", "torch"],
        ["translate", "--model", "RUN", "--device", "cuda"],
    ],
)
def test_what_needs_torch_says_so_in_one_sentence(words: list[str], tmp_path: Path, tiny_run: RunFolder) -> None:
    words = ["vtrans", *(word.replace("RUN", str(tiny_run.path)) for word in words)]
    done = python(f"{GONE}sys.argv = {words}\nfrom vtrans.cli import main\nmain()", tiny_run, tmp_path)
    assert done.returncode == 2
    assert re.fullmatch(r"error: .*needs the package torch, .*`pip install torch`\.\n", done.stderr), done.stderr

"""Train a translator on the excerpt of Tatoeba in this folder, and show what it can do, as `make demo` does.

Each command is printed before it runs, in a form that can be pasted into a shell.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from vtrans.apps.experiments.work import run
from vtrans.system.files import file_sha256

HERE = Path(os.path.relpath(Path(__file__).parent))
VOCABULARY = 4000
SHIPPED = "en-de"
SENTENCES = (  # none is in the excerpt
    "What did your brother say to you yesterday?",
    "I don't know where he works.",
    "She wants to learn German this year.",
    "My brother is older than your sister.",
    "Why didn't you tell me the truth?",
    "We can't go home before the work is done.",
)


def say(text: str) -> None:
    sys.stdout.write(f"\n{text}\n")
    sys.stdout.flush()


def text(name: str) -> str:
    """Returns a file of the excerpt, such as `train.en`."""
    return str(HERE / f"{name}.xz")


def main(arguments: Sequence[str]) -> int:
    folder = Path(arguments[0] or "demo")
    data, trained, typed = str(folder / "data"), str(folder / "run"), folder / "sentences.en"
    say("The text is an excerpt of Tatoeba (CC BY 2.0 FR): short everyday sentences, English and German.")
    corpus = ["--src", text("train.en"), "--tgt", text("train.de")]
    valid = ["--valid-src", text("valid.en"), "--valid-tgt", text("valid.de")]
    run(["vtrans", "prepare-bpe", *corpus, *valid, "--vocab-size", str(VOCABULARY), "--out", data])
    run(["vtrans", "train", "--data", data, "--out", trained, "--recipe", "demo"])
    run(["vtrans", "average", trained])

    ours, others = str(folder / "test.hyp.de"), str(folder / f"test.{SHIPPED}.de")
    run(["vtrans", "translate", "--model", trained, "--input", text("test.en"), "--out", ours])
    say(
        f"The model that comes with vtrans, {SHIPPED}, was trained for 140 minutes, on three times as much of\n"
        "Tatoeba and more. It has not seen these test sentences either."
    )
    run(["vtrans", "translate", "--quiet", "--model", SHIPPED, "--input", text("test.en"), "--out", others])
    run(["vtrans", "score", text("test.de"), "--hyp", others])
    say("The model that was just trained:")
    run(["vtrans", "score", text("test.de"), "--hyp", ours])

    typed.write_text("".join(f"{line}\n" for line in SENTENCES), encoding="utf-8")
    say(f"Sentences that are not in the text: first by the new model, then by {SHIPPED}.")
    run(["cat", str(typed)])
    for model in (trained, SHIPPED):
        run(["vtrans", "translate", "--quiet", "--model", model, "--input", str(typed)])
    say(f"SHA-256 of the new model: {file_sha256(folder / 'run' / 'averaged.safetensors')}")
    say(f"""Now type a sentence of your own:

  . .venv/bin/activate
  echo 'Where do you live?' | vtrans translate --quiet --model {shlex.quote(trained)}

To do the same with two files of your own, mine.en and its translation mine.de, one sentence per line:

  vtrans prepare-bpe --src mine.en --tgt mine.de && vtrans train && vtrans average
  vtrans translate < new.en""")
    return 0

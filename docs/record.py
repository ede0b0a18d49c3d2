"""Records a session of the terminal as docs/session.svg, the picture of the README.

    python docs/record.py FOLDER [--out docs/session.svg]

Runs the commands of SESSION in FOLDER and draws what they print. The folder has a run folder `run`, as after
`make multi30k RECIPE=multi30k-10min RUN=FOLDER/run`. Another model of English to German gives another picture.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
from pathlib import Path

from rich.console import Console
from rich.text import Text

SESSION = (
    'echo "Two dogs play in the snow." | vtrans translate --quiet',
    'echo "A man sits on a bench." | vtrans translate --quiet --nbest 3 --scores',
    'echo "A dog runs." | vtrans translate --quiet --alignments',
    'vtrans attend run "Two dogs play in the snow."',
)
WIDTH = 84  # columns


def main() -> None:
    """Runs the session and writes the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("session.svg"))
    asked = parser.parse_args()
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    for command in SESSION:
        done = subprocess.run(command, shell=True, cwd=asked.folder, check=True, stdout=subprocess.PIPE, text=True)
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        console.print(Text(done.stdout.expandtabs(4)))
    asked.out.write_text(drawn(console), encoding="utf-8")


def drawn(console: Console) -> str:
    """Returns the recorded session as SVG that loads no font from elsewhere and has equal bytes for equal sessions."""
    svg = console.export_svg(title="vtrans", unique_id="session")
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace(
        "Fira Code", "ui-monospace, Menlo, Consolas"
    )


if __name__ == "__main__":
    main()

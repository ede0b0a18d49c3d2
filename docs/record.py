"""Records a session of the terminal as docs/session.svg, the picture of the README.

    python docs/record.py [--out docs/session.svg]

Runs the commands of SESSION and draws what they print.
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
    'echo "Two dogs play in the snow." | vtrans translate --quiet --model en-de',
    'echo "I don\'t know." | vtrans translate --quiet --model en-de --nbest 3 --scores',
    'echo "WHERE ARE YOU? 🎉" | vtrans translate --quiet --model en-de',
    'vtrans attend en-de "Two dogs play in the snow."',
)
WIDTH = 84  # columns


def main() -> None:
    """Runs the session and writes the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("session.svg"))
    asked = parser.parse_args()
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    for command in SESSION:
        done = subprocess.run(command, shell=True, check=True, stdout=subprocess.PIPE, text=True)
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

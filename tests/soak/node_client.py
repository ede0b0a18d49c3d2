"""Installs deepl-node, DeepL's client for Node.js, and lets it call every method that `vtrans serve` serves.

    python tests/soak/node_client.py                        # the model en-de; needs node and npm
    python tests/soak/node_client.py --model run --folder client

The exit code is 1 if the server does not answer as it should, and 2 if the client cannot be installed.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from in_weblate import served

PROGRAM = Path(__file__).with_suffix(".mjs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="en-de", help="a model from English to German")
    parser.add_argument("--folder", type=Path, help="a folder for the client, which is kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        folder.mkdir(exist_ok=True)
        if subprocess.run(["npm", "install", "--no-fund", "deepl-node"], cwd=folder).returncode:
            raise SystemExit(2)
        with served(folder, options.model) as url:
            done = subprocess.run(["node", PROGRAM, url], cwd=folder)
    print("deepl-node works with the server" if done.returncode == 0 else "deepl-node does not work as it should")
    raise SystemExit(bool(done.returncode))


if __name__ == "__main__":
    main()

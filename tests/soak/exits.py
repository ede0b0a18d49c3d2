"""Counts the ranks of a translation by two processes that end with another exit code than 0.

    python tests/soak/exits.py [--runs 100] [--world 2]

Each run translates three lines with a tiny network with random weights, as under torchrun. The ranks are forks of this
process, which has loaded vtrans, so that a run takes a fraction of a second; they end as any Python program does. The
exit code is 1 if a rank failed or a translation was lost.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from soak import tiny_model

from vtrans import cli


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def forked(words: list[str], environment: dict[str, str]) -> int:
    """Starts the command in a copy of this process. Returns 0 in the copy, and its id here."""
    pid = os.fork()
    if not pid:
        os.environ.update(environment)
        sys.argv = ["vtrans", *words]
    return pid


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--world", type=int, default=2)
    options = parser.parse_args()
    codes: Counter[int] = Counter()
    whole = 0
    folder = Path(tempfile.mkdtemp())  # no context, which the copies would leave, too
    model, text, out = folder / "model.safetensors", folder / "text", folder / "out"
    tiny_model(model)
    text.write_bytes(b"Two dogs run.\n\nA big old house.\n")
    words = ["translate", "--model", str(model), "--input", str(text), "--output", str(out), "--quiet"]
    import vtrans.translate.stream  # noqa: F401 - the copies need not load it

    for _ in range(options.runs):
        out.unlink(missing_ok=True)
        group = {"WORLD_SIZE": str(options.world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        pids = []
        for rank in range(options.world):
            pids.append(forked(words, group | {"RANK": str(rank), "LOCAL_RANK": str(rank)}))
            if not pids[-1]:
                cli.main()
        codes.update(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)
        whole += out.exists() and out.read_bytes().count(b"\n") == 3
    shutil.rmtree(folder)
    print(f"{whole} of {options.runs} translations are whole; exit codes of the ranks: {dict(codes)}")
    sys.exit(whole < options.runs or set(codes) != {0})


if __name__ == "__main__":
    main()

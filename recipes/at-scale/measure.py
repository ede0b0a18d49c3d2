"""Compares the formulas of cost.py with a small training on this machine: bytes on disk and on the network, and speed.

    python recipes/at-scale/measure.py --src train.en --tgt train.de [--steps 20]

Needs Linux and the right to make a network namespace (`unshare`), in which the two ranks are alone, so that the bytes
of its loopback device are theirs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from cost import Shape, checkpoint_bytes, gradient_bytes, store_bytes, table
from safetensors import safe_open

from vtrans.numerics.products import product

VTRANS = [sys.executable, "-m", "vtrans"]
D, F, LAYERS, VOCABULARY = 256, 1024, 3, 4000
SETTINGS = (
    f"model.d_model={D}",
    f"model.d_ff={F}",
    "model.heads=4",
    f"model.encoder_layers={LAYERS}",
    f"model.decoder_layers={LAYERS}",
    "train.batch_tokens=2000",
    "train.log_every=2",
    "train.checkpoint_every=1000000",
    "train.valid_sentences=1",
    'train.precision="float32"',
)


def run(words: list[str], before: str = "") -> str:
    """Runs a command, after others, in a network namespace of its own. Returns what it printed to stdout."""
    shell = f'ip link set lo up; {before} "$@" && cat /proc/net/dev'
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", shell, "sh", *words],
        env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def train(folder: Path, name: str, steps: int, ranks: int) -> tuple[Path, int]:
    """Trains for that many steps. Returns the run folder, and the bytes that all ranks sent."""
    words = [*VTRANS, "train", "--data", str(folder / "data"), "--out", str(folder / name), "--device", "cpu", "-q"]
    words += [word for value in (*SETTINGS, f"train.max_steps={steps}") for word in ("--set", value)]
    if ranks > 1:
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-addr", "127.0.0.1"]
        words = [sys.executable, *launcher, *words[1:]]
    sent = re.search(r"lo:(?: *\d+){8} *(\d+)", run(words))
    assert sent is not None
    return folder / name, int(sent[1])


def peak() -> float:
    """Returns the FLOP/s of a large float32 product with one thread, by the faster of the two libraries."""
    a, b = torch.ones(1024, 1024), torch.ones(1024, 1024)
    best = float("inf")
    for onednn in (False, True) * 10:
        began = time.perf_counter()
        product(a, b, onednn=onednn)
        best = min(best, time.perf_counter() - began)
    return float(2 * 1024**3 / best)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--src", required=True)
    parser.add_argument("--tgt", required=True)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    shape = Shape("small", D, F, LAYERS, options.steps, VOCABULARY)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare = ["prepare-bpe", "--src", options.src, "--tgt", options.tgt, "--vocab-size", str(VOCABULARY), "-q"]
        subprocess.run([*VTRANS, *prepare, "--out", str(folder / "data")], check=True)
        with safe_open(folder / "data" / "train.safetensors", "np") as store:
            tokens = sum(store.get_slice(f"{side}_ids").get_shape()[0] for side in ("src", "tgt"))
            pairs = store.get_slice("src_offsets").get_shape()[0] - 1
        alone, _ = train(folder, "alone", options.steps, 1)
        sent = [train(folder, f"two-{steps}", steps, 2)[1] for steps in (options.steps, 2 * options.steps)]
        last = (alone / "last").resolve() if (alone / "last").exists() else (alone / "last.safetensors").resolve()
        state = next((alone / "state").glob("*.safetensors"))
        records = [json.loads(line) for line in (alone / "metrics.jsonl").read_text().split("\n")[:-1]]
        timed = [record for record in records if record["kind"] == "train"][1:]
        data = (folder / "data" / "train.safetensors").stat().st_size
        files = last.stat().st_size, state.stat().st_size
    seconds = sum(record["seconds"] for record in timed)
    source, target = (sum(record[f"{side}_tokens"] for record in timed) for side in ("src", "tgt"))
    mean = tokens / pairs / 2
    operations = shape.training(mean, mean) / mean * (source + target) / 2
    model, adam = checkpoint_bytes(shape.parameters())
    rows = [
        ("token store of " + f"{pairs:,} pairs", store_bytes(pairs, tokens), data),
        ("model file", model, files[0]),
        ("training state", adam, files[1]),
        (
            "sent per rank and update, two ranks",
            gradient_bytes(shape.parameters(), 2),
            (sent[1] - sent[0]) / options.steps / 2,
        ),
    ]
    shown = [(what, f"{a / 1e6:.2f} MB", f"{b / 1e6:.2f} MB", f"{b / a:.3f}") for what, a, b in rows]
    print(table(("", "formula", "measured", "ratio"), shown))
    print(
        f"\nTraining on one thread: {operations / seconds / 1e9:.1f} GFLOP/s by the formula, "
        f"{operations / seconds / peak():.0%} of the speed of a large float32 product."
    )


if __name__ == "__main__":
    main()

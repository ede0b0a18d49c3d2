"""Translates a file with Ray: one model per worker, one line out per line in, in order.

    python recipes/at-scale/translate_with_ray.py --model RUN|FILE --input big.en --output big.de --workers 2

Ray starts on this machine, or joins the cluster that RAY_ADDRESS names; its machines must see the same paths. A worker
that dies is started again, and its batches are translated again.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import ray
import ray.data
from ray_rows import Translate

from vtrans.text.lines import index_lines, open_bytes, read_lines, write_line, writing

PART = 2000  # lines


def parts(path: Path) -> list[dict[str, Any]]:
    """The parts of a file: the number of the first line and the first byte of each, and the bytes."""
    starts = index_lines(path, PART).starts
    return [
        {"path": str(path.resolve()), "first": number * PART + 1, "start": start, "size": end - start}
        for number, (start, end) in enumerate(pairwise(starts))
    ]


def lines(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The lines of a part. `ray.data.read_text` would also split lines at U+2028, U+0085 and the like."""
    with open_bytes(part["path"]) as stream:
        stream.seek(part["start"])
        block = io.BytesIO(stream.read(part["size"]))
    texts = read_lines(block, part["path"], line=part["first"], offset=part["start"])
    for number, text in enumerate(texts, part["first"]):
        yield {"line": number, "text": text}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gpus", type=float, default=0, help="of each worker")
    options = parser.parse_args()
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    translated = (
        ray.data.from_items(parts(options.input))
        .flat_map(lines, num_cpus=0)  # otherwise it waits forever if the workers take all cores
        .map_batches(
            Translate,
            fn_constructor_kwargs={"model": str(Path(options.model).resolve())},
            batch_size=PART,
            concurrency=options.workers,
            num_gpus=options.gpus,
        )
    )
    with writing(options.output) as stream:
        for expected, row in enumerate(translated.iter_rows(), 1):
            if row["line"] != expected:
                raise SystemExit(f"line {expected} is missing; line {row['line']} came instead.")
            write_line(stream, row["translation"])


if __name__ == "__main__":
    main()

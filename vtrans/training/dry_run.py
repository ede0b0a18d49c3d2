"""Dry runs: estimate the time and memory of training from a few measured updates."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import islice

import torch

from vtrans.config import TrainConfig
from vtrans.data.batches import BatchLoader, Cursor, RankBatch
from vtrans.system.console import duration
from vtrans.system.devices import is_gpu
from vtrans.system.process import peak_memory
from vtrans.training.log import planned_steps
from vtrans.training.progress import Progress

# A dry run ends after this many measured updates or seconds.
UPDATES, SECONDS = 10, 20.0


def estimate(
    loader: BatchLoader,
    config: TrainConfig,
    progress: Progress,
    update: Callable[[Sequence[RankBatch]], None],
    say: Callable[[str], None],
) -> None:
    """Reports the size of an epoch and the time and memory of the remaining training. `update` makes an update, waits
    for it and changes `progress`."""
    store, plan = loader.first_plan()
    pairs, planned, numbers = len(loader.mixture), sum(map(len, plan)), torch.cat(plan)
    share = planned / pairs  # of an epoch; below 1 for a window of drawn pairs
    src_tokens, tgt_tokens = int(store.src_lengths[numbers].sum()), int(store.tgt_lengths[numbers].sum()) + planned
    padded = sum(len(p) * (int(store.src_lengths[p].max()) + int(store.tgt_lengths[p].max()) + 2) for p in plan)
    updates, left = len(plan) / share / config.accumulate, config.max_steps - progress.step
    in_time = 60 * config.max_minutes - progress.seconds if config.max_minutes else math.inf
    say(
        f"an epoch: {pairs:,} pairs, {src_tokens / share:,.0f} source and {tgt_tokens / share:,.0f} target tokens in "
        f"{len(plan) / share:,.0f} batches, {1 - (src_tokens + planned + tgt_tokens) / padded:.1%} padding; "
        f"{updates:,.1f} updates" + (f" (from {planned:,} pairs)" if planned < pairs else "")
    )
    # The plan starts with its largest batch, which warms up the kernels and sets peak memory.
    positions, seconds, began = 0, 0.0, time.monotonic()
    with closing(loader.batches(Cursor())) as batches:
        for number in range(1 + UPDATES):
            group = [batch for _, batch in islice(batches, config.accumulate)]
            start = time.monotonic()
            update(group)
            if number > 0:
                seconds += time.monotonic() - start
                positions += sum(each.batch.padded for each in group)
                late = float(time.monotonic() - began > SECONDS)
                if loader.ranks.summed([late], loader.device)[0]:  # all ranks stop together
                    break
    each = seconds / positions * padded / share / updates
    # On a CPU, memory later grows with validations and kernels for more shapes: from 0.64 to 0.98 GB (4+4 layers, D
    # 128, 60 updates of 1,024 tokens), from 1.35 to 1.5 GB (3+3 layers, D 256).
    rest = " on the GPU" if is_gpu(loader.device) else "; a long run with its validations takes about 0.3 GB more"
    each_process = f" in each of {loader.ranks.world} processes" if loader.ranks.world > 1 else ""
    peak = peak_memory(loader.device) / 1e9
    say(f"memory: {peak:.2f} GB{each_process}, measured with the largest batch{rest}")
    whole = ""
    if planned_steps(config):
        whole = f"{duration(each * left)} for {left:,} steps ({left / updates:,.1f} epochs), "
    say(
        f"time: {each:.2f} seconds per update (mean of {number}), {duration(each * updates)} per epoch, {whole}without "
        "validations"
    )
    if in_time < each * left:
        steps = in_time / each
        say(
            f"train.max_minutes ends training in {duration(in_time)}, after at most {steps:,.0f} steps "
            f"({steps / updates:,.1f} epochs)"
        )
    say("dry run: nothing was written")

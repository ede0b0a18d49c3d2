"""`vtrans train --dry-run`: what training will take, from the size of an epoch and a few updates that are measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import islice

from vtrans.config import TrainConfig
from vtrans.console import duration
from vtrans.runtime.memory import peak_memory
from vtrans.training.feed import Feed, Place, Share

# A dry run measures that many updates, or as many as end in that many seconds.
REHEARSED, REHEARSAL = 10, 20.0


def forecast(
    feed: Feed,
    config: TrainConfig,
    step: int,
    update: Callable[[Sequence[Share]], None],
    say: Callable[[str], None],
) -> None:
    """Says what is left of training after `step`; `update` does one, and returns when it is done."""
    size = feed.epoch_size()
    updates, left = size.batches / config.accumulate, config.max_steps - step
    say(
        f"an epoch: {size.pairs:,} pairs, {size.src_tokens:,.0f} source and {size.tgt_tokens:,.0f} target tokens in "
        f"{size.batches:,.0f} batches, {size.padding:.1%} padding; {updates:,.1f} updates"
        + (f" (from {size.planned:,} pairs)" if size.planned < size.pairs else "")
    )
    if left <= 0:
        say(f"the run is done at step {step:,} (train.max_steps = {config.max_steps})")
        return
    # The plan begins with its largest batch: that is for warming up, and for the peak of memory.
    positions, seconds, began = 0, 0.0, time.monotonic()
    with closing(feed.shares(Place())) as shares:
        for number in range(1 + REHEARSED):
            group = [share for _, share in islice(shares, config.accumulate)]
            start = time.monotonic()
            update(group)
            if number > 0:
                seconds += time.monotonic() - start
                positions += sum(batch.padded for batch, _, _ in group)
                if feed.ranks.world == 1 and time.monotonic() - began > REHEARSAL:
                    break
    each = seconds / positions * size.padded / updates
    # On a CPU kernels for more shapes of products come with time, and validations: 0.64 GB became 0.98 (4+4 layers,
    # D 128, 60 updates of 1,024 tokens), 1.35 became 1.5 (3+3 layers, D 256).
    rest = " of the GPU" if feed.device.type == "cuda" else "; a long run, with its validations, takes some 0.3 GB more"
    say(f"memory: {peak_memory(feed.device) / 1e9:.2f} GB in these updates, the largest batch among them{rest}")
    say(
        f"time: {each:.2f} seconds an update (of {number} measured), {duration(each * updates)} an epoch, "
        f"{duration(each * left)} for {left:,} steps ({left / updates:,.1f} epochs), validations not counted"
    )
    say("dry run: nothing was written")

"""Updates of the weights, and the sums of their losses and token counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from vtrans.system.seeds import derived_seed
from vtrans.training.batch_loader import RankBatch
from vtrans.training.optimization.job import Job, Learner
from vtrans.training.optimization.loss import autocast
from vtrans.training.optimization.optimizer import learning_rate
from vtrans.training.progress import Progress
from vtrans.training.resume import diverged

NON_FINITE_LIMIT = 10  # the run ends after this many consecutive updates without a finite gradient
# Updates between two reads of the losses. A read synchronises the device, which costs nothing on a CPU.
READ_EVERY = {"cpu": 1}
READ_EVERY_ELSEWHERE = 10


class Updates:
    """Makes updates, and adds their losses and token counts to the run's progress.

    `update` never synchronises the device: it keeps the losses as tensors, and the optimizer's kernel skips updates
    whose gradient is not finite. `read` synchronises, and adds up all updates since its last call. `objective` computes
    the losses; outside of tests it is `learner.parallel.objective`. `rate` returns the learning rate of an update.
    """

    def __init__(self, job: Job, learner: Learner, objective: nn.Module, progress: Progress) -> None:
        self.job, self.learner, self.objective, self.progress = job, learner, objective, progress
        self.rate: Callable[[int], float] = self.scheduled_rate
        self.read_every = READ_EVERY.get(job.device.type, READ_EVERY_ELSEWHERE)
        # Per update: its step, [loss, nll, whether it was skipped], and its token counts.
        self._unread: list[tuple[int, Tensor, dict[str, float]]] = []
        self._dtype = torch.float32 if job.device.type == "mps" else torch.float64
        self._clock = self._counted = time.monotonic()

    @property
    def full(self) -> bool:
        """Whether enough updates are unread for a read."""
        return len(self._unread) >= self.read_every

    def scheduled_rate(self, step: int) -> float:
        """Returns the learning rate of an update by the recipe's schedule."""
        return learning_rate(step, self.learner.config, self.learner.model.config.d_model, self.progress.seconds)

    def update(self, group: Sequence[RankBatch]) -> None:
        """Makes one update with the gradient of the mean loss per target token over all batches of `group`."""
        learner, config, ranks = self.learner, self.learner.config, self.job.ranks
        step = self.progress.step + 1
        rate = self.rate(step)
        for settings in learner.optimizer.param_groups:
            settings["lr"] = rate
        torch.manual_seed(derived_seed("dropout", config.seed, step, ranks.rank))
        sums_2, counts = self._gradient(group)
        # The norm covers the gradients of all ranks, so all ranks skip the same updates.
        norm = learner.parallel.gradient_norm()
        bad = (~norm.isfinite()).float()
        if config.clip_norm > 0:
            torch.nn.utils.clip_grads_with_norm_(learner.parameters.values(), config.clip_norm, norm)
        learner.optimizer.found_inf = bad  # type: ignore[attr-defined]  # the fused kernel skips the update if it is 1
        learner.optimizer.step()
        if learner.average is not None:
            learner.average.update(step, bad)
        learner.optimizer.zero_grad(set_to_none=True)
        learner.parallel.wait_for_updates()
        self._unread.append((step, torch.cat([sums_2, bad.to(self._dtype)[None]]), counts))
        self.progress.step = step

    def _gradient(self, group: Sequence[RankBatch]) -> tuple[Tensor, dict[str, float]]:
        """Computes the gradient of a group. Returns the sums of loss and nll [2], in nats, and this rank's token
        counts."""
        divisor, device = self.learner.parallel.divisor, self.job.device
        tokens = sum(each.tokens_of_all for each in group)
        counts = {"src_tokens": 0.0, "tgt_tokens": 0.0, "real": 0.0, "padded": 0.0}
        loss_sum = nll_sum = torch.zeros((), dtype=self._dtype, device=device)
        for number, (batch, _, counted) in enumerate(group, 1):
            # Multiplied by `divisor`, the ranks' gradients add up to the gradient of one large batch.
            weight = divisor / tokens if counted else 0.0
            with self.learner.parallel.accumulating(last=number == len(group)):
                with autocast(device, self.learner.config.precision):
                    loss, nll = self.objective(batch.to(device))
                (loss * weight).backward()
            if counted:
                loss_sum, nll_sum = loss_sum + loss.detach(), nll_sum + nll
                counts["src_tokens"] += batch.src_tokens
                counts["tgt_tokens"] += batch.tgt_tokens
                counts["real"] += batch.real
                counts["padded"] += batch.padded
        return torch.stack([loss_sum, nll_sum]), counts

    def read(self, signal_number: int = 0) -> bool:
        """Adds the updates since the last call to `progress.window`, summed over the ranks, and the time since then to
        `progress.seconds`. Returns whether any rank has received a signal: if one rank stopped alone, the others would
        hang.

        Raises VtransError after NON_FINITE_LIMIT consecutive updates without a finite gradient.
        """
        window = self.progress.window
        steps, measured, counts = zip(*self._unread, strict=True)
        read = torch.stack(measured).tolist()
        names = ("loss", "nll", *counts[0])
        rows = [[loss, nll, *counted.values()] for (loss, nll, _), counted in zip(read, counts, strict=True)]
        values = [signal_number, self.passed(), *(value for row in rows for value in row)]
        stopping, passed, *summed = self.job.ranks.summed(values, self.job.device)
        self.progress.seconds += passed
        for number, step in enumerate(steps):
            if read[number][2]:
                self._count_skipped(step)
                continue
            self.progress.skipped_in_row = 0
            row = summed[number * len(names) : (number + 1) * len(names)]
            for key, value in zip(names, row, strict=True):
                window[key] = window.get(key, 0) + value
        self._unread = []
        now = time.monotonic()
        window["seconds"] = window.get("seconds", 0) + now - self._clock
        self._clock = now
        return stopping > 0

    def passed(self) -> float:
        """Returns the seconds since the last call; 0 except on rank 0, so that the sum over ranks is rank 0's time."""
        before, self._counted = self._counted, time.monotonic()
        return self._counted - before if self.job.leads else 0.0

    def restart_clock(self) -> None:
        """Excludes the time since the last read from the training time."""
        self._clock = time.monotonic()

    def _count_skipped(self, step: int) -> None:
        progress, run = self.progress, self.job.run
        progress.skipped += 1
        progress.skipped_in_row += 1
        progress.window["skipped"] = progress.window.get("skipped", 0) + 1
        self.job.console.warn(f"step {step:,}: the gradient is not finite; this update is skipped")
        if progress.skipped_in_row >= NON_FINITE_LIMIT:
            raise diverged(run, f"{NON_FINITE_LIMIT} consecutive updates had no finite gradient")

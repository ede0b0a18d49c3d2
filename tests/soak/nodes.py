"""Kills a training on two nodes, which are two torchrun agents on this machine, and compares it with an unkilled one.

    python tests/soak/nodes.py

1. A rank is killed: with --max-restarts both agents start their processes again, which resume.
2. An agent and its rank are killed: the other agent waits, and the run resumes once the agent is started again.
3. The same with --max-restarts 0: the other agent ends.

The exit code is 1 if the model of 1 or 2 differs from that of a run that nothing stopped.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.extend(str(Path(__file__).parents[1] / folder) for folder in ("", "helpers"))

from conftest import EVERY_STEP, TINY, make_data

from vtrans.storage.run_folder import RunFolder

STEPS = 200
SETTINGS = (*TINY, *EVERY_STEP, f"train.max_steps={STEPS}", "train.checkpoint_every=50", "train.log_every=10")


class Nodes:
    """Two agents with a rank each."""

    def __init__(self, data: Path, run: Path, restarts: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            endpoint = f"127.0.0.1:{free.getsockname()[1]}"
        self.run, self.began = RunFolder(run), time.monotonic()
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
        launcher += ["--rdzv-backend", "c10d", "--rdzv-id", "run1", "--rdzv-endpoint", endpoint]
        train = ["-m", "vtrans", "train", "--data", str(data), "--out", str(run), "--device", "cpu", "--quiet"]
        settings = [word for value in SETTINGS for word in ("--set", value)]
        self.words = [*launcher, "--max-restarts", str(restarts), *train, *settings]
        # The first agent starts the rendezvous. The second one is killed: the rendezvous ends with its agent.
        self.agents = [self.start(), self.start()]

    def start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        return subprocess.Popen(self.words, env=environment, stderr=subprocess.DEVNULL)

    def rank_of(self, agent: int) -> int:
        pid = self.agents[agent].pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def wait_for(self, step: int) -> None:
        while step not in self.run.steps() and self.agents[0].poll() is None:
            time.sleep(0.01)

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s  {text}; checkpoints {self.run.steps()}", flush=True)

    def codes(self) -> list[int]:
        return [agent.wait() for agent in self.agents]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = make_data(folder).path
        whole = Nodes(data, folder / "whole", 0)
        assert whole.codes() == [0, 0]
        model = whole.run.step_file(STEPS).read_bytes()
        whole.say("the run that nothing stopped")
        equal = []
        for kill_agent in (False, True):
            nodes = Nodes(data, folder / f"killed-{kill_agent}", 3)
            nodes.wait_for(100)
            rank = nodes.rank_of(1)
            if kill_agent:
                nodes.agents[1].kill()
                nodes.agents[1].wait()
            os.kill(rank, signal.SIGKILL)
            nodes.say("killed " + ("agent and rank" if kill_agent else "a rank"))
            if kill_agent:
                time.sleep(3)
                nodes.agents[1] = nodes.start()
            codes = nodes.codes()
            equal.append(codes == [0, 0] and nodes.run.step_file(STEPS).read_bytes() == model)
            nodes.say(f"ended with {codes}, {'equal' if equal[-1] else 'NOT EQUAL'}")
        nodes = Nodes(data, folder / "given-up", 0)
        nodes.wait_for(100)
        rank = nodes.rank_of(1)
        nodes.agents[1].kill()
        os.kill(rank, signal.SIGKILL)
        killed = time.monotonic()
        code = nodes.agents[0].wait()
        nodes.say(f"the other agent ended with {code}, {time.monotonic() - killed:.1f} s after the kill")
        sys.exit(not all(equal))


if __name__ == "__main__":
    main()

"""Print how long a first translation takes, compared with `import torch`, in turns.

    python tests/bench/startup.py [--model en-de] [--turns 5]

Each turn starts three processes: Python that imports torch, `vtrans translate` with one sentence, and `vtrans serve`
until it answers. The peak memory is that of the largest process. Linux only.
"""

import argparse
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from statistics import median

VTRANS = [sys.executable, "-m", "vtrans"]
PORT = 5077


def seconds(command: list[str], given: str = "") -> float:
    began = time.perf_counter()
    subprocess.run(command, input=given, text=True, capture_output=True, check=True)
    return time.perf_counter() - began


def served(model: str) -> tuple[float, int]:
    """Returns the seconds until the server answers, and its peak memory in MB."""
    began = time.perf_counter()
    process = subprocess.Popen([*VTRANS, "serve", model, "--port", str(PORT)], stderr=subprocess.DEVNULL)
    while process.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=1)
            break
        except OSError:
            time.sleep(0.005)
    taken = time.perf_counter() - began
    peak = re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
    process.terminate()
    process.wait()
    return taken, int(peak[0]) // 1000


def translated_memory(model: str) -> int:
    """Returns the peak memory of a first translation, in MB."""
    command = ["/usr/bin/time", "-f", "%M", *VTRANS, "translate", "--model", model]
    done = subprocess.run(command, input="A dog runs.\n", text=True, capture_output=True, check=True)
    return int(done.stderr.rpartition("\n")[0].rpartition("\n")[2]) // 1000


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="en-de")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    torch, first, ready, memory = [], [], [], []
    for _ in range(options.turns):
        torch.append(seconds([sys.executable, "-c", "import torch"]))
        first.append(seconds([*VTRANS, "translate", "--model", options.model], "A dog runs.\n"))
        taken, peak = served(options.model)
        ready.append(taken)
        memory.append(peak)
    print(f"import torch             {median(torch):.2f} s")
    print(f"translate, one sentence  {median(first):.2f} s, {median(first) / median(torch):.2f} of it")
    print(f"serve, until it answers  {median(ready):.2f} s, {median(ready) / median(torch):.2f} of it")
    print(f"peak memory              {translated_memory(options.model)} MB, serve {median(memory):.0f} MB")

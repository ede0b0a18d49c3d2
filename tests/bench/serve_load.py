"""Load on `vtrans serve`: a closed loop of clients on the loopback interface, each with one sentence at a time.

    python tests/bench/serve_load.py MODEL LINES                 throughput, latency, memory with 1, 8, 64 clients
    python tests/bench/serve_load.py MODEL LINES --soak 100000   memory, and whether each answer is the right one

LINES is a file of source sentences. The reference is `vtrans translate` on the same lines: its speed before and after,
and its text, with which every answer is compared. Answers may differ at near-ties, which depend on the batch; they are
counted, and none may be the translation of another line. Memory is that of all processes of the server: what they
share counts once (PSS).
"""

import argparse
import asyncio
import json
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

LEVELS = (1, 8, 64)
HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


@dataclass
class Outcome:
    """Measurements of the clients."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    differing: int = 0  # from the reference, at a near-tie
    wrong: int = 0  # the translation of another line

    def row(self, name: str) -> str:
        ordered = sorted(self.latencies)
        p99 = ordered[int(0.99 * (len(ordered) - 1))]
        p50, compared = statistics.median(ordered), f"differing {self.differing}   wrong {self.wrong}"
        return (
            f"{name:>12}  {len(ordered) / self.seconds:8.1f} requests/s   p50 {1e3 * p50:7.1f} ms   "
            f"p99 {1e3 * p99:7.1f} ms   {compared}"
        )


async def clients(port: int, lines: list[str], references: list[str], count: int, requests: int) -> Outcome:
    """Sends `requests` requests from `count` clients, each over one connection and only after its last answer."""
    outcome, numbers, known = Outcome(), iter(range(requests)), set(references)

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in numbers:
            i = number % len(lines)
            body = json.dumps({"q": lines[i], "source": "en", "target": "de"}).encode()
            began = time.perf_counter()
            writer.write(HEAD % len(body) + body)
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            assert length is not None
            answer = json.loads(await reader.readexactly(int(length[1])))
            outcome.latencies.append(time.perf_counter() - began)
            text = answer.get("translatedText")
            if text != references[i]:
                outcome.differing += 1
                outcome.wrong += text is None or text in known
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(count)))
    outcome.seconds = time.perf_counter() - began
    return outcome


@contextmanager
def server(words: list[str]) -> Iterator[tuple[int, int]]:
    """Runs a server until the end of the block. Yields its port and its process id."""
    with subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if match := re.search(rb"http://127\.0\.0\.1:(\d+)", line):
                    break
            else:
                raise SystemExit("the server did not start")
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield int(match[1]), process.pid
        finally:
            process.terminate()


def processes_of(pid: int) -> list[int]:
    """A process and those that it has started, and so on."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [pid, *(other for child in children for other in processes_of(int(child)))]


def megabytes(pid: int) -> float:
    """The proportional set size of a process and those that it has started."""
    total = 0
    for process in processes_of(pid):
        match = re.search(r"\nPss:\s+(\d+) kB", Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii"))
        total += int(match[1]) if match else 0
    return total / 1024


def timed_translation(model: str, lines: list[str]) -> tuple[list[str], float]:
    """The translations of `vtrans translate`, and its lines per second."""
    words = [sys.executable, "-m", "vtrans", "translate", "--model", model]
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(words, input=text, capture_output=True, encoding="utf-8", check=True)
    match = re.search(r"\(([\d,.]+) lines/s", done.stderr)
    assert match is not None, done.stderr
    return done.stdout.split("\n")[:-1], float(match[1].replace(",", ""))


def soak(port: int, pid: int, lines: list[str], references: list[str], requests: int) -> None:
    """Prints memory through a long load, in twenty parts."""
    total = 0
    for _ in range(20):
        outcome = asyncio.run(clients(port, lines, references, 64, requests // 20))
        total += len(outcome.latencies)
        memory = f"memory {megabytes(pid):.1f} MB in {len(processes_of(pid))} processes"
        print(outcome.row(f"{total:,}"), f"  {memory}", flush=True)
        if outcome.wrong:
            raise SystemExit("an answer belongs to another request")


def main() -> None:
    parser = argparse.ArgumentParser(description="Load on vtrans serve, on the loopback interface only.")
    parser.add_argument("model")
    parser.add_argument("lines", type=Path)
    parser.add_argument("--requests", type=int, default=2000, help="requests per number of clients")
    parser.add_argument("--soak", type=int, default=0, metavar="REQUESTS")
    asked = parser.parse_args()
    lines = [line for line in asked.lines.read_text(encoding="utf-8").split("\n") if line.strip()]
    references, speed = timed_translation(asked.model, lines)
    print(f"vtrans translate: {speed:.1f} lines/s")
    ours = ["-m", "vtrans", "serve", "--pair", f"en-de={asked.model}", "--port", "0", "--char-limit", "1000000"]
    with server(ours) as (port, pid):
        asyncio.run(clients(port, lines, references, 8, 200))
        if asked.soak:
            soak(port, pid, lines, references, asked.soak)
            return
        for count in LEVELS:
            requests = asked.requests if count > 1 else asked.requests // 4
            outcome = asyncio.run(clients(port, lines, references, count, requests))
            share = len(outcome.latencies) / outcome.seconds / speed
            print(outcome.row(f"{count} clients"), f"  {share:.0%} of vtrans translate", flush=True)
        print(f"memory {megabytes(pid):.0f} MB in {len(processes_of(pid))} processes")
    print(f"vtrans translate: {timed_translation(asked.model, lines)[1]:.1f} lines/s")


if __name__ == "__main__":
    main()

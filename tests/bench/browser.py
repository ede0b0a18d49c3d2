"""Measures the page of `vtrans export --to web` in headless Chromium: the time until it is ready, the first
translation, and words per second. The server is stopped before the first translation.

    python tests/bench/browser.py FOLDER TEXT [--screenshot FILE]
"""

import argparse
import functools
import http.server
import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SWITCHES = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1000,640")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Prints nothing."""


@contextmanager
def opened(folder: Path) -> Iterator[tuple[Any, float]]:
    """Yields a browser in which the page of a folder is ready, without a server, and the seconds until it was."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("chromium-browser") or ""
    for switch in SWITCHES:
        options.add_argument(switch)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        start = time.perf_counter()
        driver.get(f"http://127.0.0.1:{server.server_port}/")
        waited(driver, "return document.body.dataset.state === 'ready' || document.getElementById('error').textContent")
        seconds = time.perf_counter() - start
        assert not driver.find_element("id", "error").text, driver.find_element("id", "error").text
        waited(driver, "return document.body.dataset.offline")
        server.shutdown()
        server.server_close()
        driver.set_network_conditions(offline=True, latency=0, throughput=0)
        yield driver, seconds
    finally:
        driver.quit()


def waited(driver: Any, script: str, seconds: float = 120) -> Any:
    """Returns the result of a script as soon as it is true."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(driver, seconds, poll_frequency=0.01).until(lambda _: driver.execute_script(script))


def translated(driver: Any, text: str) -> tuple[str, float]:
    """Returns the translation of a text, and the seconds that it took."""
    start = time.perf_counter()
    driver.execute_script(
        "window.before = document.getElementById('status').textContent; const text = document.getElementById('text');"
        "document.getElementById('status').textContent = ''; text.value = arguments[0];"
        "text.dispatchEvent(new InputEvent('input'))",
        text,
    )
    waited(driver, "return document.getElementById('status').textContent")
    seconds = time.perf_counter() - start
    return driver.execute_script("return document.getElementById('output').value"), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of `vtrans export --to web`")
    parser.add_argument("text", type=Path, help="text to translate, one sentence per line")
    parser.add_argument("--screenshot", type=Path, help="file to write the picture of the page to")
    options = parser.parse_args()
    lines = options.text.read_text(encoding="utf-8").split("\n")[:-1]
    with opened(options.folder) as (driver, ready):
        _, first = translated(driver, lines[0])
        words = sum(len(line.split()) for line in lines)
        output, seconds = translated(driver, "\n".join(lines))
        assert len(output.split("\n")) == len(lines)
        if options.screenshot:
            translated(driver, "\n".join(lines[:8]))
            driver.save_screenshot(str(options.screenshot))
    files = {str(path.relative_to(options.folder)): path.stat().st_size for path in options.folder.rglob("*.*")}
    figures = {
        "bytes": sum(files.values()),
        "bytes without the engine": sum(size for name, size in files.items() if not name.startswith("worker")),
        "seconds until ready": round(ready, 2),
        "seconds of the first sentence": round(first, 3),
        "words": words,
        "words per second": round(words / seconds),
        "sentences per second": round(len(lines) / seconds, 1),
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()

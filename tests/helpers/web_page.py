"""The web page of a server in Chromium, without a screen."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install selenium")
KEYS = webdriver.Keys
BROWSER, DRIVER = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
NO_BROWSER = "a browser is not installed: apt-get install chromium chromium-driver"
needs_browser = pytest.mark.skipif(not (BROWSER and DRIVER), reason=NO_BROWSER)

SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)


class Page:
    """The page in the browser."""

    def __init__(self, driver: Any, url: str) -> None:
        self.driver, self.url = driver, url
        self.open()

    def open(self) -> None:
        self.driver.get(self.url + "/")
        self.wait(lambda: self.find("target").get_attribute("value"))

    def find(self, name: str) -> Any:
        return self.driver.find_element("id", name)

    def text(self, name: str) -> str:
        return str(self.find(name).text)

    def value(self, name: str) -> str:
        return str(self.find(name).get_property("value"))

    def type(self, text: str) -> None:
        self.find("text").send_keys(text)

    def paste(self, text: str) -> None:
        """Sets the text as a whole; ChromeDriver cannot type characters beyond U+FFFF."""
        script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new InputEvent('input'))"
        self.driver.execute_script(script, self.find("text"), text)

    def choose(self, name: str, code: str) -> None:
        self.find(name).find_element("css selector", f"option[value={code}]").click()

    def wait(self, condition: Callable[[], object], seconds: float = 20) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, seconds, poll_frequency=0.02).until(lambda _: condition())

    def gone(self) -> None:
        """Checks that no translation is shown, and that none can be copied."""
        shown = self.text("output"), self.find("copy").is_enabled(), self.find("others").is_displayed()
        assert shown == ("", False, False)

    def linked(self) -> list[str]:
        return [element.get_property("textContent") for element in self.driver.find_elements("css selector", ".linked")]


@contextmanager
def browser() -> Iterator[Any]:
    """Yields a driver of the browser, which may ask only this machine for anything."""
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for switch in SWITCHES:
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield made
        messages = [json.loads(entry["message"])["message"] for entry in made.get_log("performance")]
        asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        assert any("page.js" in url for url in asked)
        assert [url for url in asked if not url.startswith(("http://127.0.0.1:", "data:", "chrome:"))] == []
    finally:
        made.quit()

"""The web page in a real browser: typing, swapping, errors, slow answers, files, and what it may not do."""

import re
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from services import DE_EN, EN_DE, Blocked, Client, reversed_words, serving
from web_page import KEYS, Page, browser, needs_browser

from vtrans.apps.documents.document import Translated
from vtrans.apps.documents.memory import Memory
from vtrans.apps.server.batching import RequestOptions
from vtrans.apps.server.limits import Keys, Limits
from vtrans.text.languages import Languages
from vtrans.translate.steps.line import Line

pytestmark = needs_browser


class Model:
    """Reverses words. A line with "slow" waits until it is released."""

    def __init__(self) -> None:
        self.release, self.waiting = threading.Event(), threading.Event()

    def __call__(self, lines: Sequence[Line], options: RequestOptions, ready: object) -> list[list[Translated]]:
        if any("slow" in line.text for line in lines):
            self.waiting.set()
            assert self.release.wait(30)
        if any("broken" in line.text for line in lines):
            raise ValueError("broken")
        return reversed_words(lines, options)


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


@pytest.fixture(scope="module")
def client(model: Model) -> Iterator[Client]:
    with serving(translate=model, pairs=(EN_DE, DE_EN), limits=Limits(characters=200)) as served:
        yield served


@pytest.fixture(scope="module")
def driver(client: Client) -> Iterator[Any]:
    with browser() as made:
        yield made


@pytest.fixture
def page(driver: Any, client: Client) -> Page:
    opened = Page(driver, client.url)
    driver.execute_script("localStorage.clear()")
    opened.open()
    return opened


def type_two_words(page: Page) -> None:
    """Types "one two", and waits for the translation."""
    page.choose("source", "en")
    page.type("one two")
    page.wait(lambda: page.text("output") == "two one")


def test_text_is_translated_while_it_is_typed(page: Page) -> None:
    page.type("The little dog runs through the park.")
    page.wait(lambda: page.text("output") == "park. the through runs dog little The")
    assert page.text("status") == "Detected English"
    assert len(page.driver.find_elements("css selector", "#alternatives li")) == 3
    page.type(" Next one.")
    page.wait(lambda: page.text("output") == "park. the through runs dog little The one. Next")
    assert not page.find("others").is_displayed()  # they would be combinations of those of two sentences
    page.find("clear").click()
    page.wait(lambda: page.text("output") == "")
    assert not page.find("others").is_displayed()


def test_swapping_exchanges_languages_and_text(page: Page) -> None:
    type_two_words(page)
    page.find("swap").click()
    page.wait(lambda: page.text("output") == "one two")
    assert (page.value("source"), page.value("target"), page.value("text")) == ("de", "en", "two one")
    page.open()  # the languages are remembered
    assert (page.value("source"), page.value("target")) == ("de", "en")


def test_swapping_explains_why_it_cannot(driver: Any) -> None:
    with serving(pairs=(EN_DE, Languages("en", "fr"))) as client:
        page = Page(driver, client.url)
        page.choose("target", "de")
        assert "German" in page.find("swap").get_attribute("title")
        page.find("swap").click()
        page.wait(lambda: "German" in page.text("error"))
        assert page.value("target") == "de"


def test_one_pair_leaves_nothing_to_choose(driver: Any) -> None:
    with serving(pairs=(EN_DE,)) as client:
        page = Page(driver, client.url)
        assert [page.find(name).is_displayed() for name in ("source", "swap", "target")] == [False] * 3
        assert {"English", "German"} <= set(page.text("pair").split())
        page.type("one two")
        page.wait(lambda: page.text("output") == "two one")
        # The page cannot be told that this is English, so it shows the translation with a doubt.
        page.paste("El perro corre por el parque.")
        page.wait(lambda: page.text("output").startswith("parque."))
        assert "English" in page.text("status")


def test_a_text_that_is_too_long_says_how_much_to_remove(page: Page) -> None:
    type_two_words(page)
    page.paste("a" * 203)
    page.wait(lambda: page.find("error").is_displayed())
    assert {"3", "200"} <= set(re.findall(r"\d+", page.text("error")))
    assert page.find("error").get_attribute("role") == "alert"
    page.gone()
    page.find("text").clear()
    page.type("one two")
    page.wait(lambda: page.text("output") == "two one")
    assert not page.find("error").is_displayed()


def test_a_translation_of_an_earlier_text_cannot_be_copied(page: Page, model: Model) -> None:
    type_two_words(page)
    assert page.find("copy").is_enabled()
    page.wait(lambda: page.find("others").is_displayed())
    model.release.clear()
    page.type(" slow")
    assert not page.find("copy").is_enabled()
    assert not page.find("others").is_displayed()
    model.release.set()
    page.wait(lambda: page.text("output") == "slow two one")
    page.type(" broken")
    page.wait(lambda: page.find("error").is_displayed())
    page.gone()
    assert "q" not in page.text("error").split()


@pytest.mark.parametrize("text", ["\u0645\u0631\u062d\u0628\u0627 \u0643\u064a\u0641", "El perro corre por el parque."])
def test_a_text_in_another_language_is_not_translated(page: Page, text: str) -> None:
    page.choose("source", "auto")
    page.paste(text)
    page.wait(lambda: page.find("error").is_displayed())
    page.gone()
    page.choose("source", "en")
    page.wait(lambda: page.text("output") != "")


def test_text_without_letters_has_no_language(page: Page) -> None:
    page.choose("source", "auto")
    page.paste("12 %")
    page.wait(lambda: page.text("output") == "12 %")
    assert not page.find("error").is_displayed()
    assert page.text("status") == ""


def test_an_alternative_takes_the_place_of_the_translation(page: Page) -> None:
    def others() -> list[str]:
        return [element.text for element in page.driver.find_elements("css selector", "#alternatives span")]

    type_two_words(page)
    assert others() == ["1 two one", "2 two one", "3 two one"]
    use, copy = page.driver.find_elements("css selector", "#alternatives li:nth-child(2) button")
    copy.click()
    page.wait(lambda: copy.text == "Copied")
    use.click()
    page.wait(lambda: page.text("output") == "2 two one")
    assert others() == ["1 two one", "two one", "3 two one"]


def test_a_correction_is_typed_saved_and_applied(driver: Any, tmp_path: Path) -> None:
    with serving(memory=Memory(tmp_path / "m"), pairs=(EN_DE, DE_EN)) as client:
        page = Page(driver, client.url)
        page.choose("source", "auto")
        page.type("The big dog runs. The cat sleeps.")
        page.wait(lambda: page.text("output") == "runs. dog big The sleeps. cat The")
        page.find("correct").click()
        assert page.driver.switch_to.active_element == page.find("correction")
        page.find("correction").clear()
        page.find("correction").send_keys("never saved", KEYS.ESCAPE)
        assert page.driver.switch_to.active_element == page.find("correct")
        assert page.text("output") == "runs. dog big The sleeps. cat The"
        page.find("correct").send_keys(KEYS.ENTER)
        page.find("correction").clear()
        page.find("save").click()
        page.wait(lambda: page.find("error").is_displayed())
        page.find("correction").send_keys("Der Hund rennt. Die Katze schläft.", KEYS.CONTROL, KEYS.ENTER)
        page.wait(lambda: page.text("output") == "Der Hund rennt. Die Katze schläft.")
        assert page.driver.switch_to.active_element == page.find("correct")
        assert not page.find("error").is_displayed()
        assert not page.find("correction").is_displayed()
        page.type(" One more.")
        page.wait(lambda: page.text("output") == "Der Hund rennt. Die Katze schläft. more. One")
        page.find("correct").click()
        page.type(" And more.")
        page.wait(lambda: page.text("output").endswith("more. And"))
        assert not page.find("correction").is_displayed()


def test_without_a_memory_nothing_can_be_corrected(page: Page) -> None:
    type_two_words(page)
    assert not page.find("correct").is_displayed()


@pytest.mark.parametrize(
    ("limits", "keys", "word"),
    [
        (Limits(per_minute=1), None, "requests"),
        (Limits(timeout=0.2), None, "less"),
        (Limits(), "secret", "API key"),
    ],
)
def test_errors_speak_to_a_person(driver: Any, tmp_path: Path, limits: Limits, keys: str | None, word: str) -> None:
    access: dict[str, Any] = {}
    if keys:
        (tmp_path / "keys").write_text(keys, encoding="utf-8")
        access["keys"] = Keys(tmp_path / "keys")
    with serving(translate=Blocked(), limits=limits, **access) as client:
        client.translate("a")
        page = Page(driver, client.url)
        page.type("never")
        page.wait(lambda: page.find("error").is_displayed())
        assert word in page.text("error")
        page.gone()


def test_a_slow_answer_does_not_replace_a_newer_one(page: Page, model: Model) -> None:
    model.release.clear()
    model.waiting.clear()
    page.choose("source", "en")
    page.type("slow one")
    assert model.waiting.wait(20)
    page.find("text").clear()
    page.choose("target", "de")
    page.type("quick two")
    page.wait(lambda: "stale" in page.find("output").get_attribute("class"))
    model.release.set()
    page.wait(lambda: page.text("output") == "two quick")
    page.driver.execute_async_script("setTimeout(arguments[0], 300)")
    assert page.text("output") == "two quick"


def test_linked_words_are_marked_on_both_sides(page: Page) -> None:
    page.choose("source", "en")
    page.paste("one 😀 two three")
    page.wait(lambda: page.text("output") == "three two 😀 one")
    words = page.driver.find_elements("css selector", "#output [data-links]")
    page.driver.execute_script("arguments[0].dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))", words[1])
    assert page.linked() == ["two", "two"]
    page.find("text").send_keys(KEYS.CONTROL, KEYS.HOME)
    page.find("text").send_keys(KEYS.ARROW_RIGHT)
    page.wait(lambda: page.linked() == ["one", "one"])


def test_nothing_is_read_as_markup(page: Page) -> None:
    page.choose("source", "en")
    page.type("<img src=x onerror=document.title='bad'> <b>x</b>")
    page.wait(lambda: page.text("output") == "<b>x</b> onerror=document.title='bad'> src=x <img")
    assert page.driver.title == "vtrans"
    assert page.driver.find_elements("css selector", "#output img, #mirror img, #alternatives img, #output b") == []


def test_a_file_is_translated(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "a <b>.txt"
    file.write_text("one two", encoding="utf-8")
    page.choose("source", "en")
    page.find("file").send_keys(str(file))
    page.wait(lambda: page.find("download").find_elements("tag name", "a"))
    link = page.find("download").find_element("tag name", "a")
    assert "a <b>.txt" in link.text
    assert page.driver.execute_script(
        "return arguments[0].closest('.pane') === document.getElementById('file').closest('.pane')", link
    )
    script = "fetch(arguments[0]).then(reply => reply.text()).then(arguments[1])"
    assert page.driver.execute_async_script(script, link.get_property("href")) == "two one"


def test_a_file_of_another_kind_is_refused_by_name(page: Page, tmp_path: Path) -> None:
    for name, word in (("a.exe", ".docx"), ("empty.txt", "empty")):
        (tmp_path / name).touch()
        page.find("file").send_keys(str(tmp_path / name))
        page.wait(partial(lambda expected: expected in page.text("error"), name))
        assert word in page.text("error")
        assert not page.find("download").is_displayed()


def test_the_page_fits_a_narrow_screen(page: Page) -> None:
    page.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 320, "height": 640, "deviceScaleFactor": 2, "mobile": True}
    )
    try:
        page.open()
        wide = page.driver.execute_script("return document.documentElement.scrollWidth")
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert wide <= 320


def test_the_policy_allows_no_other_host(client: Client) -> None:
    reply = client.get("/")
    policy = reply.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert b"http" not in reply.body.replace(b"http-equiv", b"")
    assert b"http" not in client.get("/page.css").body + client.get("/page.js").body


def test_doubtful_words_are_marked_and_listed_and_a_form_of_address_is_chosen(driver: Any) -> None:
    def model(lines: Sequence[Line], options: RequestOptions, ready: object) -> list[list[Translated]]:
        made = [f"{options.formality or 'plain'} {line.text}" for line in lines]
        return [[Translated(t, (), tuple(0.1 if "dog" in word else 0.9 for word in t.split()))] for t in made]

    with serving(translate=model) as client:
        page = Page(driver, client.url)
        page.type("a dog, runs")
        page.wait(lambda: page.text("output") == "plain a dog, runs")
        assert [word.text for word in driver.find_elements("css selector", "#output .doubtful")] == ["dog,"]
        assert page.text("doubts").endswith(": dog")
        page.choose("formality", "less")
        page.wait(lambda: page.text("output") == "less a dog, runs")


def test_a_file_that_is_dropped_is_translated(page: Page) -> None:
    page.choose("source", "en")
    page.driver.execute_script(
        "const data = new DataTransfer(); data.items.add(new File(['one two'], 'a.txt'));"
        "document.body.dispatchEvent(new DragEvent('drop', {bubbles: true, cancelable: true, dataTransfer: data}))"
    )
    page.wait(lambda: page.find("download").find_elements("tag name", "a"))

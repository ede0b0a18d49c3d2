"""The web page with the keyboard alone: the order of the controls, where the focus is, and what they are called."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from services import DE_EN, EN_DE, serving
from web_page import KEYS, Page, browser, needs_browser

from vtrans.apps.documents.document import Translated
from vtrans.apps.documents.memory import Memory
from vtrans.apps.server.batching import RequestOptions
from vtrans.translate.steps.line import Line

pytestmark = needs_browser

CONTROLS = ["source", "swap", "target", "formality", "text", "file", "clear", "output", "copy", "correct"]


def model(lines: Sequence[Line], options: RequestOptions, ready: object) -> list[list[Translated]]:
    """Writes words in capitals, with a number before each alternative."""
    found = []
    for line in lines:
        text = f"{options.formality or ''} {line.text.upper()}".strip()
        texts = [f"{n} {text}" if n else text for n in range(options.nbest)]
        found.append([Translated(text, (), (0.9,) * len(text.split())) for text in texts])
    return found


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with browser() as made:
        yield made


@pytest.fixture
def page(driver: Any, tmp_path: Path) -> Iterator[Page]:
    """The page with a text and its translation; the focus is where it is after typing."""
    memory = Memory(tmp_path / "memory")
    with serving(translate=model, pairs=(EN_DE, DE_EN), memory=memory) as client:
        opened = Page(driver, client.url)
        driver.execute_script("localStorage.clear()")
        opened.open()
        press(opened, "a dog runs")
        opened.wait(lambda: opened.find("others").is_displayed())
        yield opened
    memory.close()


def press(page: Page, *keys: str, held: str = "") -> None:
    """Presses keys, all with another one held."""
    from selenium.webdriver.common.action_chains import ActionChains

    chain = ActionChains(page.driver)
    if held:
        chain.key_down(held)
    chain.send_keys(*keys)
    if held:
        chain.key_up(held)
    chain.perform()


def focused(page: Page) -> str:
    """Returns the id of the control that has the focus, or else its text; an empty string for the page itself."""
    element = page.driver.switch_to.active_element
    return "" if element.tag_name == "body" else str(element.get_attribute("id") or element.text)


def go_to(page: Page, name: str) -> None:
    """Presses the tab key until a control has the focus."""
    for _ in range(40):
        if focused(page) == name:
            return
        press(page, KEYS.TAB)
    raise AssertionError(f"the tab key does not reach {name}")


def test_the_tab_key_goes_through_all_controls_in_their_order_and_back(page: Page) -> None:
    assert focused(page) == "text"
    rest = ["Use", "Copy"] * 3 + ["/spec"]
    place = CONTROLS.index("text")
    for name in [*CONTROLS[place + 1 :], *rest]:
        press(page, KEYS.TAB)
        assert focused(page) == name
    for name in [*CONTROLS, *rest][-2::-1]:
        press(page, KEYS.TAB, held=KEYS.SHIFT)
        assert focused(page) == name


def test_the_focus_is_always_seen(page: Page) -> None:
    """By an outline, and in the text by the caret and the frame of its pane."""
    outline = (
        "const e = document.activeElement, of = (x) => getComputedStyle(x);"
        "return [e, e.closest('label')].some(x => x && of(x).outlineStyle !== 'none' && parseFloat(of(x).outlineWidth))"
    )
    frame = "return [...document.querySelectorAll('.pane')].map(x => getComputedStyle(x).borderTopColor)"
    ours, other = page.driver.execute_script(frame)
    assert ours != other
    for name in (*CONTROLS, "Use", "/spec"):
        go_to(page, name)
        assert name == "text" or page.driver.execute_script(outline), name


def test_each_control_says_its_name_and_its_role(page: Page) -> None:
    """As a screen reader hears them."""
    tree = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    nodes = [(node["role"]["value"], node["name"]["value"], node) for node in tree if "name" in node]
    said = [(role, name) for role, name, node in nodes if states(node).get("focusable")]
    expected = [
        ("combobox", "From"),
        ("button", "Swap the languages"),
        ("combobox", "To"),
        ("combobox", "Form of address"),
        ("textbox", "Text to translate"),
        ("button", "Translate a file"),
        ("button", "Clear"),
        ("region", "Translation"),
        ("button", "Copy"),
        ("button", "Correct"),
        *[("button", "Use"), ("button", "Copy")] * 3,
        ("link", "/spec"),
    ]
    assert sorted(pair for pair in said if pair[0] not in ("RootWebArea", "option")) == sorted(expected)
    assert {states(node).get("live") for _, name, node in nodes if name == "Translation"} == {"polite", None}


def states(node: Any) -> dict[str, Any]:
    return {state["name"]: state["value"].get("value") for state in node.get("properties", [])}


def test_a_text_is_translated_copied_and_cleared(page: Page) -> None:
    go_to(page, "copy")
    press(page, KEYS.ENTER)
    page.wait(lambda: page.text("copy") == "Copied")
    assert focused(page) == "copy"
    go_to(page, "Use")
    press(page, KEYS.SPACE)
    page.wait(lambda: page.text("output") == "1 A DOG RUNS")
    assert focused(page) == "copy"
    go_to(page, "clear")
    press(page, KEYS.ENTER)
    assert (focused(page), page.value("text"), page.text("output")) == ("text", "", "")


def test_a_file_is_chosen_and_its_translation_has_the_form_of_address(page: Page, tmp_path: Path) -> None:
    go_to(page, "formality")
    press(page, "For")
    go_to(page, "source")
    press(page, "Eng")
    (tmp_path / "a.txt").write_text("one two", encoding="utf-8")
    page.find("file").send_keys(str(tmp_path / "a.txt"))  # what the dialog of the system does
    page.wait(lambda: focused(page).startswith("Download"))
    link = page.driver.switch_to.active_element.get_property("href")
    script = "fetch(arguments[0]).then(reply => reply.text()).then(arguments[1])"
    assert page.driver.execute_async_script(script, link) == "more ONE TWO"

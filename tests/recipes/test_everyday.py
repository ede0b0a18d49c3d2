"""recipes/everyday and the model to try: a frozen suite, a right judge, and what the programs run and label."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from recipes import experiment
from recipes.everyday import check
from recipes.everyday.check import FOLDER, faults, main, read_suite, report
from recipes.everyday.generate import WORDS, generate
from recipes.formality import forms_in, label_of, labelled
from recipes.tatoeba import everyday_model, phrases
from recipes.tatoeba.joined import FEWEST_WORDS
from vtrans.storage.run_folder import RunFolder

SUITE = {line["source"]: line for line in read_suite()}
# A source of the suite, a German translation, and a fault that it has; right translations have none.
TABLE = (Path(__file__).parent / "everyday.tsv").read_text(encoding="utf-8").rstrip("\n").split("\n")
ROWS = [row.split("\t") for row in TABLE]


@pytest.mark.parametrize(("templates", "suite"), [("templates.tsv", "lines.jsonl"), ("held-out.tsv", "held-out.jsonl")])
def test_the_suite_is_what_its_templates_give(templates: str, suite: str) -> None:
    made = generate((FOLDER / templates).read_text(encoding="utf-8"))
    rows = (FOLDER / suite).read_text(encoding="utf-8").rstrip("\n").split("\n")
    assert [json.dumps(line, ensure_ascii=False) for line in made] == rows


def test_the_suite_has_a_thousand_different_lines() -> None:
    assert len(read_suite()) == len(SUITE) == 1000
    assert Counter(line["kind"] for line in SUITE.values()) == WORDS["lines"]


def test_right_translations_have_no_fault_and_wrong_ones_have_theirs() -> None:
    for source, translation, fault in ROWS:
        found = faults(SUITE[source], translation)
        assert fault in found if fault else found == [], (source, translation)


def test_a_line_that_stays_english_is_wrong_unless_nothing_is_to_be_translated() -> None:
    right = [line for line in SUITE.values() if not faults(line, line["source"])]
    assert len(right) < 40
    assert all(len(line["source"].split()) < 5 for line in right)


@pytest.mark.parametrize(
    ("source", "translation", "fault"),
    [
        ("The train leaves at 17:45 from platform 12.", "Le train part à 17 h 45 de la voie 12.", ""),
        ("He sold 2,000 books in 1984.", "Il a vendu 2 000 livres en 1984.", ""),
        ("He sold 2,000 books in 1984.", "Il a vendu 2 000 livres en 1984 et 3 en 1985.", "number invented"),
        ("I need a dozen eggs.", "J'ai besoin d'une douzaine d'œufs.", ""),
        ("Is j_berg@mail.example.net your address?", "你的地址是 j_berg@mail.example.net。", "final mark"),
        ("I paid $1,299.99 for this laptop.", "دفعت ١٬٢٩٩٫٩٩ دولار ثمن هذا الحاسوب.", ""),
        ("He said \"no\".", "Il a dit « non ».", ""),
    ],
)  # fmt: skip
def test_other_languages_are_judged_without_a_table(source: str, translation: str, fault: str) -> None:
    found = faults(SUITE[source], translation, "fr")
    assert fault in found if fault else found == []


def test_the_table_counts_lines_by_kind_by_file_and_in_all() -> None:
    lines = read_suite()
    found = [["copy lost"] if line["kind"] == "phones" else [] for line in lines]
    rows = {row[:16].strip(): row[16:].split() for row in report(lines, found).split("\n")}
    phones = str(WORDS["lines"]["phones"])
    assert rows["phones"] == [phones, "0", "0.0", "copy", "lost", phones]
    assert rows["lines"][1] == rows["lines"][0]
    assert rows["all"][:2] == ["1000", str(1000 - int(phones))]


def test_the_command_translates_the_suite_and_shows_the_kinds_that_are_asked_for(
    tiny_run: RunFolder, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        check, "read_suite", lambda: [line for line in SUITE.values() if line["kind"] in ("isbn", "urls")]
    )
    assert main(["--model", str(tiny_run.path), "--show", "isbn"]) == 0
    shown = [line for line in capfd.readouterr().out.split("\n") if line in SUITE]
    assert shown
    assert {SUITE[line]["kind"] for line in shown} == {"isbn"}


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that the program runs."""
    run: list[list[str]] = []
    monkeypatch.setattr(everyday_model, "JOINED", 100)
    for module in (experiment, everyday_model):
        monkeypatch.setattr(module, "run", run.append)
    return run


@pytest.fixture
def text(tmp_path: Path) -> Path:
    for stem in ("train", "valid", "test"):
        (tmp_path / f"{stem}.en").write_text("Can you help me?\nI do.\n")
        (tmp_path / f"{stem}.de").write_text("Kannst du mir helfen?\nJa.\n")
    return tmp_path


def test_it_learns_text_templates_and_long_lines_with_forms_of_address(commands: list[list[str]], text: Path) -> None:
    assert everyday_model.main(["--data", str(text), "--work", str(text / "work"), "--set", "train.seed=2"]) == 0
    src, tgt = ((text / "work" / f"train.{language}").read_text("utf-8").splitlines() for language in ("en", "de"))
    made = phrases.pairs()
    assert (src[1], tgt[:2]) == ("I do.", ["Kannst du mir helfen?", "Ja."])
    assert [re.sub("^<[a-z]+> ", "", line) for line in src[2:-100]] == [pair[0] for pair in made]
    assert tgt[2:-100] == [pair[1] for pair in made]
    assert min(len(line.split()) for line in src[-100:]) >= FEWEST_WORDS
    assert any(line.startswith("<formal> ") for line in src)
    prepare = commands[0]
    assert "--pairs" not in prepare
    assert {"<formal>", "<informal>"} <= set(prepare)
    first, trained = (command for command in commands if command[1] == "train")
    assert "train.seed=2" in trained
    steps = [int(word.split("=")[1]) for command in (first, trained) for word in command if "max_steps" in word]
    assert 0 < steps[0] < steps[1]
    stored = next(command for command in commands if "--float16" in command)
    assert stored[2] == trained[trained.index("--out") + 1]


@pytest.mark.parametrize(
    ("src", "tgt", "label"),
    [
        ("Can you help me?", "Können Sie mir helfen?", "<formal>"),
        ("Can you help me?", "Kannst du mir helfen?", "<informal>"),
        ("Is this your car?", "Ist das euer Auto?", "<informal>"),
        ("She asked you.", "Sie hat dich gefragt.", ""),  # Sie may mean "she"
        ("You know Ihr.", "Ihr kennt Ihr.", ""),  # Ihr begins the sentence, so it may be either
        ("I see it.", "Ich sehe Sie.", ""),
        ("You and your dog.", "Sie und dein Hund.", ""),
    ],
)
def test_a_pair_that_shows_one_form_has_its_label(src: str, tgt: str, label: str) -> None:
    assert label_of(src, tgt) == label


def test_both_forms_of_a_text_are_found() -> None:
    assert forms_in("Hat er Sie gesehen, oder hat er dich gesehen?") == {"<formal>", "<informal>"}
    assert forms_in("Das geht.") == set()


def test_half_of_the_pairs_with_a_label_get_it_and_all_others_stay() -> None:
    pairs = [("Do you?", "Tun Sie?"), ("Go.", "Geh."), ("Do you?", "Tust du?")] * 10
    lines = list(labelled(*zip(*pairs, strict=True)))
    assert [line.split("> ")[-1] for line in lines] == [src for src, _ in pairs]
    assert sum(line.startswith("<") for line in lines) == 10
    assert {"<formal> Do you?", "<informal> Do you?"} & set(lines)

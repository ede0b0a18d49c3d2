"""recipes/everyday: the suite is frozen; the judge accepts right German translations and names what is wrong."""

import json
from collections import Counter
from pathlib import Path

import pytest

from recipes.everyday import check
from recipes.everyday.check import FOLDER, faults, main, read_suite, report
from recipes.everyday.generate import WORDS, generate
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
        ("The train leaves at 17:45 from platform 12.", "Le train part à 17 h 45.", "number lost"),
        ("He sold 2,000 books in 1984.", "Il a vendu 2 000 livres en 1984.", ""),
        ("He sold 2,000 books in 1984.", "Il a vendu 2 000 livres en 1984 et 3 en 1985.", "number invented"),
        ("I need a dozen eggs.", "J'ai besoin d'une douzaine d'œufs.", ""),
        ("Is j_berg@mail.example.net your address?", "你的地址是 j_berg@mail.example.net 吗？", ""),
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

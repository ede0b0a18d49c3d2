"""`vtrans translate --memory`: what is taken from a memory, and what is refused."""

import dataclasses
import json
from pathlib import Path

import polib
import pytest
from cli_runner import Run

from vtrans.apps.documents.memory import Memory
from vtrans.model.checkpoint import load_model, save_model
from vtrans.storage.model_file import read_blueprint
from vtrans.storage.run_folder import RunFolder
from vtrans.text.languages import Languages

HEADER = 'msgid ""\nmsgstr "Language: {}\\nContent-Type: text/plain; charset=UTF-8\\n"\n\n'
ENTRY = 'msgid "{}"\nmsgstr "{}"\n\n'
TRANSLATED = HEADER.format("de") + ENTRY.format("The big <b>dog</b>.", "Der <b>große</b> Hund.")


@pytest.fixture
def model(ending_run: RunFolder, tmp_path: Path) -> Path:
    """A model that says that it translates from English to German and uses fuzzy matches."""
    loaded = load_model(ending_run.path / "last.safetensors")
    path = tmp_path / "able.safetensors"
    save_model(path, dataclasses.replace(loaded, matches=True, languages=(Languages("en", "de"),)))
    abilities = read_blueprint(path)
    assert (abilities.languages, abilities.matches, abilities.codes) == ((Languages("en", "de"),), True, False)
    assert load_model(path).matches
    assert abilities.pair == loaded.pair is not None  # training kept it
    return path


@pytest.fixture
def translate(run_cli: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Returns a function that runs `vtrans translate` in a folder with memories."""
    monkeypatch.chdir(tmp_path)
    Path("pages").mkdir()
    Path("pages/a.po").write_text(TRANSLATED, encoding="utf-8")
    memory = Memory(Path("corrections"))
    memory.add(Languages("en", "de"), "The big dog.", "Der große Hund!")
    memory.close()
    return lambda *words, **given: run_cli("translate", *words, "--model", model, "--device", "cpu", **given)


@pytest.mark.parametrize("processes", [1, 2])
def test_known_lines_are_taken_and_others_translated_with_a_match(translate: Run, processes: int) -> None:
    text = b" The big dog. \n\nThe big cat.\nsees\n"
    words = "--memory", "corrections", "--processes", processes
    done = translate(*words, "--json", stdin=text)
    assert done.code == 0, done.err
    known, blank, similar, other = ([json.loads(line)["translations"][0]] for line in done.out.splitlines())
    assert (known[0]["text"], known[0]["match"]) == (" Der große Hund! ", 1.0)
    assert similar[0]["match"] == pytest.approx(2 / 3)
    assert "match" not in other[0]
    assert "match" not in blank[0]
    plain = translate("--json", "--processes", processes, stdin=text).out.splitlines()
    assert [json.loads(plain[k])["translations"] for k in (1, 3)] == [blank, other]
    assert translate(*words, stdin=text).out.splitlines()[0] == " Der große Hund! ".encode()


def test_entries_of_documents_are_taken_from_folders(translate: Run) -> None:
    entries = HEADER.format("de") + ENTRY.format("The big <b>dog</b>.", "") + ENTRY.format("The old <b>dog</b>.", "")
    Path("b.po").write_text(entries, encoding="utf-8")
    done = translate("b.po", "-o", "c.po", "--memory", "pages")
    assert done.code == 0, done.err
    known, other = polib.pofile("c.po")
    assert (known.msgstr, known.fuzzy) == ("Der <b>große</b> Hund.", False)
    assert other.fuzzy == bool(other.msgstr)


def test_a_model_that_has_not_learned_it_gets_no_match(translate: Run, run_cli: Run, ending_run: RunFolder) -> None:
    words = "translate", "--memory", "corrections", "--model", ending_run.path, "--device", "cpu", "--json"
    done = run_cli(*words, stdin=b"The big dog.\nThe big cat.\n")
    assert done.code == 0, done.err
    known, similar = (json.loads(line)["translations"][0] for line in done.out.splitlines())
    assert known["match"] == 1.0
    assert "match" not in similar
    assert "--fuzzy" in done.err


@pytest.mark.parametrize(
    ("file", "content", "named"),
    [
        ("nowhere", None, "nowhere"),
        ("a.txt", "The dog.\n", ".tmx"),
        ("empty", "", ".tmx"),
        ("a.tmx", "<tmx><body><tu>", "a.tmx: line 1"),
        ("a.tmx", "<tmx><body/></tmx>", "no translated entry"),
        ("a.po", HEADER.format("de") + ENTRY.format("a", ""), "no translated entry"),
        ("a.po", HEADER.format("fr") + ENTRY.format("a dog", "un chien"), "fr"),
        ("docs/a.txt", "x", "docs has no file"),
        ("other", Languages("de", "en"), "en to de"),
        ("none", (), "en to de"),
    ],
)
def test_bad_memories_are_refused(translate: Run, file: str, content: str | tuple[str, ...] | None, named: str) -> None:
    path = Path(file)
    path.parent.mkdir(exist_ok=True)
    if isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    elif content is not None:
        memory = Memory(path)
        if isinstance(content, Languages):
            memory.add(content, "a", "b")
        memory.close()
    before = path.read_bytes() if path.exists() else None
    done = translate("--memory", "docs" if file.startswith("docs") else file, stdin=b"a dog\n")
    assert (done.code, done.out) == (2, b"")
    assert named in done.err
    assert len(done.err.splitlines()) == 1
    assert (path.read_bytes() if path.exists() else None) == before

"""`vtrans translate FILE` and `--memory`: what is read, written and refused."""

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

HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
PO = HEADER + 'msgid "The big <b>dog</b> sees %s."\nmsgstr ""\n'


@pytest.fixture
def translate(run_cli: Run, ending_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Returns a function that runs `vtrans translate` in a folder with documents."""
    monkeypatch.chdir(tmp_path)
    for name, content in {"a.po": PO, "docs/b.po": PO, "docs/deep/c.txt": "The cat.\n", "docs/.d.txt": "x"}.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(content, encoding="utf-8")
    Path("docs/e.bin").write_bytes(b"\0")
    Path("docs/f.ts").write_text("export const a = 'The cat.';\n", encoding="utf-8")
    Path("docs/g.xml").write_text("<project>The cat.</project>\n", encoding="utf-8")
    model = "--model", ending_run.path, "--device", "cpu"
    return lambda *words: run_cli("translate", *words, *model)


def test_a_document_goes_to_a_file_or_to_stdout(translate: Run) -> None:
    done = translate("a.po", "-o", "a.de.po", "--processes", "1")
    assert done.code == 0, done.err
    (entry,) = polib.pofile("a.de.po")
    assert entry.fuzzy
    assert [entry.msgstr.count(tag) for tag in ("<b>", "</b>", "%s")] == [1, 1, 1]
    assert translate("a.po", "--quiet").out == Path("a.de.po").read_bytes()
    assert Path("a.po").read_text(encoding="utf-8") == PO
    assert translate("a.de.po", "-o", "again.po", "--overwrite").code == 0
    assert translate("a.de.po", "-o", "b.po").code == 0
    assert Path("b.po").read_bytes() == Path("a.de.po").read_bytes()
    Path("a.txt").write_bytes(Path("a.po").read_bytes())
    assert translate("a.txt", "--format", "po").out == Path("a.de.po").read_bytes()


def test_several_documents_and_folders_go_to_a_folder(translate: Run) -> None:
    done = translate("a.po", "docs", "-o", "docs/new")
    assert done.code == 0, done.err
    made = sorted(str(path) for path in Path("docs/new").rglob("*") if path.is_file())
    assert made == ["docs/new/a.po", "docs/new/b.po", "docs/new/deep/c.txt"]
    assert translate("docs", "-o", "docs/new").code == 0
    assert not Path("docs/new/new").exists()


def test_of_a_folder_only_a_column_names_tables(translate: Run) -> None:
    Path("docs/data.csv").write_text("text,id\nThe cat.,1\n", encoding="utf-8")
    for words, name, number in (((), "b.po", 2), (("--column", "text"), "data.csv", 1)):
        done = translate("docs", "-o", f"out/{name}", *words)
        assert done.code == 0, done.err
        made = [path for path in Path(f"out/{name}").rglob("*") if path.is_file()]
        assert len(made) == number
        assert Path(f"out/{name}/{name}") in made


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("a.po --nbest 2", "--nbest"),
        ("a.po --input x", "--input"),
        ("a.po --chunk-lines 2", "--chunk-lines"),
        ("a.po --on-bad-utf8 replace", "--on-bad-utf8"),
        ("--overwrite", "--overwrite"),
        ("--format po", "--format"),
        ("a.po docs", "--out"),
        ("a.po docs/b.po -o docs/b.po", "docs/b.po"),
        ("a.po -o a.po", "a.po"),
        ("a.po -o .", "a.po"),
        ("docs -o docs", "docs"),
        ("a.po docs/../a.po -o out", "a.po"),
        ("nowhere.po", "nowhere.po"),
        ("a.ppo", "did you mean a.po?"),
        ("docs/e.bin", "--format"),
        ("a.po --format doc", "--format"),
        ("docs/deep -o out --format po", "line 1"),
    ],
)
def test_what_makes_no_sense_is_refused(translate: Run, words: str, named: str) -> None:
    before = sorted(Path().rglob("*"))
    done = translate(*words.split())
    assert (done.code, done.out) == (2, b"")
    assert named in done.err
    assert sorted(Path().rglob("*")) == before


def test_an_existing_translation_is_completed(translate: Run) -> None:
    Path("new.po").write_text(PO[:-3] + '"Der <b>Hund</b> sieht %s."\n', encoding="utf-8")
    corrected = Path("new.po").read_bytes()
    assert translate("a.po", "-o", "new.po").code == 0
    assert Path("new.po").read_bytes() == corrected
    source, edited = {"a": "The dog.", "b": "The cat."}, {"a": "Der Hund!", "b": ""}
    Path("en.json").write_text(json.dumps(source), encoding="utf-8")
    Path("de.json").write_text(json.dumps(edited), encoding="utf-8")
    assert translate("en.json", "-o", "de.json").code == 0
    first = Path("de.json").read_bytes()
    values = json.loads(first)
    assert values["a"] == edited["a"]
    assert values["b"]
    assert translate("en.json", "-o", "de.json").code == 0
    assert Path("de.json").read_bytes() == first
    assert translate("en.json", "-o", "de.json", "--overwrite").code == 0
    assert Path("de.json").read_bytes() == translate("en.json").out
    Path("de.json").write_bytes(b"{")
    done = translate("en.json", "-o", "de.json")
    assert done.code == 2
    assert "de.json" in done.err
    assert Path("de.json").read_bytes() == b"{"


def test_one_that_fails_is_named_and_the_others_are_written(translate: Run) -> None:
    memory = Memory(Path("corrections"))
    memory.add(Languages("en", "de"), "The cat.", "Die K\u00e4tze.")
    memory.close()
    entry = 'msgid "The cat."\nmsgstr ""\n'
    Path("docs/a.po").write_text(HEADER.replace("UTF-8", "US-ASCII") + entry, encoding="utf-8")
    done = translate("docs", "-o", "out", "--memory", "corrections")
    assert done.code == 1
    assert "docs/a.po" in done.err
    made = sorted(path for path in Path("out").rglob("*") if path.is_file())
    assert made == [Path("out/b.po"), Path("out/deep/c.txt")]


# Memories.

LANGUAGE = 'msgid ""\nmsgstr "Language: {}\\nContent-Type: text/plain; charset=UTF-8\\n"\n\n'
ENTRY = 'msgid "{}"\nmsgstr "{}"\n\n'
TRANSLATED = LANGUAGE.format("de") + ENTRY.format("The big <b>dog</b>.", "Der <b>große</b> Hund.")


@pytest.fixture
def model(ending_run: RunFolder, tmp_path: Path) -> Path:
    """A model that says that it translates from English to German and uses fuzzy matches."""
    loaded = load_model(ending_run.path / "last.safetensors")
    path = tmp_path / "able.safetensors"
    save_model(path, dataclasses.replace(loaded, matches=True, languages=(Languages("en", "de"),)))
    assert read_blueprint(path).pair == loaded.pair is not None  # training kept it
    return path


@pytest.fixture
def remember(run_cli: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Returns a function that runs `vtrans translate` in a folder with memories."""
    monkeypatch.chdir(tmp_path)
    Path("pages").mkdir()
    Path("pages/a.po").write_text(TRANSLATED, encoding="utf-8")
    memory = Memory(Path("corrections"))
    memory.add(Languages("en", "de"), "The big dog.", "Der große Hund!")
    memory.close()
    return lambda *words, **given: run_cli("translate", *words, "--model", model, "--device", "cpu", **given)


@pytest.mark.parametrize("processes", [1, 2])
def test_known_lines_are_taken_and_others_translated_with_a_match(remember: Run, processes: int) -> None:
    text = b" The big dog. \n\nThe big cat.\nsees\n"
    words = "--memory", "corrections", "--processes", processes
    done = remember(*words, "--json", stdin=text)
    assert done.code == 0, done.err
    known, blank, similar, other = ([json.loads(line)["translations"][0]] for line in done.out.splitlines())
    assert (known[0]["text"], known[0]["match"]) == (" Der große Hund! ", 1.0)
    assert similar[0]["match"] == pytest.approx(2 / 3)
    assert "match" not in other[0]
    assert "match" not in blank[0]
    plain = remember("--json", "--processes", processes, stdin=text).out.splitlines()
    assert [json.loads(plain[k])["translations"] for k in (1, 3)] == [blank, other]
    assert remember(*words, stdin=text).out.splitlines()[0] == " Der große Hund! ".encode()


def test_entries_of_documents_are_taken_from_folders(remember: Run) -> None:
    entries = LANGUAGE.format("de") + ENTRY.format("The big <b>dog</b>.", "") + ENTRY.format("The old <b>dog</b>.", "")
    Path("b.po").write_text(entries, encoding="utf-8")
    done = remember("b.po", "-o", "c.po", "--memory", "pages")
    assert done.code == 0, done.err
    known, other = polib.pofile("c.po")
    assert (known.msgstr, known.fuzzy) == ("Der <b>große</b> Hund.", False)
    assert other.fuzzy == bool(other.msgstr)


def test_a_model_that_has_not_learned_it_gets_no_match(remember: Run, run_cli: Run, ending_run: RunFolder) -> None:
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
        ("a.po", LANGUAGE.format("de") + ENTRY.format("a", ""), "no translated entry"),
        ("a.po", LANGUAGE.format("fr") + ENTRY.format("a dog", "un chien"), "fr"),
        ("docs/a.txt", "x", "docs has no file"),
        ("other", Languages("de", "en"), "en to de"),
        ("none", (), "en to de"),
    ],
)
def test_bad_memories_are_refused(remember: Run, file: str, content: str | tuple[str, ...] | None, named: str) -> None:
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
    done = remember("--memory", "docs" if file.startswith("docs") else file, stdin=b"a dog\n")
    assert (done.code, done.out) == (2, b"")
    assert named in done.err
    assert len(done.err.splitlines()) == 1
    assert (path.read_bytes() if path.exists() else None) == before

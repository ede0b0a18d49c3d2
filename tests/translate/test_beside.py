"""The files next to a model: a glossary and usual spellings."""

import shutil
from pathlib import Path

import pytest
from typed_lines import LATIN, WORDS, Echo, undone, vocabulary_of

import vtrans
from vtrans.search.options import Sampling
from vtrans.storage.run_folder import choose_model
from vtrans.system.errors import FileError
from vtrans.text.normalization import source_text
from vtrans.translate.steps.line import Line
from vtrans.translate.steps.normalise import Normalise
from vtrans.translate.translation import TranslateOptions, Translation
from vtrans.translate.translator import Translator
from vtrans.translate.wording.glossary import Beside, Glossary, pair_of

TERMS = Beside(Glossary((pair_of("dog", "Hund"),)))


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("u dont see", "you don't see"),
        ("U see, u?", "You see, you?"),
        ("DONT!", "DON'T!"),
        ("gonna…", "going to..."),
        ("u.com x@u /u/ u/x u_x xu", "u.com x@u /u/ u/x u_x xu"),
        ("“u” (u)", '"you" (you)'),
        ("नमस्ते जी", "नमस्कार जी"),
    ],
)
def test_words_get_their_usual_spelling(line: str, seen: str) -> None:
    vocab = vocabulary_of("you don't see going to “” नमस्ते नमस्कार जी ()")
    spellings = {"u": "you", "dont": "don't", "gonna": "going to", "नमस्ते": "नमस्कार"}
    read, begun = Line(1, line), Line(2, line, prefix="x")
    Normalise(vocab, spellings)([read, begun])
    assert (read.model_input, begun.model_input) == (seen, source_text(line))
    assert undone(read, "x y").text == "x y"


def test_links_refer_to_the_words_as_typed() -> None:
    line = Line(1, "a gonna b")
    Normalise(LATIN, {"gonna": "going to"})([line])
    (undo,) = line.undo
    assert undo(Translation("x y", 0, 0, True, alignment=((0, 0), (1, 1), (2, 1), (3, 0)))).alignment == (
        *((0, 0), (1, 1), (2, 0)),
    )


def translated(line: str, **options: object) -> str:
    made = Translator(Echo(), beside=TERMS)
    return made.translate_window([Line(1, line)], TranslateOptions(**options))[0][0].text  # type: ignore[arg-type]


def test_the_models_glossary_is_used_unless_the_text_is_raw() -> None:
    assert translated("a dog") == "ein Hund a dog"
    assert translated("a dog", raw=True) == "ein a dog"
    assert translated("a dog", glossary=Glossary((pair_of("dog", "HUND"),))) == "ein HUND a dog"
    assert translated("a dog", sampling=Sampling()) == "ein a dog"  # samples have no terms
    assert WORDS.encode("Hund")


def test_glossary_and_spellings_are_found_next_to_the_model(tmp_path: Path) -> None:
    model = Path(shutil.copy(choose_model(Path("en-de")).file, tmp_path))
    assert Beside.of(model) == Beside()
    (tmp_path / "glossary.tsv").write_text("dog\tKöter\n", encoding="utf-8")
    (tmp_path / "spellings.tsv").write_text("# typed\ncatt\tcat\n", encoding="utf-8")
    assert Beside.of(model).spellings == {"catt": "cat"}
    first, second = vtrans.load(model).translate(["The dog sleeps.", "I have a catt."])
    assert "Köter" in first
    assert "Katze" in second
    for line in ("u\tyou|thou", "u x\ty"):
        (tmp_path / "spellings.tsv").write_text(f"{line}\n", encoding="utf-8")
        with pytest.raises(FileError, match=r"spellings\.tsv must be a word"):
            Beside.of(model)

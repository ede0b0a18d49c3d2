"""Measures what the defaults do to real text in any language: `python tests/soak/languages.py FILE...`.

The lines of each file pass all steps of a translator, whose model copies its source. A table tells the share of words
that are protected, of lines that are recased, of lines that are cut into pieces, and of lines that come back changed.
Words with digits and URLs do not count as protected, and what the normalisation of Unicode changes does not count as
changed. Below the table are the protected words that are the most frequent, and the first lines that changed.

The exit code is 1 if more than 2% of the words of a file are protected, or more than 0.1% of its lines change.
"""

import argparse
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import regex

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from translators import FakeEngine, learned

from vtrans.search.loop import Hypothesis
from vtrans.text.normalization import source_text
from vtrans.text.vocabulary import Vocabulary
from vtrans.translate.steps.line import Line
from vtrans.translate.translation import TranslateOptions
from vtrans.translate.translator import Translator

MOST_PROTECTED, MOST_CHANGED = 0.02, 0.001
SHOWN = 20  # protected words
WINDOW = 500  # lines

_WORD = regex.compile(r"[\w\p{M}][\w\p{M}'\u2019-]*")
_URL = regex.compile(r"[a-z]+://\S+|www\.\S+")
_INVISIBLE = regex.compile(r"[\p{Cc}\p{Cf}\s]+")
_CODE = regex.compile(r"[A-Z]\d+")
_QUOTES = str.maketrans("\u201c\u201d", '""')


class Copier(FakeEngine):
    """Translates each source as itself. It has learned codes, and its long lines are those of a file."""

    def __init__(self, vocab: Vocabulary, usual_length: int) -> None:
        super().__init__(vocab)
        model: Any = SimpleNamespace(codes=True, usual_length=usual_length, matches=False, pair=None)
        self.models = [model]

    def search(self, sources: Sequence[Any], config: Any, **options: Any) -> Iterator[tuple[int, list[Hypothesis]]]:
        for i, source in enumerate(sources):
            tokens = tuple(source.tokens[:-1])
            yield i, [Hypothesis(tokens, -1.0, -1.0, True, (-1.0,) * (len(tokens) + 1))]


class Report(NamedTuple):
    """Counters of the lines of a file."""

    lines: int
    words: int
    protected: Counter[str]
    recased: list[str]
    cut: int
    changed: list[tuple[str, str]]

    @property
    def share_protected(self) -> float:
        return self.protected.total() / max(1, self.words)


def words_of(text: str) -> list[str]:
    """Returns the words of a text that have letters and no digits, without those of its URLs."""
    words = _WORD.findall(_URL.sub(" ", text))
    return [word for word in words if any(map(str.isalpha, word)) and not any(map(str.isdigit, word))]


def unified(text: str) -> str:
    """Returns a text without what the normalisation of Unicode may change: compatibility forms, invisible characters
    and quotation marks."""
    return " ".join(_INVISIBLE.sub(" ", unicodedata.normalize("NFKC", text).translate(_QUOTES)).split())


def letters(text: str) -> str:
    return "".join(filter(str.isalpha, unicodedata.normalize("NFKC", text)))


def is_recased(line: Line) -> bool:
    """Returns whether the model sees a line in another case."""
    own = _CODE.sub(lambda code: line.codes.get(code[0], code[0]), line.model_input)
    seen, text = letters(own), letters(line.text)
    return seen not in text and seen.casefold() in text.casefold()


def around(text: str, other: str) -> str:
    """Returns the part of a text in which it begins to differ from another."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, other, strict=False)))
    return text[max(0, same - 40) : same + 40]


def report_of(texts: Sequence[str]) -> Report:
    vocab = learned([*texts, *map(source_text, texts)], split_digits=True)  # it has all characters of both sides
    lengths = sorted(map(len, vocab.encode_batch(texts)))
    translator = Translator(Copier(vocab, lengths[len(lengths) * 9 // 10]))
    report = Report(0, 0, Counter(), [], 0, [])
    lines = [Line(number, text) for number, text in enumerate(texts, 1)]
    cut = words = 0
    for begin in range(0, len(lines), WINDOW):
        window = lines[begin : begin + WINDOW]
        for line, translations in zip(window, translator.translate_window(window, TranslateOptions()), strict=True):
            (translation,) = translations
            words += len(words_of(line.text))
            codes = (line.codes.get(code, "") for code in _CODE.findall(line.model_input))
            for text in [line.text] if line.counts.copied else codes:
                report.protected.update(words_of(text))
            cut += len(line.pieces) > 1
            if is_recased(line):
                report.recased.append(line.text)
            if (copy := unified(translation.text)) != (text := unified(line.text)):
                report.changed.append((text, copy))
    return report._replace(lines=len(lines), words=words, cut=cut)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures what the defaults do to real text in any language.")
    parser.add_argument("files", nargs="+", type=Path, help="text, one sentence or paragraph per line")
    parser.add_argument("--lines", type=int, default=3000, help="read that many lines of each file (default: 3000)")
    parser.add_argument("--show", type=int, default=3, help="print that many changed lines per file (default: 3)")
    options = parser.parse_args()
    print(f"{'file':24} {'lines':>6} {'protected':>10} {'recased':>8} {'cut':>7} {'changed':>8}", flush=True)
    failed, notes = 0, list[str]()
    for path in options.files:
        texts = [line for line in path.read_text("utf-8").split("\n")[: options.lines] if line.strip()]
        report = report_of(texts)
        shares = (len(report.recased), report.cut, len(report.changed))
        recased, cut, changed = (count / max(1, report.lines) for count in shares)
        fails = report.share_protected > MOST_PROTECTED or changed > MOST_CHANGED
        failed += fails
        print(
            f"{path.name:24} {report.lines:6} {report.share_protected:10.2%} {recased:8.2%} {cut:7.2%} {changed:8.2%}"
            f"{'  FAILED' if fails else ''}",
            flush=True,
        )
        common = (f"{word} {count}" for word, count in report.protected.most_common(SHOWN))
        notes += [f"{path.name}: {', '.join(common)}"] if report.protected else []
        notes += [
            f"  {around(text, copy)!r}\n  became {around(copy, text)!r}"
            for text, copy in report.changed[: options.show]
        ]
    print("\n".join(["", *notes, "", f"{failed} of {len(options.files)} files fail."]))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

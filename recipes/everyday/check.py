"""Score a model on everyday text: python -m recipes.everyday.check --model MODEL

README.md says what is checked. The judge uses nothing of vtrans.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import unicodedata
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from .forms import GERMAN, expressions

Line = dict[str, Any]
FOLDER = Path(__file__).parent
COUNTED = {"brackets": r"[()\[\]]", "quotation marks": '["“”„«»「」]'}
# Private characters, unknown words, a word three times in a row, and words of 36 letters.
RUBBISH = r"[\ue000-\uf8ff\ufffd⁇▁]|<unk>|(?i:(?<!\w)(\w{2,})(?:\W+\1(?!\w)){2})|[^\W\d_]{36}"
APPENDED = r"\w{4,}[.?!…]\W*\s_\W*$"


def without_copies(text: str, copies: list[str]) -> tuple[str, list[int]]:
    """Returns the text with "_" for each copied text that has letters or digits, and how often each occurred."""
    counts = []
    for copy in sorted(copies, key=len, reverse=True):
        named = re.search(r"\w", copy)
        bounded = rf"(?<!\w){re.escape(copy)}(?![/.:@]?\w)" if named else re.escape(copy)
        text, count = re.subn(bounded, "_" if named else " ", text)
        counts.append(count)
    return text, counts


def final_mark(text: str) -> str:
    """Returns the mark at the end of a line, or an empty string. Quotes, brackets and emoji may follow it."""
    text = re.sub(r"[^\w.?!…:]+$", "", text).replace("...", "…")
    return text[-1:] if text.endswith((".", "?", "!", "…", ":")) else ""


def value_faults(line: Line, text: str, in_german: bool) -> list[str]:
    """Returns the faults of numbers. Right values are taken out of the text; numbers that remain are invented."""
    text = re.sub(r"\d", lambda digit: str(int(digit[0])), re.sub(r"\s", " ", text)).casefold()
    found, values = [], line.get("values", [])
    for kind, value in values:
        for expression in expressions(kind, value, in_german):
            text, count = re.subn(expression, "_", text, count=1)
            found += [] if count else ["number lost"]
    is_free = not in_german and any(kind in ("time", "date") for kind, _ in values)  # may have digits of its own
    if (re.search(r"\d", text) and not is_free) or (in_german and re.search(GERMAN["number_word"], text)):
        found.append("number invented")
    return found


def shape_faults(kind: str, text: str, source: str) -> list[str]:
    """Returns the faults of marks, case and length. Both texts are without copies."""
    text = text.translate(str.maketrans("？！。：؟", "?!.:?"))
    mark, more = final_mark(source), text.count("?") - source.count("?")
    marks = {".": [".", "!"], "!": ["!", "."], "": ["", "?"]}.get(mark, [mark])
    kept = set() if kind == "capitals" else set(re.findall(r"\w+", source))
    letters = "".join(word for word in re.findall(r"[^\W\d_]+", text.replace("ß", "SS")) if word not in kept)
    words, known = (set(re.findall(r"[^\W\d_]{3,}", side.casefold())) for side in (text, source))
    size, limit = len(text.split()), len(source.split())
    wrong = {
        "final mark": final_mark(text) not in marks or not 0 <= more <= (mark == ""),
        "sentence lost": kind == "two-sentences" and len(re.findall(r"[.?!…](?:\W|$)", text)) < 2,
        "capitals": len(letters) > 3 and (sum(map(str.isupper, letters)) >= 0.9 * len(letters)) != (kind == "capitals"),
        "rubbish": bool(re.search(RUBBISH, text)),
        "length": size > 2 * limit + 3 or 3 * size < limit,
        "appended": bool(re.search(APPENDED, text)) and not re.search(APPENDED, source),
        "not translated": len(known) > 1 and len(words & known) > 0.6 * len(words),
    }
    wrong |= {name: len(re.findall(mark, text)) != len(re.findall(mark, source)) for name, mark in COUNTED.items()}
    return [name for name, value in wrong.items() if value]


def faults(line: Line, translation: str, language: str = "de") -> list[str]:
    """Returns what is wrong with the translation of a line of the suite."""
    in_german, start = language == "de", "".join(line.get("start", []))
    found = [] if translation.startswith(start) else ["start"]
    text, counts = without_copies(translation.removeprefix(start), line.get("copy", []))
    source, wanted = without_copies(line["source"].removeprefix(start), line.get("copy", []))
    for count, want in zip(counts, wanted, strict=True):
        found += ["copy lost"] if count < want else ["copy repeated"] if count > want else []
    plain = "".join(letter for letter in unicodedata.normalize("NFD", text) if not unicodedata.combining(letter))
    ending = r"(?:s|['’]s?)?(?!\w)" if in_german else ""
    found += ["name lost" for name in line.get("names", []) if not re.search(rf"(?<!\w){name}{ending}", plain)]
    text, source = (without_copies(side, line.get("names", []))[0] for side in (text, source))
    found += value_faults(line, text, in_german) + shape_faults(line["kind"], text, source)
    if in_german:
        folded = text.casefold()
        found += ["word lost" for word in line.get("german", []) if not re.search(word.replace("ß", "ss"), folded)]
        avoid = [*line.get("avoid", []), GERMAN["english"]]
        found += ["English kept" for word in avoid if re.search(rf"\b{word.casefold()}\b", folded)]
    return found


def report(lines: list[Line], found: list[list[str]]) -> str:
    """Returns the table: a row for each kind with its most frequent faults, and the scores."""
    groups: dict[str, list[list[str]]] = defaultdict(list)
    for key in ("kind", "suite", "all"):
        for line, each in zip(lines, found, strict=True):
            groups[line[key]].append(each)
    rows = [f"{'kind':<16}{'lines':>6}{'right':>7}{'%':>7}  most frequent faults"]
    for name, results in groups.items():
        right = results.count([])
        most = Counter(fault for each in results for fault in set(each)).most_common(3)
        row = f"{name:<16}{len(results):>6}{right:>7}{100 * right / len(results):>7.1f}  "
        rows.append((row + ", ".join(f"{fault} {count}" for fault, count in most)).rstrip())
    return "\n".join(rows)


def read_suite() -> list[Line]:
    """Returns the lines of the suite. Those of the held-out kinds come last."""
    files = {name: (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8") for name in ("lines", "held-out")}
    rows = [(name, row) for name, text in files.items() for row in text.rstrip("\n").split("\n")]
    return [json.loads(row) | {"suite": name, "all": "all"} for name, row in rows]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m recipes.everyday.check", description="Score on everyday text.")
    parser.add_argument("--model", default="en-de", help="a run folder, a model file, or the name of a model")
    parser.add_argument("--tgt", default="de", help="the language of the translations")
    parser.add_argument("--show", action="append", default=[], metavar="KIND", help="print its wrong lines")
    options, lines = parser.parse_args(arguments), read_suite()
    if unknown := set(options.show) - {line["kind"] for line in lines}:
        parser.error(f"--show {' '.join(sorted(unknown))}: the suite has no such kind; the table names all kinds.")
    command = [sys.executable, "-m", "vtrans", "translate", "--quiet", "--model", options.model]
    text = "".join(line["source"] + "\n" for line in lines)
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, encoding="utf-8", check=False)
    if done.returncode:
        return done.returncode
    found = []
    for line, translation in zip(lines, done.stdout.split("\n")[:-1], strict=True):
        found.append(faults(line, translation, options.tgt))
        if found[-1] and line["kind"] in options.show:
            sys.stdout.write(f"{line['source']}\n  {translation}\n  {', '.join(found[-1])}\n")
    sys.stdout.write(report(lines, found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

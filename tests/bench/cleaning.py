"""Print how much of the damage of a parallel text `vtrans clean` finds, and how many good pairs it loses.

    python tests/bench/cleaning.py train.en train.de --other train.fr [--pairs 20000] [--share 0.5] [--out FOLDER]
    python tests/bench/cleaning.py train.en train.de --share 0.1

Damages a share of the first pairs in equal parts: targets of random other pairs; targets of the next pair, in runs of
20; one side cut to 30% to 60% of its words (with `--half`, the target to its first half); a side replaced by a copy of
the other; a target in another language (half of them are lines of the source file, half of `--other`: its line N, which
may be a translation of source line N). Without `--other`, the damage is that of programs: two words of the target four
times, its last word six times, HTML tags on one side, a line of a web page before or after one side, and half of the
source missing; only pairs of more than three words per side are damaged. Then cleans the damaged and the undamaged
text. Good pairs dropped as duplicates are counted apart: nothing is lost with them. A moved target is no damage if its
new source equals the old one. `--out` keeps the damaged text, its undamaged half and the cleaned text, for trainings.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from collections import Counter
from pathlib import Path

from vtrans.console import Console
from vtrans.data.cleaning.clean import DROPPED_FILE, clean
from vtrans.data.cleaning.options import CleanOptions
from vtrans.text.lines import open_bytes, read_lines

KINDS = ("misaligned by one", "cut", "shuffled", "copied", "another language")
PROGRAMS = ("phrase four times", "last word six times", "HTML", "boilerplate", "half source missing")
TAGS = ("<p>{}</p>", "<b>{}</b>", "{}<br/>", '<a href="index.html">{}</a>', '<div class="text">{}')
BOILERPLATE = (
    "Home | About us | Contact",
    "Copyright 2019 All rights reserved",
    "Click here to read more",
    "Cookies help us deliver our services",
    "Sign in | Register",
)


def lines_of(path: Path) -> list[str]:
    with open_bytes(path) as stream:
        return list(read_lines(stream, str(path)))


def damaged(src: list[str], tgt: list[str], other: list[str], share: float) -> tuple[list[str], list[str], list[str]]:
    """Returns the two sides of the text after the damage, and the kind of damage of each pair."""
    dice, size = random.Random(1), len(src)
    each = round(share * size / len(KINDS))
    new_src, new_tgt, kinds = list(src), list(tgt), [""] * size
    runs = list(range(0, size - 20, 20))
    dice.shuffle(runs)
    for start in runs[: each // 20]:
        for i in range(start, start + 20):
            new_tgt[i], kinds[i] = tgt[i + 1], KINDS[0]
    left = [i for i in range(size) if not kinds[i]]
    dice.shuffle(left)
    long = [i for i in left if min(len(src[i].split()), len(tgt[i].split())) > 3]
    for i in long[:each]:
        side = dice.choice((new_src, new_tgt))
        words, kinds[i] = side[i].split(), KINDS[1]
        kept = max(1, round(dice.uniform(0.3, 0.6) * len(words)))
        side[i] = " ".join(words[:kept] if dice.random() < 0.5 else words[-kept:])
        if args.half:
            new_src[i], new_tgt[i] = src[i], " ".join(tgt[i].split()[: len(tgt[i].split()) // 2])
    left = [i for i in left if not kinds[i]]
    for place, i in enumerate(left[: 3 * each]):
        kinds[i] = KINDS[2 + place // each]
        if kinds[i] == "shuffled":
            new_tgt[i] = dice.choice(tgt)
        elif kinds[i] == "copied":
            new_src[i] = new_tgt[i] = dice.choice((src, tgt))[i]
        else:
            new_tgt[i] = dice.choice(src) if place % 2 else other[i % len(other)]
    translations = set(zip(src, tgt, strict=True))
    for i, pair in enumerate(zip(new_src, new_tgt, strict=True)):
        if pair in translations:
            kinds[i] = ""
    return new_src, new_tgt, kinds


def damaged_by_programs(src: list[str], tgt: list[str], share: float) -> tuple[list[str], list[str], list[str]]:
    """Returns the same for the damage of programs."""
    dice, kinds, sides = random.Random(3), [""] * len(src), (list(src), list(tgt))
    long = [i for i in range(len(src)) if min(len(src[i].split()), len(tgt[i].split())) > 3]
    each = round(share * len(src) / len(PROGRAMS))
    for place, i in enumerate(dice.sample(long, each * len(PROGRAMS))):
        kinds[i] = kind = PROGRAMS[place // each]
        words, side = tgt[i].split(), dice.choice(sides)
        if kind == "phrase four times":
            start = dice.randrange(len(words) - 1)
            sides[1][i] = " ".join([*words[:start], *words[start : start + 2] * 4, *words[start + 2 :]])
        elif kind == "last word six times":
            sides[1][i] = " ".join([*words, *words[-1:] * 5])
        elif kind == "HTML":
            words = side[i].split()
            start = dice.randrange(len(words))
            words[start:] = [dice.choice(TAGS).format(" ".join(words[start:]))]
            side[i] = " ".join(words)
        elif kind == "boilerplate":
            lines = [side[i], dice.choice(BOILERPLATE)]
            side[i] = " ".join(lines if dice.random() < 0.5 else lines[::-1])
        else:
            words = src[i].split()
            half = len(words) // 2
            sides[0][i] = " ".join(words[:half] if dice.random() < 0.5 else words[half:])
    return *sides, kinds


def cleaned(folder: Path, name: str, src: list[str], tgt: list[str], kinds: list[str], without: list[str]) -> None:
    """Cleans a text, and prints what was dropped for which reason."""
    paths = folder / f"{name}.{args.src_lang}", folder / f"{name}.{args.tgt_lang}"
    for path, lines in zip(paths, (src, tgt), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    began = time.process_time()
    options = CleanOptions(*paths, out=folder / f"{name}-cleaned", without=tuple(without))
    report = clean(options, Console(quiet=True))
    seconds = time.process_time() - began
    reasons = {}
    for line in lines_of(folder / f"{name}-cleaned" / DROPPED_FILE):
        number, reason, *_ = line.split("\t")
        reasons[int(number) - 1] = reason
    print(f"\n{name}: {len(src):,} pairs, {report['kept']:,} kept; {seconds:.1f} s of CPU; without {without or 'none'}")
    for kind in ("", *KINDS, *PROGRAMS):
        members = [i for i in range(len(src)) if kinds[i] == kind]
        if members:
            counts = Counter(reasons[i] for i in members if i in reasons)
            dropped = counts.total() - (0 if kind else counts["duplicate"])
            print(f"{kind or 'good':>19}: {dropped / len(members):7.2%} of {len(members):,} dropped; {dict(counts)}")
    bad = [i for i in range(len(src)) if kinds[i]]
    if bad:
        print(f"{'all damaged':>19}: {sum(i in reasons for i in bad) / len(bad):7.2%} of {len(bad):,} dropped")


def main() -> None:
    src, tgt = (lines_of(path)[: args.pairs] for path in (args.src, args.tgt))
    if args.other:
        new_src, new_tgt, kinds = damaged(src, tgt, lines_of(args.other), args.share)
    else:
        new_src, new_tgt, kinds = damaged_by_programs(src, tgt, args.share)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        cleaned(folder, "damaged", new_src, new_tgt, kinds, args.without)
        cleaned(folder, "undamaged", src, tgt, [""] * len(src), args.without)
        for language, lines in ((args.src_lang, src), (args.tgt_lang, tgt)):
            half = "".join(f"{line}\n" for line, kind in zip(lines, kinds, strict=True) if not kind)
            (folder / f"half.{language}").write_text(half, encoding="utf-8")
    print(f"\npeak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000:.0f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("src", type=Path)
    parser.add_argument("tgt", type=Path)
    parser.add_argument("--other", type=Path, help="text in a third language")
    parser.add_argument("--src-lang", default="en")
    parser.add_argument("--tgt-lang", default="de")
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--half", action="store_true", help="cut all targets to their first half")
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    main()

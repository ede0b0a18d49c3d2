"""Write made-up English and German sentences with their gold word alignments, to train on and to measure with.

    python tests/bench/gold_links.py FOLDER

Writes train and test in .en, .de and .align (Pharaoh format, over the words between spaces). The sentences have what
makes alignment hard: verbs at the end, words on both sides without translation, one in two words, another order.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

NOUNS = ["dog:Hund", "man:Mann", "teacher:Lehrer", "baker:Bäcker", "tree:Baum", "train:Zug", "king:König"]
VERBS = ["see:sehen:gesehen", "find:finden:gefunden", "hear:hören:gehört", "need:brauchen:gebraucht"]
SPLIT = ["opens:macht:auf", "closes:macht:zu", "calls:ruft:an", "invites:lädt:ein", "picks_up:hebt:auf"]
TIMES = ["today:heute", "now:jetzt", "often:oft", "soon:bald"]

Side = list[tuple[str, set[str]]]  # words, and the names of the meanings that each has


def sentence(draw: random.Random) -> tuple[Side, Side]:
    """Returns the words of both sides; words that have a meaning in common are linked."""
    (one, eins), (two, zwei) = (noun.split(":") for noun in draw.sample(NOUNS, 2))
    verb, infinitive, participle = draw.choice(VERBS).split(":")
    when, wann = draw.choice(TIMES).split(":")
    omitted: Side = [("really", set())] if draw.randrange(3) == 0 else []
    subject, person = [("the", {"a"}), (one, {"s"}), *omitted], [("der", {"a"}), (eins, {"s"})]
    form = draw.randrange(4)
    if form == 0:  # a modal verb, and the other verb at the end
        english = [*subject, ("must", {"m"}), (verb, {"v"}), ("the", {"b"}), (two, {"o"}), (when, {"t"})]
        return english, [*person, ("muss", {"m"}), (wann, {"t"}), ("den", {"b"}), (zwei, {"o"}), (infinitive, {"v"})]
    if form == 1:  # the time first, so that the subject follows the verb; "does not" is one word
        english = [*subject, ("did", {"h"}), ("not", {"n"}), (verb, {"v"}), ("the", {"b"}), (two, {"o"}), (when, {"t"})]
        german = [(wann, {"t"}), ("hat", {"h"}), *person, ("den", {"b"}), (zwei, {"o"}), ("nicht", {"n"})]
        return english, [*german, (participle, {"v"})]
    action, first, last = draw.choice(SPLIT).split(":")
    english = [*subject, *((word, {"v"}) for word in action.split("_")), ("the", {"b"}), (two, {"o"})]
    german = [*person, (first, {"v"}), ("den", {"b"}), (zwei, {"o"})]
    return english, [*german, *([("doch", set[str]())] if form == 2 else []), (last, {"v"})]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir()
    draw = random.Random(1)
    for name, number in (("train", 5000), ("test", 1000)):
        pairs = [sentence(draw) for _ in range(number)]
        for side, language in enumerate(("en", "de")):
            text = "".join(" ".join(word for word, _ in pair[side]) + "\n" for pair in pairs)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
        links = ([f"{i}-{j}" for i, (_, a) in enumerate(e) for j, (_, b) in enumerate(d) if a & b] for e, d in pairs)
        (folder / f"{name}.align").write_text("".join(" ".join(line) + "\n" for line in links))


if __name__ == "__main__":
    main()

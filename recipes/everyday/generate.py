"""Write the suite of everyday text from templates and lists of words: python -m recipes.everyday.generate"""

from __future__ import annotations

import json
import random
import re
import tomllib
from collections.abc import Iterator

from .check import FOLDER, Line

WORDS = tomllib.loads((FOLDER / "words.toml").read_text(encoding="utf-8"))
SLOTS = {slot: (group, list(texts)) for group in WORDS["groups"] for slot, texts in WORDS[group].items()}


def fill(kind: str, template: str, rng: random.Random) -> Line:
    """Returns a line of the suite. A slot <price> takes a text of its list, and <price=$5> has one."""
    source, german, avoid = (template + "\t\t").split("\t")[:3]
    fields: Line = {"copy": [], "names": [], "start": [], "values": [], "german": german.split(" & "), "avoid": [avoid]}
    for whole, slot, text in re.findall(r"(<([\w-]+)(?:=(.*?))?>)", source):
        group, texts = SLOTS[slot]
        if not text:
            unused = [each for each in texts if each not in source]
            text = re.sub("#", lambda _: str(1 + int(rng.random() * 9)), unused[int(rng.random() * len(unused))])
        source = source.replace(whole, text, 1)
        if group in fields:
            fields[group].append(text)
        elif group in ("sentences", "cities"):
            fields["german"] += WORDS[group][slot][text].split(" & ")
        elif group != "plain":
            fields["values"].append((group, str(WORDS["numbers"].get(text.casefold(), text))))
    source = re.sub(r"(?<!\.)\.\.(?!\.)", ".", source)  # an abbreviation may end a sentence
    fields = {key: [text for text in texts if text] for key, texts in fields.items()}
    return {"kind": kind, "source": source} | {key: texts for key, texts in fields.items() if texts}


def generate(templates: str) -> Iterator[Line]:
    """Yields the lines of a file of templates, whose rows `# kind` name the kinds. They are the same in every run."""
    for block in templates.split("# ")[1:]:
        kind, *rows = block.strip().split("\n")
        rng, count = random.Random(kind), WORDS["lines"][kind]
        rows.sort(key=lambda row: bool(re.search(r"<[\w-]+>", row)))  # those without a slot to fill come first
        new: dict[str, Line] = {}
        for template in rows * count:
            line = fill(kind, template, rng)
            new.setdefault(line["source"], line)
        yield from list(new.values())[:count]


if __name__ == "__main__":
    for templates, suite in (("templates.tsv", "lines.jsonl"), ("held-out.tsv", "held-out.jsonl")):
        lines = generate((FOLDER / templates).read_text(encoding="utf-8"))
        rows = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (FOLDER / suite).write_text(rows, encoding="utf-8")

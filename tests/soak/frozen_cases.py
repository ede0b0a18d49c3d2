"""The cases of `frozen.py`: texts, options, documents, requests and mistakes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

SHIPPED = "tatoeba-en-de"
ALONE = "--threads 1"  # one process with one thread, on any machine

HOSTILE = [
    "",
    " ",
    "\t  \u00a0",
    "A dog runs.",
    "  A dog   runs .  ",
    "A dog\x0bruns\x0cfast\x00.\x07",
    "One line\u2028another\u2029third\x85fourth\rfifth.",
    "I love \U0001f355 and \U0001f469\u200d\U0001f4bb!",
    "\U0001f600\U0001f600\U0001f600",
    "THE BIG DOG SEES ME TODAY.",
    "The Big Dog Sees Me Today",
    "WHO and NATO met in Paris. HELP",
    "the biG dOG seeS me",
    "PIZZA",
    "Tom",
    "dog " * 60,
    "no no no no no no no no no no no no",
    "I was told that " + "the man who saw the dog that bit the cat, and " * 12 + "nobody knew why.",
    "Dvo\u0159\u00e1k and \u0141ukasz met \u0110or\u0111e in \u00c5lesund.",
    "\u0416\u0443\u043a\u0438 \u0438 \u03b1\u03b2\u03b3.",
    "See https://example.org/a?b=1&c=%20d#e or mail me@example.org now.",
    "There are 3 dogs, 12,500 cats, 3.14 birds and 1/2 fish on 2024-02-29 at 10:45.",
    "I owe you $1,234.56 (or \u20ac99).",
    "Fish &amp; chips &lt;b&gt; cost &#163;5.",
    "<b>The big <i>dog</i></b> runs<br/> home.",
    "Hello {name}, you have %d new %s and ${x} in {{y}} at %1$s.",
    "Run `ls -l` or <code>rm -rf /</code> now.",
    "A1 B2 C3 are codes.",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd, \u202eabc\u202c \u0645\u0631\u062d\u0628\u0627",
    "\u732b\u304c\u597d\u304d\u3067\u3059\u3002\u4f60\u597d\uff0c\u4e16\u754c\uff01",
    "\u201cWhy?\u201d \u2013 he asked \u2026 \u2018because\u2019.",
    "...",
    "?!",
    "42",
    "a",
    "\u00e9 e\u0301 \ufb01ne \uff21\uff22\uff23 \u2460",
    "x" * 300,
    "word-with-hyphens and snake_case and CamelCase and a/b",
    "\u2581 \u2581The <unk> </s> <pad> <0x41>",
    "Zero\u200bwidth\u200djoin\ufeffed and soft\u00adhyphen.",
    "- A list item",
    "* Tom went home. He was tired. Was he? Yes!",
    "Mr. Smith, Dr. Who and U.S. troops came at 5 p.m.",
    "I'd've said y'all can't.",
    "He said: \"It's a test\", didn't he?",
    "tom dog house tree tom dog house tree",
]
PLAIN = [
    "A dog runs in the park.",
    "The dog and the cat are in the house.",
    "Where is the red car?",
    "",
    "I don't know what Tom said to Mary yesterday.",
    "She has three children and two dogs.",
    "THE CAR IS RED.",
    "Please send {name} to https://example.org/a at 10:45.",
    "I like \U0001f355 with cheese.",
    "We will have to wait until the end of the week before we know more about it.",
    "Time flies.",
    "The house that Jack built is old, but the garden behind it is beautiful.",
]
# The same number of lines as PLAIN.
PREFIXES = ["Ein", "Der Hund ", "Wo ", "", "Ich weiß", "", "DAS", "Bitte", "", "Wir werden wo", "Die Zeit", "Das Haus,"]
CONSTRAINTS: list[dict[str, object] | None] = [
    {"constraints": ["Park"]},
    {"constraints": [["Hund", "Hunde"], "Katze"], "avoid": ["Haus"]},
    {"avoid": ["Auto", "rote"]},
    None,
    {"constraints": ["gestern", "gesagt hat"]},
    {"avoid": ["Kinder"]},
    {"constraints": ["Wagen"]},
    {"avoid": ["Bitte"]},
    {"constraints": ["Pizza", "Käse"]},
    {"constraints": ["Woche"], "avoid": ["warten", "müssen"]},
    {"constraints": ["Zeit", "Zeit"]},
    {"constraints": ["Garten"], "avoid": ["schön"]},
]
GLOSSARY = "# terms\ndog\tKöter|Köters|Köter\ncar\tWagen\nhouse\tGebäude|Gebäudes\nred car\troter Wagen\nTom\tThomas\n"
PO_HEADER = (
    'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    '"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n'
)
MEMORY = PO_HEADER + "".join(
    f'msgid "{src}"\nmsgstr "{tgt}"\n\n'
    for src, tgt in (
        ("Where is the red car?", "Wo steht denn der rote Wagen?"),
        ("A dog runs in the garden.", "Im Garten läuft ein Hund."),
        ("Time flies.", "Wie die Zeit vergeht!"),
        ("She has three children and two cats.", "Drei Kinder hat sie und zwei Katzen."),
        ("Open %s now", "Öffne %s sofort"),
    )
)
TEXTS = {
    "hostile.txt": ("\n".join(HOSTILE) + "\n").encode(),
    "plain.txt": ("\n".join(PLAIN) + "\n").encode(),
    "prefix.txt": ("\n".join(PREFIXES) + "\n").encode(),
    "constraints.jsonl": "".join(f"{json.dumps(c) if c else ''}\n" for c in CONSTRAINTS).encode(),
    "terms.tsv": GLOSSARY.encode(),
    "memory.po": MEMORY.encode(),
}
# Options of `vtrans translate` for PLAIN, by the name of the case.
TWO_BEST = "--tsv --nbest 2 "
SEARCH = {
    "beam-1": "--tsv --beam 1",
    "beam-4": "--tsv --beam 4 --nbest 4",
    "beam-8": "--tsv --beam 8 --nbest 8",
    "no-repeat-ngram-1": TWO_BEST + "--no-repeat-ngram 1",
    "no-repeat-ngram-2": TWO_BEST + "--no-repeat-ngram 2",
    "min-length": TWO_BEST + "--min-length 9",
    "max-length": TWO_BEST + "--max-length 5",
    "max-ratio": TWO_BEST + "--max-ratio 0.7",
    "alpha-0": TWO_BEST + "--alpha 0",
    "alpha-negative": TWO_BEST + "--alpha -1",
    "length-penalty": TWO_BEST + "--alpha 1.5 --length-penalty length",
    "gnmt": TWO_BEST + "--alpha 1.5 --length-penalty gnmt",
    "stop-current": TWO_BEST + "--stop current",
    "stop-exhaustive": TWO_BEST + "--stop exhaustive --beam 3",
    "stop-shrink": TWO_BEST + "--stop shrink --beam 6",
    "repetition-penalty": TWO_BEST + "--repetition-penalty 1.5",
    "suppress": TWO_BEST + "--suppress . --suppress ,",
    "groups": "--tsv --beam 6 --beam-groups 3 --diversity 0.8 --nbest 6",
    "groups-of-one": "--tsv --beam 4 --beam-groups 4 --nbest 4",
    "max-source": TWO_BEST + "--max-source 6",
    "batch-1": TWO_BEST + "--batch-tokens 1",
    "batch-40": TWO_BEST + "--batch-tokens 40",
    "raw": TWO_BEST + "--raw",
    "no-retry": TWO_BEST + "--no-retry --max-length 6",
    "prefix": TWO_BEST + "--prefix prefix.txt",
    "prefix-rules": TWO_BEST + "--prefix prefix.txt --no-repeat-ngram 2 --min-length 8 --beam 5",
    "constraints": TWO_BEST + "--constraints constraints.jsonl",
    "constraints-rules": TWO_BEST + "--constraints constraints.jsonl --no-repeat-ngram 3 --repetition-penalty 1.2",
    "constraints-prefix": TWO_BEST + "--constraints constraints.jsonl --prefix prefix.txt",
    "constraints-short": TWO_BEST + "--constraints constraints.jsonl --max-length 6",
    "constraints-stop": TWO_BEST + "--constraints constraints.jsonl --stop exhaustive",
    "glossary": TWO_BEST + "--glossary terms.tsv",
    "glossary-rules": TWO_BEST + "--glossary terms.tsv --no-repeat-ngram 2",
    "glossary-protect": TWO_BEST + "--glossary terms.tsv --protect",
    "protect": TWO_BEST + "--protect",
    "protect-pattern": TWO_BEST + "--protect-pattern '[A-Z][a-z]+' --protect-pattern 'red'",
    "protect-groups": TWO_BEST + "--protect --beam 4 --beam-groups 2",
    "memory": TWO_BEST + "--memory memory.po",
    "memory-glossary": "--json --memory memory.po --glossary terms.tsv --protect --alignments",
    "sample": "--tsv --sample --seed 3 --nbest 2",
    "sample-top-k": "--tsv --sample --top-k 5 --temperature 0.7",
    "sample-top-p": "--tsv --sample --top-p 0.8 --epsilon 0.02 --protect",
    "sample-rules": "--tsv --sample --no-repeat-ngram 2 --min-length 5 --suppress .",
    "mbr-chrf": "--scores --mbr chrf --beam 8 --nbest 2",
    "mbr-bleu": "--scores --mbr bleu --protect",
    "mbr-samples": "--scores --mbr chrf --sample --mbr-samples 8 --epsilon 0.02",
    "text": "",
    "scores": "--scores",
    "json": "--json --nbest 2",
    "alignments": "--alignments --nbest 2",
    "alignments-protect": "--json --alignments --protect --raw",
    "alignments-cut": "--json --alignments --max-source 5",
    "counts": "",
}
CALIBRATED = {  # needs a calibration
    "confidence": "--confidence --nbest 2",
    "confidence-json": "--confidence --json --alignments",
    "confidence-cut": "--confidence --json --max-source 6",
    "confidence-memory": "--confidence --memory memory.po --protect",
    "min-confidence": "--min-confidence 0.5 --confidence",
    "min-confidence-nbest": "--min-confidence 0.8 --tsv --nbest 2",
}
MODELS: dict[str, list[list[str]]] = {}


@dataclass
class Request:
    """A request to a server."""

    method: str
    path: str
    body: bytes = b""
    kind: str = "application/json"
    name: str = ""


@dataclass
class Case:
    """What runs: a command, a program that uses the library, or a server with requests."""

    name: str
    words: list[str]
    stdin: bytes = b""
    files: dict[str, bytes] = field(default_factory=lambda: TEXTS)
    library: bool = False
    requests: list[Request] = field(default_factory=list)


def translate(name: str, model: str, options: str, text: str = "plain.txt") -> Case:
    """A case of `vtrans translate`."""
    quiet = [] if name.endswith("counts") else ["--quiet"]
    words = ["translate", "--model", model, *ALONE.split(), *quiet, "--input", text, *shlex.split(options)]
    return Case(name, words)


def of_the_shipped_model() -> Iterator[Case]:
    engines = {precision: f"--precision {precision}" for precision in ("int8", "float32", "bfloat16")}
    engines["torch"] = "--engine torch"
    for engine, chosen in engines.items():
        for processes in (1, 2):
            for beam in (1, 4, 8):
                form = f"{chosen} --processes {processes} --beam {beam} --nbest {min(beam, 2)} --tsv"
                yield translate(f"hostile/{engine}-{processes}-{beam}", SHIPPED, form, "hostile.txt")
        for name, options in {**SEARCH, **CALIBRATED}.items():
            yield translate(f"search/{engine}-{name}", SHIPPED, f"{chosen} {options}")


def cases() -> Iterator[Case]:
    yield from of_the_shipped_model()

"""The texts and documents of the cases of `frozen.py`."""

from __future__ import annotations

import gzip
import io
import json
import zipfile

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
    "dog " * 25,
    "no no no no no no no no no no no no",
    "I was told that " + "the man who saw the dog that bit the cat, and " * 3 + "nobody knew why.",
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
    "x" * 40,
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
LONG = "I was told that " + "the man who saw the dog that bit the cat, and " * 12 + "nobody knew why."
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
# One per line of PLAIN.
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
CONSTRAINTS_AFTER_PREFIXES = [{"avoid": ["Park", "alt"]}, *[None] * 9, {"constraints": ["schnell"]}, None]
# Lines for the small models, which learn the phrasebook.
SMALL = [
    "The dog is barking, and the cyclist trains.",
    "Why did the lawyer draw a street?",
    "",
    "The lady should get off.",
    "THE BOY GOT LOST.",
    "My tulip was blue.",
    "The dentist must get on slowly on Saturday afternoon.",
    "Paul is angry \U0001f355 with {name} and https://example.org/a.",
    "What do many singers have to bring along?",
    "She is ten years old.",
    "The fox belongs to Jonas.",
    "We are hungry. The cow is beautiful.",
]
SMALL_PREFIXES = ["Der Hund", "Warum ", "", "Die Dame", "", "Meine", "Der Zahn", "", "Was", "Sie ist", "", "Wir"]
SMALL_CONSTRAINTS: list[dict[str, object] | None] = [
    {"constraints": ["Radfahrer"], "avoid": ["bellt"]},
    {"constraints": [["eine Straße", "Straßen"]]},
    None,
    {"avoid": ["Die", "Dame"]},
    {"constraints": ["Junge"]},
    {"constraints": ["blau"]},
    {"avoid": ["langsam"]},
    None,
    {"constraints": ["Sänger", "was"]},
    {"avoid": ["zehn"]},
    {"constraints": ["gehört"]},
    {"constraints": ["Kuh"]},
]
TERMS = "# terms\ndog\tKöter|Köters\ncar\tWagen\nhouse\tGebäude|Gebäudes\nred car\troter Wagen\nTom\tThomas\n"
SMALL_TERMS = "dog\tKöter\nstreet\tGasse|Gassen\ntulip\tRose\nlady\tFrau\nfox\tWolf\n"
PO_HEADER = (
    'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    '"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n'
)
KNOWN = {
    "Where is the red car?": "Wo steht denn der rote Wagen?",
    "A dog runs in the garden.": "Im Garten läuft ein Hund.",
    "Time flies.": "Wie die Zeit vergeht!",
    "She has three children and two cats.": "Drei Kinder hat sie und zwei Katzen.",
    "Open %s now": "Öffne %s sofort",
    "The <b>big</b> dog": "Der <b>große</b> Köter",
    "The lady should get off.": "Die Frau sollte hinausgehen.",
    "My tulip was red.": "Meine Tulpe war rot.",
    "The fox belongs to Eva.": "Der Fuchs gehört Eva.",
    "She is nine years old.": "Sie ist neun Jahre alt.",
}
PO = PO_HEADER + (
    '# a comment\n#: a.c:1\nmsgid "A dog runs in the park."\nmsgstr ""\n\n'
    '#, c-format\nmsgid "Open %s in %d windows now"\nmsgstr ""\n\n'
    '#, c-format\nmsgid "Open %s now"\nmsgstr ""\n\n'
    '#, python-format\nmsgid "Hello %(name)s, you have %(n)d letters."\nmsgstr ""\n\n'
    '#, python-format\nmsgid "The dog %s sees the cat %s."\nmsgstr ""\n\n'
    'msgctxt "menu"\nmsgid "_File"\nmsgstr ""\n\nmsgid "E&xit the house"\nmsgstr ""\n\n'
    'msgid "one dog"\nmsgid_plural "%d dogs"\nmsgstr[0] ""\nmsgstr[1] ""\n\n'
    'msgid "Translated"\nmsgstr "Schon übersetzt"\n\n#, fuzzy\nmsgid "The cat sleeps."\nmsgstr "Die Kuh"\n\n'
    'msgid ""\n"The first line is long.\\n"\n"The <b>second</b> line has a <a href=\\"x\\">link</a>.\\n"\nmsgstr ""\n\n'
    'msgid "The <b>big</b> dog"\nmsgstr ""\n\nmsgid "B<ls>(1) lists I<files> with --all"\nmsgstr ""\n\n'
    'msgid "Where is the red car?"\nmsgstr ""\n\nmsgid "https://example.org/"\nmsgstr ""\n\n'
    'msgid "42 %"\nmsgstr ""\n\nmsgid "My tulip was blue."\nmsgstr ""\n\n#~ msgid "gone"\n#~ msgstr "weg"\n'
)
XLIFF_1 = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
 <file original="a" source-language="en" target-language="de" datatype="plaintext"><body>
  <trans-unit id="1"><source>A dog runs in the park.</source></trans-unit>
  <trans-unit id="2"><source>The <g id="1">big <x id="2"/>dog</g> &amp; the cat</source><target/></trans-unit>
  <trans-unit id="3"><source>She has a cat.</source><target>Sie hat eine Kuh.</target></trans-unit>
  <trans-unit id="4" translate="no"><source>A house</source></trans-unit>
  <trans-unit id="5" approved="yes"><source>A tree</source><target>Baum</target></trans-unit>
  <trans-unit id="6"><source>Where is the red car?</source><note>a note</note></trans-unit>
  <trans-unit id="7"><source>Open <ph id="1">%s</ph> now. He said {x}.</source></trans-unit>
  <trans-unit id="8"><source>My tulip was blue.</source></trans-unit>
 </body></file>
</xliff>
"""
XLIFF_2 = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de">
<file id="f"><unit id="u"><segment id="1"><source>A dog runs in the park.</source></segment>
<segment id="2"><source>The <pc id="1">big</pc> dog<ph id="2"/> sleeps.</source></segment>
<segment id="3" state="final"><source>A house</source><target>Ein Haus</target></segment></unit>
<unit id="v"><segment><source>Where is the red car?</source></segment></unit></file></xliff>
"""
TMX = """<?xml version="1.0"?>
<tmx version="1.4"><header srclang="en" datatype="plaintext"/><body>
<tu><tuv xml:lang="en"><seg>A dog runs in the park.</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>The <bpt i="1"/>big<ept i="1"/> dog</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Time flies.</seg></tuv><tuv xml:lang="de"><seg>Die Zeit</seg></tuv></tu>
</body></tmx>
"""
MARKDOWN = """---
title: A dog
---
# The big dog

A **big** dog runs to the [red house](https://example.org "The title"). It is `code` here.
The second line of the _paragraph_.

- The first item
  1. The cat sleeps.
- Where is the red car?

> A quoted line.

| Dog | Cat |
|-----|----:|
| The dog runs. | 3 cats |

```python
print("A dog")
```

<div>The block</div>

![A picture](a.png) and <b>bold</b> text\\
with a break. \U0001f600
"""
HTML = """<!DOCTYPE html><html lang="en"><head><title>The dog</title><style>p { color: red }</style></head>
<body><h1>The <em>big</em> dog</h1><p>A dog runs in the park. <a href="/x" title="A title">The cat</a> sleeps.<br>
Where is the red car?</p><p translate="no">A house</p><pre>A dog</pre><code>the cat</code>
<script>var a = "dog";</script>
<ul><li>Fish &amp; chips<li>Time flies.</ul><p>THE CAR IS RED. <b>I <i>like</i></b> it &mdash; {name}.</p>
<!-- a comment --><img alt="A dog" src="x">
<p>Line with <span class="notranslate">no translation</span> inside.</p></body></html>
"""
SRT = """1
00:00:01,000 --> 00:00:02,000
<i>A dog runs in the park
and sees the cat.</i>

2
00:00:03,000 --> 00:00:04,500
- Where is the red car?
- Time flies.

3
00:00:05,000 --> 00:00:06,000
THE CAR IS RED!
"""
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
RUNS = (
    '<w:p><w:pPr><w:jc w:val="x"/></w:pPr><w:r><w:t xml:space="preserve">The </w:t></w:r><w:r><w:rPr><w:b/></w:rPr>'
    "<w:t>big</w:t></w:r><w:r><w:t> dog &amp; the cat.</w:t></w:r></w:p><w:p/><w:p><w:r><w:t>Where is the red car?"
    "</w:t></w:r><w:r><w:tab/><w:t>Time flies.</w:t></w:r></w:p>"
)
DOCX = f'<?xml version="1.0"?><w:document xmlns:w="{WORD}"><w:body>{RUNS}</w:body></w:document>'
OFFICE, ODF = (f"urn:oasis:names:tc:opendocument:xmlns:{name}:1.0" for name in ("office", "text"))

ODT = (
    f'<office:document-content xmlns:office="{OFFICE}" xmlns:text="{ODF}"><text:h>The <text:span>big</text:span> dog'
    "</text:h><text:p>A dog<text:s/>runs.<text:tab/>Time flies.</text:p></office:document-content>"
)


def catalogue(pairs: dict[str, str]) -> str:
    """Returns a PO file with these translations."""
    entries = ((src.replace('"', '\\"'), tgt.replace('"', '\\"')) for src, tgt in pairs.items())
    return PO_HEADER + "".join(f'msgid "{src}"\nmsgstr "{tgt}"\n\n' for src, tgt in entries)


def zipped(members: dict[str, str]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name), content)
    return made.getvalue()


def lines(texts: list[str]) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def objects(wishes: list[dict[str, object] | None]) -> bytes:
    return lines(["" if wish is None else json.dumps(wish) for wish in wishes])


TEXTS = {
    "hostile.txt": lines(HOSTILE),
    "plain.txt": lines(PLAIN),
    "plain.txt.gz": gzip.compress(lines(PLAIN), mtime=0),
    "long.txt": lines([PLAIN[0], LONG, PLAIN[1]]),
    "prefix.txt": lines(PREFIXES),
    "constraints.jsonl": objects(CONSTRAINTS),
    "after.jsonl": objects(CONSTRAINTS_AFTER_PREFIXES),
    "small.txt": lines(SMALL),
    "small-prefix.txt": lines(SMALL_PREFIXES),
    "small-constraints.jsonl": objects(SMALL_CONSTRAINTS),
    "terms.tsv": TERMS.encode(),
    "small-terms.tsv": SMALL_TERMS.encode(),
    "memory.po": catalogue(KNOWN).encode(),
}
DOCUMENTS = {
    "a.po": PO.encode(),
    "a.xlf": XLIFF_1.encode(),
    "b.xlf": XLIFF_2.encode(),
    "a.tmx": TMX.encode(),
    "a.md": MARKDOWN.encode(),
    "a.html": HTML.encode(),
    "a.srt": SRT.encode(),
    "a.docx": zipped({"word/document.xml": DOCX, "word/media/a.txt": "A picture"}),
    "a.odt": zipped({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": ODT}),
    "a.txt": lines(["A dog runs. The cat sleeps.", "", "  THE CAR IS RED.  ", "Mr. Smith has {n} cars. \U0001f600"]),
}

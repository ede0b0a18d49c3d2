"""Markdown: what is translated, that all else stays, and that its markup is read as before."""

import hypothesis.strategies as st
import pytest
from catalogues import Translate, filled, loud, reverse, rotated, same
from hypothesis import example, given

from vtrans.apps.documents.document import Translated
from vtrans.apps.documents.formats.markdown import parser


def md(text: str) -> str:
    return filled("a.md", text.encode()).decode()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a b\n", "b a\n"),
        ("# a *b* #\n", "# *b* a #\n"),
        ("a b\n===\n", "b a\n===\n"),
        ("> a b\n> c d\n", "> d c b a\n"),
        ("- a b\n  c\n\n1. 1 x\n", "- c b a\n\n1. x 1\n"),
        ("- [ ] a b\n- [x] c d\n", "- [ ] b a\n- [x] d c\n"),
        ("a **b c** d", "d **c b** a"),
        ("a ***b* c** d", "d **c *b*** a"),
        ("a ~~b~~ __c__\n", "__c__ ~~b~~ a\n"),
        ('see [the link](http://x/y_z "t") now\n', 'now [link the](http://x/y_z "t") see\n'),
        ("see [the link][r] now\n\n[r]: http://x\n", "now [link the][r] see\n\n[r]: http://x\n"),
        ("a `b c` d ![e f](g) h\n", "h ![f e](g) d `b c` a\n"),
        ("a <http://x.y> b\n", "b <http://x.y> a\n"),
        ("a <b>c d</b> e <br> f\n", "f <br> e <b>d c</b> a\n"),
        ("a\\*b \\_c d\n", "d \\_c a\\*b\n"),
        ("a &lt;b> &copy; c\n", "c © &lt;b> a\n"),
        ("a b  \nc d\\\ne f\n", "b a  \nd c\\\nf e\n"),
        ("| a b | c |\n|---|:-:|\n| d | *e* f |\n", "| b a | c |\n|---|:-:|\n| d | f *e* |\n"),
        ("    a b\n\n```\nc d\n```\n\n<div>\ne f\n</div>\n", "    a b\n\n```\nc d\n```\n\n<div>\ne f\n</div>\n"),
        ("---\na: b c\n---\nd e\n", "---\na: b c\n---\ne d\n"),
        ("\ufeffa b", "\ufeffb a"),
        ("x {name} %s y\n", "y %s {name} x\n"),
        ("a -\n", "a -\n"),  # `- a` would be a list
        ("a #\n", "a #\n"),
        ("> [!NOTE]\n> a b\n> c\n", "> [!NOTE]\n> c b a\n"),
        ("a dog[^1] here\n\n[^1]: a b\n    c\n\n    d e\n", "here dog[^1] a\n\n[^1]: c b a\n\n    e d\n"),
        ("see $x^2$ and $a b$ now\n", "now $a b$ and $x^2$ see\n"),
        ("$$\na b\n$$\n", "$$\na b\n$$\n"),
        ("$5 and $6 too\n", "too $6 and $5\n"),
        ("# a b {#id}\n", "# b a {#id}\n"),
        ('!!! note "a b"\n    c d\n\n    - e f\n\ng h\n', '!!! note "b a"\n    d c\n\n    - f e\n\nh g\n'),
        ('=== "a b"\n\n    c d\n', '=== "b a"\n\n    d c\n'),
        ("- a b\n\n    ??? tip\n        c d\n", "- b a\n\n    ??? tip\n        d c\n"),
        ("::: note\na b\n:::\n", "::: note\nb a\n:::\n"),
        (":::tip[a b]\n\nc d\n\n:::\n", ":::tip[b a]\n\nd c\n\n:::\n"),
        ("{% include a.md %}\na b\n{% end %}\n", "{% include a.md %}\nb a\n{% end %}\n"),
        ("a {% b c %} d\n", "d {% b c %} a\n"),
    ],
)
def test_text_is_translated_and_markup_stays(source: str, expected: str) -> None:
    assert md(source) == expected


SYNTAX = ("[^1]", "\n[^1]: ", "$", "\n!!! a b\n    ", "\n::: a\n", "{% a %}", "\n> [!A]\n")
PARTS = st.lists(
    st.sampled_from([*"""
    *|**|_|`|``|[|](x)|][r]|]|![|<b>|</b>|<http://x>|\\|\\*|&amp;|~~|a dog |two. Three |- |1. |> |# ||{0}|é|  |.
    """.strip().split("|"), "|", "\n", "\n\n", "\n    ", "\n|-|-|\n", "\n\n[r]: y\n\n", "\n```\n", "\r\n",
        *SYNTAX]),
    max_size=20,
).map("".join)  # fmt: skip


MARKED = parser()


@given(PARTS, st.sampled_from([same, reverse, rotated]))
@example("\\\n[^1]: ", reverse)
@example("\n\n[^1]: \u00e9<http://x>", reverse)
def test_the_markup_of_any_file_is_read_as_before(source: str, translate: Translate) -> None:
    made = filled("a.md", ("x " + source).encode(), translate).decode()

    def structure(text: str) -> tuple[list[tuple[str, int]], list[tuple[str, str, str]]]:
        tokens = MARKED.parse(text)
        inline = [child for token in tokens for child in token.children or ()]
        skipped = ("text", "softbreak")
        return (
            [(token.type, token.level) for token in tokens],
            sorted((child.type, child.markup, repr(child.attrs)) for child in inline if child.type not in skipped),
        )

    assert structure(made) == structure("x " + source)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("Term\n:   A text\n", "TERM\n:   A TEXT\n"),
        ("a ==b *c*== d\n", "A ==B *C*== D\n"),
        ("a == b, c==d\n", "A == B, C==D\n"),
        ("{{% note %}}\na b\n{{% /note %}}\n", "{{% note %}}\nA B\n{{% /note %}}\n"),
        ('a {{< ref "x" >}} b\n', 'A {{< ref "x" >}} B\n'),
        ("import A from 'b'\nimport 'c'\n\nexport const d = {\n  e: 1 }\n\na\n", None),
        ("import the file\n", "IMPORT THE FILE\n"),
        ('![a](x.png "b") c\n', '![A](x.png "B") C\n'),
        ('a [b](x "c") d ![e f](y)\n', 'A [B](x "C") D ![E F](y)\n'),
        (
            '---\ntitle: a\nlayout: b\ndescription: "c"\n---\n\nd\n',
            '---\ntitle: A\nlayout: b\ndescription: "C"\n---\n\nD\n',
        ),
        ('+++\ntitle = "a"\n+++\n\nb\n', '+++\ntitle = "A"\n+++\n\nB\n'),
        ("---\ntitle: 'a'\nsummary: b # c\n---\n", "---\ntitle: 'A'\nsummary: b # c\n---\n"),
    ],
)
def test_texts_of_markdown(text: str, made: str | None) -> None:
    assert filled("a.md", text.encode(), loud).decode() == (made or text.replace("\na\n", "\nA\n"))
    assert filled("a.md", text.encode(), same).decode() == text


def test_a_title_that_yaml_would_misread_gets_quotation_marks() -> None:
    def colon(line: str) -> Translated:
        return Translated("A: b", ())

    assert filled("a.md", b"---\ntitle: a\n---\n", colon) == b'---\ntitle: "A: b"\n---\n'

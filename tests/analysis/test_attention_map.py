"""Attention maps: the shares by definition, SVG pictures with room for every label, and blocks of characters."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from cli_runner import Done
from translators import SMALL, sentences, translator, window

from vtrans.analysis.attention_map import (
    AXES,
    CELL,
    EOS,
    FONT,
    LETTER,
    SLOPE,
    AttentionMap,
    as_svg,
    as_text,
    attention_map,
)
from vtrans.console import text_width
from vtrans.errors import InputError
from vtrans.storage.run_folder import RunFolder

DEEP = dataclasses.replace(SMALL, decoder_layers=3)
LINES = [line for line in sentences(12, seed=5) if line]


@pytest.mark.parametrize(
    ("layer", "head", "subwords"), [(None, None, True), (1, None, False), (3, None, True), (2, 2, False)]
)
def test_every_row_adds_up_to_one(layer: int | None, head: int | None, subwords: bool) -> None:
    made = translator(DEEP)
    for line in LINES[:5]:
        attention = attention_map(made, line, layer=layer, head=head, subwords=subwords)
        assert attention.shares.shape == (len(attention.target), len(attention.source))
        np.testing.assert_allclose(attention.shares.sum(1), 1, atol=1e-9)
        assert attention.source[-1] == EOS
        ((best,),) = made.translate_window(window([line]))
        if not subwords:
            assert [*attention.source[:-1]] == line.split()
            assert [word for word in attention.target if word != EOS] == best.text.split()
        else:
            assert attention.target == best.subwords


def test_source_subwords_are_summed_and_target_subwords_averaged() -> None:
    made = translator(DEEP)
    source, target = "dogcat 5€ parkruns", "Hunden läuft"
    fine, coarse = (attention_map(made, source, target, layer=1, subwords=s) for s in (True, False))

    def spans(labels: tuple[str, ...]) -> list[list[int]]:
        starts = [i for i, label in enumerate(labels) if label.startswith("▁") or label == EOS]
        return [list(range(a, b)) for a, b in zip(starts, [*starts[1:], len(labels)], strict=True)]

    assert all(max(map(len, spans(side))) > 1 for side in (fine.source, fine.target)), "some word has several subwords"
    assert coarse.source == ("dogcat", "5€", "parkruns", EOS)
    assert coarse.target == ("Hunden", "läuft", EOS)
    expected = [[fine.shares[np.ix_(t, s)].sum(1).mean() for s in spans(fine.source)] for t in spans(fine.target)]
    np.testing.assert_allclose(coarse.shares, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"layer": 4}, "`layer`.* 3.* 4"),
        ({"layer": 0}, "`layer`.* 3.* 0"),
        ({"layer": 1, "head": 3}, "`head`.* 2.* 3"),
        ({"head": 1}, "`head`.*`layer`"),
        ({"target": " "}, "`target`"),
        ({"target": "dog " * 5000}, "`target`.* 1,074.* 5,001"),
    ],
)
def test_an_invalid_parameter_is_refused_by_name(options: dict[str, int | str], named: str) -> None:
    with pytest.raises(InputError, match=named):
        attention_map(translator(DEEP), "a dog", **options)  # type: ignore[arg-type]  # of the right types


def picture(source: list[str], target: list[str]) -> AttentionMap:
    shares = np.linspace(0, 1, len(source) * len(target)).reshape(len(target), len(source))
    return AttentionMap(tuple(source), tuple(target), shares, "cross-attention, mean of 4 heads of layers 2-3")


LONG = "Donaudampfschifffahrtsgesellschaftskapitänsmütze"


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (["A", "dog", "runs", EOS], ["Ein", "Hund", "läuft", EOS]),
        ([LONG, "b", LONG], ["a", LONG]),
        (["a", LONG], ["a"]),
        (["a"], ["犬" * 30, "e\u0301" * 30]),
        (["犬が走る" * 5, "a"], ["b"]),
    ],
)
def test_every_label_is_inside_the_picture(source: list[str], target: list[str]) -> None:
    """A letter is at most LETTER times the font size wide, and a wide letter twice that."""
    root = ElementTree.fromstring(as_svg(picture(source, target)))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    texts = list(root.iter("{http://www.w3.org/2000/svg}text"))
    cells = [cell for cell in root.iter("{http://www.w3.org/2000/svg}rect") if cell.get("class") == "cell"]
    assert len(cells) == len(source) * len(target)
    assert [float(cell.attrib["fill-opacity"]) for cell in cells] == pytest.approx(
        np.linspace(0, 1, len(cells)).tolist(), abs=1e-3
    )
    tops = min(float(cell.attrib["y"]) for cell in cells)
    lefts = min(float(cell.attrib["x"]) for cell in cells)
    for text, word in zip(texts, (*source, *target), strict=False):
        room = text_width(word) * FONT * LETTER
        if "transform" in text.attrib:
            x, y = map(float, re.findall(r"[\d.]+", text.attrib["transform"])[:2])
            angle = math.radians(SLOPE)
            # The four corners of the slanted word, whose letters are FONT high.
            corners = [
                (x + along * math.cos(angle) - up * math.sin(angle), y - along * math.sin(angle) - up * math.cos(angle))
                for along in (0, room)
                for up in (0, FONT)
            ]
            assert max(v for _, v in corners) <= tops
        else:
            x, y = float(text.attrib["x"]), float(text.attrib["y"])
            corners = [(x - room, y - FONT), (x, y)]
            assert x < lefts
        assert 0 <= min(u for u, _ in corners) <= max(u for u, _ in corners) <= width
        assert 0 <= min(v for _, v in corners) <= max(v for _, v in corners) <= height
    notes = texts[len(source) + len(target) :]
    assert [note.text for note in notes] == ["Cross-attention, mean of 4 heads of layers 2-3.", AXES]
    assert max(float(note.attrib["y"]) for note in notes) < height
    assert max(float(cell.attrib["y"]) for cell in cells) + CELL < min(float(n.attrib["y"]) for n in notes)


def test_columns_beyond_the_width_are_continued_below() -> None:
    attention = picture(["one", "two", "three", "four", "five", EOS], ["a", "dog"])
    whole, narrow = as_text(attention), as_text(attention, width=11)
    body, notes = narrow.split("\n\n")[:-1], narrow.split("\n\n")[-1]
    assert whole.endswith("\n\n" + notes)
    assert len(body) == 2
    assert max(text_width(line) for part in body for line in part.split("\n")) <= 11
    tails = [part.split("\n")[-2:] for part in body]
    rows = [line[4:].ljust(12) for line in whole.split("\n\n")[0].split("\n")[-2:]]
    assert [[line[4:].ljust(6) for line in part] for part in tails] == [
        [row[:6] for row in rows],
        [row[6:] for row in rows],
    ]
    assert as_text(attention, width=80) == whole
    assert len(as_text(attention, width=1).split("\n\n")) == 7, "at least one column at a time"


def test_the_command_prints_characters_or_json_or_writes_svg(
    tiny_run: RunFolder,
    tmp_path: Path,
    run_cli: Callable[..., Done],
) -> None:
    done = run_cli("attend", tiny_run.path, "The big dog sees me today.")
    assert done.code == 0
    assert "mean of 2 heads of layer 1" in done.out.decode()
    assert str(tiny_run.best) in done.err
    words = "attend", tiny_run.last, "The big dog."
    done = run_cli(*words, "--target", "Der <große> Hund.", "--json", "-q", "--out", tmp_path / "a.svg")
    assert (done.code, done.err) == (0, "")
    record = json.loads(done.out)
    assert record["source"] == ["The", "big", "dog.", EOS]
    assert record["target"] == ["Der", "<große>", "Hund.", EOS]
    assert [sum(row) for row in record["attention"]] == pytest.approx([1] * 4, abs=1e-5)
    assert "&lt;große&gt;" in (tmp_path / "a.svg").read_text("utf-8")
    done = run_cli(*words, "--head", "1", "--layer", "1", "--subwords", "--out", tmp_path / "b.svg")
    assert (done.code, done.out) == (0, b"")
    assert "b.svg" in done.err
    assert "head 1 of layer 1" in (tmp_path / "b.svg").read_text("utf-8")

"""Attention maps: the shares by definition, SVG pictures with room for every label, and blocks of characters."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from cli_runner import Done, start, terminal
from hypothesis import given, settings
from hypothesis import strategies as st
from translators import SMALL, loaded, sentences, translator, window

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
from vtrans.engines.alignments import links
from vtrans.engines.attention import cross_attention, mean_attention
from vtrans.engines.forced import forced_batches
from vtrans.errors import InputError
from vtrans.storage.run_folder import RunFolder
from vtrans.text.vocabulary import EOS_ID
from vtrans.translate.translation import TranslateOptions

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


@pytest.mark.parametrize(("layer", "head"), [(1, None), (2, None), (3, 1), (3, 2)])
def test_a_layer_and_a_head_select_their_shares(layer: int, head: int | None) -> None:
    made, model = translator(DEEP), loaded(DEEP).model
    source, target = "a dog runs", "ein Hund Łódź läuft"
    ids, tokens = made.src_vocab.encode(source), [*made.tgt_vocab.encode(target), EOS_ID]
    with torch.no_grad():
        ((_, batch),) = forced_batches([(ids, tokens)], 1, model.device)
        every = torch.stack(cross_attention(model, batch))[:, 0].numpy()
    expected = every[layer - 1].mean(0) if head is None else every[layer - 1, head - 1]
    found = attention_map(made, source, target, layer=layer, head=head, subwords=True)
    np.testing.assert_allclose(found.shares, expected, atol=1e-12)
    assert found.which == "cross-attention, " + (
        f"mean of 2 heads of layer {layer}" if head is None else f"head {head} of layer {layer}"
    )


def test_the_default_is_the_attention_that_alignments_use() -> None:
    made, model = translator(DEEP), loaded(DEEP).model
    for line in LINES:
        ((best,),) = made.translate_window(window([line]), TranslateOptions(alignments=True))
        found = attention_map(made, line)
        assert found.which == "cross-attention, mean of 2 heads of layer 3"
        words = [word for word in found.target if word != EOS]
        real = found.shares[: len(words)]
        assert sorted(links(real, range(len(found.source) - 1), range(len(words)))) == list(best.alignment or ())
        ((_, batch),) = forced_batches([(made.src_vocab.encode(line), best.tokens)], 1, model.device)
        with torch.no_grad():
            np.testing.assert_allclose(
                attention_map(made, line, subwords=True).shares, mean_attention(model, batch)[0], atol=1e-12
            )


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


def test_a_decoder_only_model_attends_to_more_than_the_source() -> None:
    made = translator(dataclasses.replace(DEEP, architecture="decoder-only", encoder_layers=0))
    found = attention_map(made, "a dog runs", "ein Hund läuft", layer=2)
    assert found.which == "attention to the source, mean of 2 heads of layer 2"
    assert (found.shares.sum(1) < 1).all()
    assert found.shares.min() > 0


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


@pytest.mark.parametrize(("line", "named"), [("\u3000", "sentence"), ("dog " * 2000, "1,024")])
def test_a_sentence_that_is_blank_or_translated_in_pieces_is_refused(line: str, named: str) -> None:
    with pytest.raises(InputError, match=named):
        attention_map(translator(), line)


def picture(source: list[str], target: list[str]) -> AttentionMap:
    shares = np.linspace(0, 1, len(source) * len(target)).reshape(len(target), len(source))
    return AttentionMap(tuple(source), tuple(target), shares, "cross-attention, mean of 4 heads of layers 2-3")


LONG = "Donaudampfschifffahrtsgesellschaftskapitänsmütze"
# Words as str.split() returns them.
WORDS = st.lists(st.text(min_size=1, max_size=20).filter(lambda word: word.split() == [word]), min_size=1, max_size=6)
NOT_XML = re.compile("[^\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@settings(deadline=None)
@given(WORDS, WORDS)
def test_the_picture_is_valid_xml_for_any_words(source: list[str], target: list[str]) -> None:
    root = ElementTree.fromstring(as_svg(picture(source, target)))
    labels = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")][: len(source) + len(target)]
    assert labels == [NOT_XML.sub("\ufffd", word) for word in (*source, *target)]


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


def test_shades_follow_the_shares_and_source_words_end_at_the_bottom() -> None:
    shares = np.array([[0.0, 0.05, 0.95], [0.2, 0.4, 0.7], [0.049, 0.399, 0.199]])
    found = AttentionMap(("do\u0302g", "犬", EOS), ("Hund", "犬", "x"), shares, "cross-attention, head 1 of layer 1")
    assert as_text(found).split("\n") == [
        "         <",
        "     d   /",
        "     o\u0302   s",
        "     g 犬>",
        "Hund   ░░██",
        "  犬 ▒▒▓▓██",
        "   x   ▒▒░░",
        "",
        "Cross-attention, head 1 of layer 1.",
        AXES,
        "Shares of at least ░░ 5%  ▒▒ 20%  ▓▓ 40%  ██ 70%",
    ]


def test_combining_marks_stay_with_their_letter_and_control_characters_are_replaced() -> None:
    """Vowel signs of Devanagari and Thai combine with their letter, and every cell is two columns wide."""
    found = AttentionMap(("हिन्दी", "ที่", "a\u202e\x1b", EOS), ("नमस्ते", "\u2066b"), np.ones((2, 4)), "cross-attention")
    assert as_text(found).split("\n")[:6] == [
        "           <",
        "     हि  a /",
        "     न्   \ufffd s",
        "     दीที่ \ufffd >",
        "नमस्ते ████████",
        "  \ufffdb ████████",
    ]


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


def test_the_map_fits_the_width_of_the_terminal(tiny_run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("The big dog sees me today.", "--target", "Der große Hund sieht mich heute.", "--quiet")
    monkeypatch.setenv("COLUMNS", "16")
    with terminal() as (ours, theirs):
        process = start("attend", tiny_run.last, *words, stdout=theirs)
        process.communicate(timeout=120)
        shown = os.read(ours, 65536).decode()
    assert (process.returncode, shown.count("große")) == (0, 2)

"""Attention maps: the shares by definition, and what the command prints and writes."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from cli_runner import Run
from translators import SMALL, sentences, translator, window

from vtrans.apps.analysis.attention_map import EOS, attention_map
from vtrans.storage.run_folder import RunFolder
from vtrans.system.errors import InputError
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
        ((best,),) = made.translate_window(window([line]), TranslateOptions(raw=True))
        if not subwords:
            assert [*attention.source[:-1]] == line.split()
            words = [word.lower() for word in attention.target if word != EOS]
            assert words == best.text.lower().split()
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


def test_a_translation_that_spells_no_word_has_one_row_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    made = translator(DEEP)
    blank, *_ = made.tgt_vocab.encode("🙂")  # the blank before a word
    ((best,),) = made.translate_window(window(["a dog"]), TranslateOptions(raw=True))
    spells_nothing = dataclasses.replace(best, tokens=(blank, EOS_ID))
    monkeypatch.setattr(made, "translate_window", lambda *_: [[spells_nothing]])
    attention = attention_map(made, "a dog")
    assert attention.target == ("", EOS)
    assert attention.shares.shape == (2, 3)


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


def test_output_is_characters_json_or_html(tiny_run: RunFolder, tmp_path: Path, run_cli: Run) -> None:
    done = run_cli("attend", tiny_run.path, "The big dog sees me today.")
    assert done.code == 0
    assert "mean of 2 heads of layer 1" in done.out.decode()
    assert str(tiny_run.best) in done.err
    words = "attend", tiny_run.last, "The big dog."
    done = run_cli(*words, "--target", "Der <große> Hund.", "--json", "-q", "--out", tmp_path / "a.html")
    assert (done.code, done.err) == (0, "")
    record = json.loads(done.out)
    assert record["source"] == ["The", "big", "dog.", EOS]
    assert record["target"] == ["Der", "<große>", "Hund.", EOS]
    assert [sum(row) for row in record["attention"]] == pytest.approx([1] * 4, abs=1e-5)
    assert "&lt;große&gt;" in (tmp_path / "a.html").read_text("utf-8")
    done = run_cli(*words, "--head", "1", "--layer", "1", "--subwords", "--out", tmp_path / "b.html")
    assert (done.code, done.out) == (0, b"")
    assert "b.html" in done.err
    assert "head 1 of layer 1" in (tmp_path / "b.html").read_text("utf-8")

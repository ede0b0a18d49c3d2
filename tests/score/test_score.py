"""score: goldens from sacrebleu's own command line, refusals, warnings, significance."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runner import Run
from drawn import seeded

from vtrans.score.metrics import (
    METRICS,
    compare,
    data_warnings,
    deciding_metric,
    differing_lines,
    fitting_tokenizer,
    numbers_score,
    score,
)
from vtrans.system.errors import InputError

HYP = [
    "Ein Mann läuft–schnell durch den Park.",
    "Zwei Hunde spielen im Schnee mit einem Ball.",
    "eine Frau liest ein buch.",
    "Die Kinder essen Eis",
]
REF_1 = [
    "Ein Mann rennt durch den Park.",
    "Zwei Hunde spielen im Schnee.",
    "Eine Frau liest gerade ein Buch.",
    "Die Kinder essen Eis am Strand.",
]
REF_2 = [
    "Ein Mann läuft durch einen Park.",
    "Zwei Hunde spielen mit einem Ball im Schnee.",
    "Eine Dame liest ein Buch.",
    "Kinder essen Eis am Strand.",
]

# Printed by `sacrebleu REF... -i HYP -m METRIC [-lc] [-tok T] -w 6 -f text`, version 2.6.0. The last two
# fields of a signature are left out: another version of sacrebleu may be installed.
GOLDENS = [
    (1, "bleu", None, False, 44.713590, "BLEU", "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp"),
    (1, "bleu", None, True, 51.558626, "BLEU", "nrefs:1|case:lc|eff:no|tok:13a|smooth:exp"),
    (1, "bleu", "char", False, 68.802204, "BLEU", "nrefs:1|case:mixed|eff:no|tok:char|smooth:exp"),
    (1, "chrf", None, False, 67.497047, "chrF2", "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no"),
    (1, "chrf++", None, False, 66.547065, "chrF2++", "nrefs:1|case:mixed|eff:yes|nc:6|nw:2|space:no"),
    (1, "ter", None, False, 34.782609, "TER", "nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no"),
    (2, "bleu", None, False, 48.711988, "BLEU", "nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp"),
    (2, "chrf", None, False, 67.825680, "chrF2", "nrefs:2|case:mixed|eff:yes|nc:6|nw:0|space:no"),
    (2, "ter", None, False, 34.042553, "TER", "nrefs:2|case:lc|tok:tercom|norm:no|punct:yes|asian:no"),
]


@pytest.mark.parametrize(("refs", "metric", "tokenize", "lowercase", "value", "name", "signature"), GOLDENS)
def test_goldens_of_sacrebleu(
    refs: int, metric: str, tokenize: str | None, lowercase: bool, value: float, name: str, signature: str
) -> None:
    (result,) = score(HYP, [REF_1, REF_2][:refs], [metric], tokenize=tokenize, lowercase=lowercase)
    assert result.value == pytest.approx(value, abs=1e-6)
    assert result.name == name
    assert result.signature.startswith(signature + "|version:")
    assert result.text.startswith(f"{name}|{result.signature} = {value:.2f}")


REFUSALS = [
    (HYP[:3], [REF_1], {}, ["3", "4", "reference 1"]),
    (
        HYP,
        [REF_1, REF_2[:2]],
        {"hyp_name": "out.de", "ref_names": ["a.de", "b.de"]},
        ["out.de", "b.de", "4", "2"],
    ),
    ([], [[]], {"hyp_name": "out.de"}, ["out.de", "no lines"]),
    (HYP, [], {}, ["`references`"]),
    (["a", "b", "ein@@ fach", "d"], [REF_1], {}, ["line 3", "'@@'", "'ein@@'"]),
    (["a", "b", "c", "das Wort@@"], [REF_1], {"hyp_name": "out.de"}, ["out.de, line 4", "'Wort@@'"]),
    (["a", "\u2581Das \u2581Haus", "c", "d"], [REF_1], {}, ["line 2", "U+2581"]),
    (HYP, [REF_1], {"tokenize": "14a"}, ["`tokenize`", "'14a'", "13a", "char"]),
    (HYP, [REF_1], {"metrics": ["blue"]}, ["`metrics`", "'blue'", "bleu, chrf, chrf++, ter"]),
    (HYP, [REF_1], {"metrics": ["chrf", "ter"], "tokenize": "intl"}, ["`tokenize`", "'intl'", "`metrics`"]),
]


@pytest.mark.parametrize(("hyps", "refs", "options", "words"), REFUSALS)
def test_errors_name_the_parameter_or_line_and_its_value(
    hyps: list[str], refs: list[list[str]], options: dict[str, object], words: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        score(hyps, refs, **options)  # type: ignore[arg-type]  # a table of options of several types
    for word in words:
        assert word in str(caught.value)
    assert caught.value.exit_code == 2


def test_subword_marks_are_refused_in_a_baseline_too() -> None:
    with pytest.raises(InputError, match=r"base\.de, line 1"):
        compare({"base": {"base.de": ["ein@@ fach", *HYP[1:]]}, "new": {"new.de": HYP}}, [REF_1])


TOKENISED = ["Ein Mann rennt .", "Zwei Hunde spielen .", "Eine Frau liest .", "Die Kinder essen Eis"]
WARNINGS: list[tuple[Sequence[str], Sequence[Sequence[str]], dict[str, bool | str], list[str]]] = [
    (HYP, [REF_1], {}, []),
    (TOKENISED[:3] * 4 + TOKENISED[3:], [REF_1[:3] * 4 + REF_1[3:]], {}, ["out: 12 of 13 lines"]),
    (TOKENISED, [REF_1], {}, []),  # 3 of 4 are not enough
    (TOKENISED[:3] * 34 + HYP * 100, [REF_1[:3] * 34 + REF_1 * 100], {}, ["out: 102 of 502"]),
    (HYP[:3], [TOKENISED[:3]], {}, ["ref: 3 of 3"]),
    (["&quot;Ja&quot;", *HYP[1:]], [REF_1], {}, ["Moses"]),
    (["&quot;Ja&quot;", *TOKENISED[:3] * 4], [["Ja", *TOKENISED[:3] * 4]], {"tokenize": "none"}, []),
    ([line.lower() for line in HYP], [REF_1], {}, ["capital"]),
    ([line.lower() for line in HYP], [REF_1], {"lowercase": True}, []),
    (["", *HYP[1:]], [REF_1], {}, ["1 of 4 hypothesis lines are blank"]),
    (["", *HYP[1:]], [["", *REF_1[1:]]], {}, []),
    (REF_1, [REF_1], {}, ["the reference"]),
    (["我喜欢狗"], [["我喜欢猫"]], {"tokenize": "13a"}, ["13a"]),
    (["我喜欢狗"], [["我喜欢猫"]], {"tokenize": "zh"}, []),
]


@pytest.mark.parametrize(("hyps", "refs", "options", "begins"), WARNINGS)
def test_suspicious_data_is_warned_about(
    hyps: list[str], refs: list[list[str]], options: dict[str, object], begins: list[str]
) -> None:
    (reference,) = refs
    # A table of options of several types.
    warnings = data_warnings({"out": hyps}, {"ref": reference}, **options)  # type: ignore[arg-type]
    assert len(warnings) == len(begins)
    for sentence, words in zip(warnings, begins, strict=True):
        assert words in sentence


def test_a_better_system_is_significant() -> None:
    """One system is wrong in a tenth of the lines, and the other one in half of all words."""
    draw = seeded(1)
    refs = [" ".join(draw.choice(("rot", "grün", "blau", "gelb")) for _ in range(8)) for _ in range(120)]
    good = [f"{line} falsch" if draw.random() < 0.1 else line for line in refs]
    bad = [" ".join("weiß" if draw.random() < 0.5 else word for word in line.split()) for line in refs]
    for same, result in compare({"bad": {"": bad}, "good": {"": good}}, [refs], METRICS, samples=200):
        assert (same.system, same.difference, same.p_value) == ("bad", 0, 1)
        assert result.difference == result.value - same.value
        assert result.system == "good"
        assert (result.difference > 0) == (result.name != "TER")
        assert result.p_value < 0.01
        assert abs(result.mean - result.value) < 3
        assert 0 < result.ci < 10
        assert result.signature.endswith("|version:" + result.signature.rpartition(":")[2])
        assert "|seed:12345|" in f"|{result.signature}|"
        assert "|bs:200|" in f"|{result.signature}|"


def test_the_score_of_numbers_counts_lines_with_digits() -> None:
    sources = ["2,000 dogs", "a dog", "at 6:30", "3 cats", "cats"]
    hypotheses = ["zweitausend Hunde", "ein Hund", "um halb sieben", "Katzen", "55 Katzen"]
    result = numbers_score(sources, hypotheses)
    assert (result.value, result.signature) == (75.0, "lines:4|invented:1")
    assert numbers_score(["a"], ["b"]).value == 100.0
    with pytest.raises(InputError, match=r"the hypothesis has 1 lines, but the source has 5"):
        numbers_score(sources, ["x"])


def test_the_interval_and_p_equal_a_count_of_resampled_texts() -> None:
    """Koehn 2004: texts of as many lines are drawn with replacement, the same ones for both systems and all seeds."""
    draw, samples = seeded(2), 80
    refs = [" ".join(draw.choice(("rot", "grün", "blau", "gelb")) for _ in range(8)) for _ in range(30)]
    worse, better, other_seed = (
        [" ".join("weiß" if draw.random() < rate else word for word in line.split()) for line in refs]
        for rate in (0.2, 0.17, 0.16)
    )
    drawn = np.random.default_rng(12345).choice(len(refs), size=(samples, len(refs)), replace=True)

    def resampled(*seeds: list[str]) -> np.ndarray[Any, Any]:
        texts = [([lines[i] for lines in seeds for i in rows], [refs[i] for i in rows] * len(seeds)) for rows in drawn]
        return np.array([score(lines, [references], ["bleu"])[0].value for lines, references in texts])

    systems = {"worse": {"": worse}, "better": {"": better}, "seeds": {"a": better, "b": other_seed}}
    ((baseline, one, two),) = compare(systems, [refs], ["bleu"], samples=samples)
    (alone,) = score(better, [refs], ["bleu"], samples=samples)
    for compared, seeds in ((one, [better]), (two, [better, other_seed])):
        scores = resampled(*seeds)
        low, high = sorted(scores)[samples // 40], sorted(scores)[-samples // 40 - 1]
        expected = pytest.approx([scores.mean(), (high - low) / 2], abs=1e-3)
        assert [compared.mean, compared.ci] == expected
        if seeds == [better]:
            assert [alone.mean, alone.ci] == expected
        (whole,) = score([line for lines in seeds for line in lines], [refs * len(seeds)], ["bleu"])
        differences = abs(scores - resampled(worse))
        count = sum(differences - differences.mean() > abs(whole.value - baseline.value))
        assert compared.p_value == pytest.approx((count + 1) / (samples + 1))
    values = [score(lines, [refs], ["bleu"])[0].value for lines in (better, other_seed)]
    assert [*two.seeds, two.value] == pytest.approx([*values, sum(values) / 2])
    assert "±" in alone.text
    assert "|bs:80|seed:12345|" in alone.signature
    assert score(better, [refs], ["bleu"])[0].ci is None


def test_equal_systems_do_not_differ_significantly() -> None:
    ((_, same),) = compare({"a": {"": HYP}, "b": {"": HYP}}, [REF_1], ["bleu"], samples=10)
    assert (same.difference, same.p_value) == (0, 1)


def test_the_lines_that_differ_most_come_first() -> None:
    """The chrF of a system is the mean of its seeds; the difference is the largest between any two systems."""
    a, b = ["x", *REF_1[1:3], HYP[3]], REF_1
    systems = {"a": {"1": a, "2": HYP}, "b": {"3": b}, "c": {"4": b}}
    found = differing_lines(systems, [REF_1, REF_2], ["1", "2", "3", "4"])
    assert [line["line"] for line in found] == [1, 4, 3, 2]
    assert found[0]["texts"] == {
        "source": ["1"],
        "reference": (REF_1[0], REF_2[0]),
        "a": ["x", HYP[0]],
        "b": [b[0]],
        "c": [b[0]],
    }
    alone = [score([lines[0]], [[REF_1[0]], [REF_2[0]]], ["chrf"])[0].value for lines in (a, HYP, b)]
    assert found[0]["chrf"] == pytest.approx({"a": (alone[0] + alone[1]) / 2, "b": alone[2], "c": alone[2]})
    assert differing_lines({"a": {"": HYP}, "b": {"": HYP}}, [REF_1]) == []
    lower = [line.lower() for line in HYP]
    assert differing_lines({"a": {"": HYP}, "b": {"": lower}}, [REF_1], lowercase=True) == []
    one, other = (score(lines, [REF_1], ["chrf++"], lowercase=True)[0].value for lines in (HYP, lower))
    assert one == other
    with pytest.raises(InputError, match=r"the reference has 4 lines, but the source has 1"):
        differing_lines(systems, [REF_1], ["1"])


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    two = ["2 große Hunde spielen im Schnee.", *HYP[1:]]
    texts = {"ref.de": [two[0], *REF_1[1:]], "old.de": two, "s1.de": REF_1, "s2.de": HYP, "src.en": HYP}
    texts |= {
        "short.de": HYP[:3],
        "empty.de": [],
        "a=b,c.de": HYP,
        "ref.zh": ["我喜欢狗。"] * 4,
        "ref.ja": ["犬です。"] * 4,
    }
    for name, lines in texts.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def test_systems_and_their_seeds_are_rows_of_a_table(texts: Path, run_cli: Run) -> None:
    words = ("score", "ref.de", "--hyp", "new=s1.de,s2.de", "--baseline", "old.de", "--metric", "bleu")
    done = run_cli(*words)
    title, header, *rows = done.out.decode().splitlines()
    assert title.startswith("BLEU|nrefs:1|bs:1000|seed:12345|")
    assert header.split() == ["system", "BLEU", "±", "seeds", "sd", "difference", "p"]
    old, result = json.loads(run_cli(*words, "--json").out)
    mean, ci, seeds = result["value"], result["ci"], result["seeds"]
    difference, sd = mean - old["value"], abs(seeds[0] - seeds[1]) / 2**0.5
    new = f"new {mean:.2f} {ci:.2f} 2 {sd:.2f} {difference:+.2f} {result['p_value']:.4f}"
    assert [row.split() for row in rows] == [
        ["old.de", f"{old['value']:.2f}", f"{old['ci']:.2f}", "1"],
        new.split(),
    ]
    first = run_cli(
        "score", "ref.de", "--hyp", "old.de", "--hyp", "new=s1.de", "--hyp", "new=s2.de", "--metric", "bleu"
    )
    assert first.out == done.out, "the first one is the baseline; equal names are one system"
    (alone,) = json.loads(run_cli(*words[:4], "--metric", "bleu", "--json").out)
    assert (alone["system"], alone["value"], alone["seeds"]) == ("new", mean, seeds)
    (odd,) = json.loads(run_cli("score", "ref.de", "--hyp", "a=b,c.de", "--metric", "bleu", "--json").out)
    assert odd["value"] == seeds[1]
    said = run_cli("score", "s1.de", "--hyp", "old.de", "--hyp", "s1.de").err
    assert "warning: s1.de: the hypothesis equals the reference" in said


def test_examples_are_printed_below_the_scores(texts: Path, run_cli: Run) -> None:
    words = ("score", "ref.de", "--hyp", "old.de", "--hyp", "new=s1.de,s2.de", "--src", "src.en", "--examples", "1")
    *_, title, src, ref, old, new, other = run_cli(*words).out.decode().splitlines()
    *_, example = json.loads(run_cli(*words, "--json").out)
    assert title == f"line 1: chrF old.de 100.0, new {example['chrf']['new']:.1f}"
    assert [src, ref, old] == [
        f"  source      {HYP[0]}",
        "  reference   2 große Hunde spielen im Schnee.",
        "  old.de      2 große Hunde spielen im Schnee.",
    ]
    assert [new, other] == [f"  new         {text}" for text in (REF_1[0], HYP[0])]
    assert (example["line"], example["texts"]["new"]) == (1, [REF_1[0], HYP[0]])


@pytest.mark.parametrize(("reference", "tokenizer"), [("ref.zh", "zh"), ("ref.ja", "char")])
def test_a_comparison_has_the_tokenizer_of_the_language(
    texts: Path, run_cli: Run, reference: str, tokenizer: str
) -> None:
    done = run_cli("score", reference, "--hyp", "old.de", "--hyp", "s1.de", "--metric", "bleu")
    assert f"|tok:{tokenizer}|" in done.out.decode()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("--hyp old.de --hyp a=s1.de,./old.de", r"^error: old\.de is given twice"),
        ("--hyp old.de --hyp short.de", r"short\.de has 3 lines, but ref\.de has 4"),
        ("--hyp a=old.de,empty.de", r"empty\.de has 0 lines"),
        ("--hyp a=old.de,", r"--hyp a=old\.de,"),
        ("--hyp a=old.de,s1.de --examples 1", "--examples"),
        ("--hyp old.de --baseline s1.de --src src.en", "--src"),
        ("--hyp old.de --baseline s1.de --src short.de --examples 1", "3"),
    ],
)
def test_a_comparison_of_unfit_files_is_refused_in_one_sentence(
    texts: Path, run_cli: Run, more: str, says: str
) -> None:
    done = run_cli("score", "ref.de", *more.split())
    assert (done.code, done.out) == (2, b"")
    assert re.search(says, done.err), done.err
    assert done.err.count("\n") == 1, done.err


TEXTS = [
    ("13a", "de", "Heute ist das Wetter gut, 今日."),
    ("13a", "", "الطقس جيد اليوم."),
    ("13a", "hi", "आज मौसम अच्छा है।"),
    ("13a", "", "1 2 3"),
    ("zh", "zh-TW", "今天天气很好，Tom。"),
    ("zh", "zho_Hans", "今天天气很好。"),
    ("zh", "", "今天天气很好。"),
    ("char", "ja", "今日天気良好。"),
    ("char", "", "今日は天気がいいです。"),
    ("char", "ko", "오늘은 날씨가 좋습니다."),
    ("char", "", "วันนี้อากาศดี"),
    ("char", "km", "ថ្ងៃនេះអាកាសធាតុល្អ"),
    ("char", "lo", "ມື້ນີ້ອາກາດດີ"),
]


@pytest.mark.parametrize(("tokenizer", "language", "text"), TEXTS)
def test_the_tokenizer_fits_the_script(tokenizer: str, language: str, text: str) -> None:
    assert fitting_tokenizer([text] * 3, language) == tokenizer
    assert deciding_metric(tokenizer) == ("chrf" if tokenizer == "char" else "bleu")


@pytest.mark.parametrize("text", [text for tokenizer, _, text in TEXTS if tokenizer != "13a"])
def test_equal_texts_have_a_perfect_score_in_every_script(text: str) -> None:
    lines = [text] * 2
    assert [result.value for result in score(lines, [lines])] == pytest.approx([100, 100])
    assert data_warnings({"out": ["x"]}, {"ref": [text]}, tokenize="13a")

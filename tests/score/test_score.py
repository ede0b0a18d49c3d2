"""score: goldens from sacrebleu's own command line, refusals, warnings, significance."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from drawn import seeded

from vtrans.score.metrics import (
    METRICS,
    compare,
    data_warnings,
    deciding_metric,
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
    (HYP[:3], [REF_1], {}, ["3", "4", "the reference"]),
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
        compare(["ein@@ fach", *HYP[1:]], HYP, [REF_1], baseline_name="base.de")


TOKENISED = ["Ein Mann rennt .", "Zwei Hunde spielen .", "Eine Frau liest .", "Die Kinder essen Eis"]
WARNINGS: list[tuple[Sequence[str], Sequence[Sequence[str]], dict[str, bool | str], list[str]]] = [
    (HYP, [REF_1], {}, []),
    (TOKENISED[:3] * 4 + TOKENISED[3:], [REF_1[:3] * 4 + REF_1[3:]], {}, ["12 of 13 hypothesis"]),
    (TOKENISED, [REF_1], {}, []),  # 3 of 4 are not enough
    (TOKENISED[:3] * 34 + HYP * 100, [REF_1[:3] * 34 + REF_1 * 100], {}, ["102 of 502 hypothesis"]),
    (HYP[:3], [TOKENISED[:3]], {}, ["3 of 3 reference"]),
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
    warnings = data_warnings(hyps, refs, **options)  # type: ignore[arg-type]  # a table of options of several types
    assert len(warnings) == len(begins)
    for sentence, words in zip(warnings, begins, strict=True):
        assert words in sentence


def test_a_better_system_is_significant() -> None:
    """One system is wrong in a tenth of the lines, and the other one in half of all words."""
    draw = seeded(1)
    refs = [" ".join(draw.choice(("rot", "grün", "blau", "gelb")) for _ in range(8)) for _ in range(120)]
    good = [f"{line} falsch" if draw.random() < 0.1 else line for line in refs]
    bad = [" ".join("weiß" if draw.random() < 0.5 else word for word in line.split()) for line in refs]
    for result in compare(bad, good, [refs], METRICS, samples=200):
        assert (result.value > result.baseline_value) == (result.name != "TER")
        assert result.p_value < 0.01
        assert abs(result.mean - result.value) < 3
        assert 0 < result.ci < 10
        assert result.signature.endswith("|version:" + result.signature.rpartition(":")[2])
        assert "|seed:12345|" in f"|{result.signature}|"
        assert "|bs:200|" in f"|{result.signature}|"
        assert f"p = {result.p_value:.4f}" in result.text
        assert result.signature in result.text
        assert json.loads(json.dumps(result.as_dict()))["p_value"] == result.p_value


def test_the_score_of_numbers_counts_lines_with_digits() -> None:
    sources = ["2,000 dogs", "a dog", "at 6:30", "3 cats", "cats"]
    hypotheses = ["zweitausend Hunde", "ein Hund", "um halb sieben", "Katzen", "55 Katzen"]
    result = numbers_score(sources, hypotheses)
    assert (result.value, result.signature) == (75.0, "lines:4|invented:1")
    assert numbers_score(["a"], ["b"]).value == 100.0
    with pytest.raises(InputError, match=r"the hypothesis has 1 lines, but the source has 5"):
        numbers_score(sources, ["x"])


def test_the_interval_and_p_equal_a_count_of_resampled_texts() -> None:
    """Koehn 2004: texts of as many lines are drawn with replacement, the same ones for both systems."""
    draw, samples = seeded(2), 80
    refs = [" ".join(draw.choice(("rot", "grün", "blau", "gelb")) for _ in range(8)) for _ in range(30)]
    worse, better = (
        [" ".join("weiß" if draw.random() < rate else word for word in line.split()) for line in refs]
        for rate in (0.2, 0.17)
    )
    drawn = np.random.default_rng(12345).choice(len(refs), size=(samples, len(refs)), replace=True)

    def resampled(lines: list[str]) -> np.ndarray[Any, Any]:
        texts = [([lines[i] for i in rows], [[refs[i] for i in rows]]) for rows in drawn]
        return np.array([score(*text, ["bleu"])[0].value for text in texts])

    scores = resampled(better)
    (result,) = compare(worse, better, [refs], ["bleu"], samples=samples)
    (alone,) = score(better, [refs], ["bleu"], samples=samples)
    low, high = sorted(scores)[samples // 40], sorted(scores)[-samples // 40 - 1]
    for each in (result, alone):
        assert (each.mean, each.ci) == pytest.approx((scores.mean(), (high - low) / 2), abs=1e-3)
    differences = abs(scores - resampled(worse))
    count = sum(differences - differences.mean() > abs(result.value - result.baseline_value))
    assert result.p_value == pytest.approx((count + 1) / (samples + 1))
    assert "±" in alone.text
    assert "|bs:80|seed:12345|" in alone.signature
    assert score(better, [refs], ["bleu"])[0].as_dict()["ci"] is None


def test_a_comparison_says_whether_the_difference_is_significant() -> None:
    (same,) = compare(HYP, HYP, [REF_1], ["bleu"], samples=10)
    assert same.text.endswith("p = 1.0000 (not significant at 0.05)")


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
    assert data_warnings(["x"], [[text]], tokenize="13a")

"""Translators: the laws of the search with real networks, abandoning it, threads, and one line out per line in."""

import dataclasses
import io
import json
import math
import re
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from drawn import seeded, some
from hypothesis import given, settings
from hypothesis import strategies as st
from translators import (
    SEARCH,
    SMALL,
    VARIANTS,
    WORDS,
    FakeEngine,
    loaded,
    network,
    same,
    sentences,
    translator,
    vocabulary,
    window,
)

import vtrans
from vtrans.config import SearchConfig
from vtrans.engines.engine import Source
from vtrans.engines.torch_engine import TorchEngine
from vtrans.model.checkpoint import LoadedModel
from vtrans.search.loop import Hypothesis
from vtrans.search.options import Sampling
from vtrans.system.console import Console
from vtrans.system.errors import AbandonedError
from vtrans.text.lines import one_line
from vtrans.text.vocabulary import EOS_ID
from vtrans.translate.steps.annotate import Annotate
from vtrans.translate.steps.line import Line, Piece, lines_of
from vtrans.translate.steps.split import cut_long
from vtrans.translate.stream import translate_stream
from vtrans.translate.translation import TranslateOptions, Translation
from vtrans.translate.translator import Translator
from vtrans.translate.wording.glossary import Glossary


@pytest.mark.parametrize("name", some(VARIANTS))
def test_no_translation_depends_on_its_batch(name: str) -> None:
    lines, engine = sentences(24), TorchEngine([loaded(VARIANTS[name])])
    alone = [Translator(engine).translate_window(window([line]), TranslateOptions(3))[0] for line in lines]
    order = seeded(1).sample(range(len(lines)), len(lines))
    for batch_tokens, numbers in ((50, order), (5000, range(len(lines)))):
        made = Translator(engine, dataclasses.replace(SEARCH, batch_tokens=batch_tokens))
        assert same(list(made.nbest([lines[i] for i in numbers], 3)), [alone[i] for i in numbers])
    met = [t for best in alone for t in best if t.text]
    assert len({t.text for t in met}) > 5
    assert {t.finished for t in met} == {True, False}


def test_samples_depend_only_on_seed_and_line() -> None:
    lines = sentences(20)
    draws = list(translator().nbest(lines, 2, Sampling(seed=7)))
    again = translator(batch_tokens=50)
    for _ in range(2):  # after other translations, too
        assert same(list(again.nbest(lines, 2, Sampling(seed=7))), draws)
    assert list(translator().translate(lines, Sampling(seed=7))) == [best[0].text for best in draws]
    assert list(translator().translate(lines, Sampling(seed=8))) != [best[0].text for best in draws]
    assert any(a.text != b.text for a, b in draws)
    assert len(set(translator().translate(["a dog runs"] * 20, Sampling()))) > 5


class Same(FakeEngine):
    """Translates every source into the same texts, and records the sources."""

    def __init__(self, *texts: str) -> None:
        super().__init__(vocabulary())
        self.texts, self.sources = list(texts), list[list[int]]()

    def answers(self, source: Source) -> list[str]:
        self.sources.append(source.tokens)
        return self.texts


BLANK = ("", " ", "\t", "  \u3000 ", "\u00a0", "\u200b", "\ufeff", "\u2581", "\x1f")


def test_blank_lines_stay_blank_without_the_model() -> None:
    engine = Same("Bild")
    made = Translator(engine, SEARCH)
    assert list(made.translate([*BLANK, "dog", *BLANK])) == [*[""] * len(BLANK), "Bild", *[""] * len(BLANK)]
    assert engine.sources == [[*vocabulary().encode("dog"), EOS_ID]]
    assert made.counts.blank == 2 * len(BLANK)
    assert made.counts.lines == 2 * len(BLANK) + 1
    assert list(made.translate([])) == []
    assert [t.text for t in made.translate_window(window([""]))[0]] == [""]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(max_size=12), max_size=7), st.integers(1, 3))
def test_every_line_gives_its_own_translations_in_order(lines: list[str], n: int) -> None:
    made = translator(beam=3, max_length=3, batch_tokens=30)
    translations = list(made.nbest(lines, n))
    assert len(translations) == len(lines)
    for line, best in zip(lines, translations, strict=True):
        assert len(best) == n
        assert all(one_line(t.text) == t.text for t in best)
        assert [t.score for t in best] == sorted((t.score for t in best), reverse=True)
        if not line.strip():
            assert [t.text for t in best] == [""] * n
        assert same([best], [translator(beam=3, max_length=3).translate_window(window([line]), TranslateOptions(n))[0]])
    out = io.BytesIO()
    translate_stream(made, lines_of(lines), out, TranslateOptions(n))
    assert out.getvalue() == "".join(t.text + "\n" for best in translations for t in best).encode()


def test_a_lost_line_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Translator.translate_window

    def losing(made: Translator, lines: list[Line], *args: Any, **options: Any) -> None:
        whole(made, lines, *args, **options)
        lines[-1].translations.clear()

    monkeypatch.setattr(Translator, "translate_window", losing)
    out = io.BytesIO()
    with pytest.raises(vtrans.VtransError, match=r"line 3 .* 1 .* 0"):
        translate_stream(translator(), lines_of(["a", "dog", "runs"]), out)
    assert out.getvalue() == b""


def test_places_without_a_hypothesis_are_empty_and_counted() -> None:
    made = Translator(Same(""), SEARCH)
    (found,) = made.nbest(["a dog runs"], 3)
    assert found[0] == Translation("", -1.0, -1.0, True, (EOS_ID,), ("</s>",), (-1.0,))
    assert found[1:] == [Translation("", -math.inf, -math.inf, False)] * 2
    assert made.counts.missing == 2
    fields = found[1].as_dict()
    assert (fields["text"], fields["logprob"], fields["score"], fields["finished"]) == ("", None, None, False)
    out = io.BytesIO()
    translate_stream(made, lines_of(["a dog runs"]), out, TranslateOptions(3, form="json"))
    assert len(json.loads(out.getvalue())["translations"]) == 3


def test_empty_translations_of_pieces_are_counted() -> None:
    made = translator()
    empty, dog = (Hypothesis(tuple(ids), 0.0, 0.0, True, (0.0,)) for ids in ([], vocabulary().encode("dog")))

    def joined(*pieces: list[Hypothesis]) -> Line:
        line = Line(1, "x")
        line.pieces = [Piece(line, Source([EOS_ID], 1, "1/0"), hypotheses) for hypotheses in pieces]
        Annotate(made.engine, TranslateOptions(len(pieces[0])), 1)([line])
        return line

    for pieces, times in (([dog, dog], 0), ([dog, empty], 1), ([empty, dog, empty], 1), ([dog], 0)):
        line = joined(*([piece] for piece in pieces))
        assert "dog" in line.translations[0].text
        assert line.counts.empty == times
    assert joined([dog, empty]).counts.empty == 0  # only the best translation counts


def test_a_long_line_is_cut_with_a_warning_that_names_it() -> None:
    heard = io.StringIO()
    vocab = vocabulary()
    line = " ".join(WORDS * 3)
    made = Translator(TorchEngine([loaded()]), dataclasses.replace(SEARCH, max_source=10), Console(stream=heard))
    short = "a dog runs"
    found = list(made.translate([short, line, short], raw=True))
    pieces = cut_long(vocab.encode(line), 10, vocab, 10)
    assert len(pieces) > 3
    (warning,) = heard.getvalue().removesuffix("\n").split("\n")
    assert re.search(rf"^warning: line 2 .* {len(vocab.encode(line))} .* 10.* {len(pieces)} pieces", warning)
    assert made.counts.cut == 1
    parts = [best for (best,) in translator().nbest(map(vocab.decode, pieces), raw=True)]
    assert found[1] == " ".join(part.text for part in parts if part.text)
    ((whole,),) = made.nbest([line], raw=True)
    assert whole.score == pytest.approx(statistics.fmean(part.score for part in parts))
    assert whole.logprob == pytest.approx(math.fsum(part.logprob for part in parts))
    assert found[0] == found[2] == next(translator().translate([short], raw=True))


def test_no_source_is_longer_than_the_position_table() -> None:
    config = dataclasses.replace(SMALL, positions="learned", max_positions=9)
    vocab = vocabulary()
    model = LoadedModel(network(config, len(vocab), eos=-50.0), vocab, vocab, SearchConfig(beam=2), {})
    made = Translator(TorchEngine([model]))
    long = " ".join(WORDS * 2)
    assert all(made.translate([long, "a dog", long]))
    assert made.reader.max_source == 8  # and EOS
    assert made.counts.cut == 2
    assert made.counts.unfinished == 3
    both = Translator(
        TorchEngine([loaded(), model]), SearchConfig(beam=1)
    )  # the shortest position table limits an ensemble
    assert len(list(both.translate([long]))) == 1
    assert both.reader.max_source == 8


KINDS = {
    "a search": TranslateOptions(),
    "a search for phrases": TranslateOptions(glossary=Glossary((("a", ("b",)),))),
    "samples": TranslateOptions(sampling=Sampling(seed=1)),
}


class Abandoned:
    """Counts its calls, and becomes true after some."""

    def __init__(self, last: int | None = None) -> None:
        self.last, self.steps = last, 0

    def __call__(self) -> bool:
        self.steps += 1
        return self.steps - 1 == self.last


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_ends_at_the_step_at_which_it_is_abandoned(kind: str) -> None:
    lines = [*sentences(8), "a"]
    model, options = translator(retry=False), KINDS[kind]
    expected = model.translate_window(window(lines), options)
    whole = Abandoned()
    assert model.translate_window(window(lines), replace(options, abandoned=whole)) == expected
    assert whole.steps > 3
    for last in (0, 2, whole.steps - 1):
        abandoned = Abandoned(last)
        with pytest.raises(AbandonedError):
            model.translate_window(window(lines), replace(options, abandoned=abandoned))
        assert abandoned.steps == last + 1
    assert model.translate_window(window(lines), options) == expected


THREADS = 8


@pytest.mark.parametrize("name", ["search", "token_logprobs"])
def test_one_thread_at_a_time_is_in_the_engine(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Buffers and tables of a model, such as sinusoidal positions that grow, belong to one search at a time."""
    made = translator()
    inside, most = 0, 0
    usual = getattr(made.engine, name)

    def watched(*args: Any, **named: Any) -> Any:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.002)
        found = usual(*args, **named)
        found = iter(list(found)) if isinstance(found, Iterator) else found
        inside -= 1
        return found

    monkeypatch.setattr(made.engine, name, watched)
    begin = threading.Barrier(THREADS)

    def work(number: int) -> int:
        begin.wait()
        lines = sentences(3, seed=number)
        return len(list(made.translate(lines) if name == "search" else made.logprob(lines, lines)))

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == [3] * THREADS
    assert most == 1

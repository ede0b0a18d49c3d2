"""Fuzzy matches: the index equals a comparison with every text; `prepare-bpe --fuzzy` adds pairs."""

from pathlib import Path

import numpy as np
import pytest
from corpora import TRAIN, decoded, made, options
from drawn import seeded
from rapidfuzz.distance import Levenshtein

from vtrans.data.matches import LEAST_SIMILARITY, SEPARATOR_ID, Matches
from vtrans.data.store import DataFolder

WORDS = ("the", "the", "the", "a", "dog", "cat", "runs", "in", "park", "Łódź", "5", "犬")


def near(translation: str, similarity: float) -> object:
    return (translation, pytest.approx(similarity))


def texts(count: int, seed: int) -> list[str]:
    numbers = seeded(seed)
    return [" ".join(numbers.choices(WORDS, k=numbers.randrange(1, 9))) for _ in range(count)]


@pytest.mark.parametrize("seed", range(3))
def test_the_index_finds_the_best_text_there_is(seed: int) -> None:
    known = texts(150, seed)
    numbered = [(text, str(number)) for number, text in enumerate(known)]
    matches = Matches(numbered[:100])
    for pair in numbered[100:]:
        matches.add(*pair)
    for text in texts(150, seed + 100):
        scores = [Levenshtein.normalized_similarity(text.split(), other.split()) for other in known]
        best = max(scores)
        found = matches.best(text)
        if best < LEAST_SIMILARITY:
            assert found is None
        else:
            assert found == near(str(149 - scores[::-1].index(best)), best)


def test_equal_texts_are_left_out_if_another_is_asked_for() -> None:
    matches = Matches([("a b c d e", "x"), ("a b c d y", "y"), ("a b c d e", "z"), ("A b c d e", "u")])
    assert matches.best("a b c d e") == ("u", 1.0)
    assert matches.best("A b c d e", other=True) == ("z", 1.0)
    assert Matches([("a b c d e", "x")]).best("a b c d e", other=True) is None


def test_many_copies_of_a_text_hide_no_other() -> None:
    matches = Matches([("a b c d y", "y"), *[("a b c d e", str(k)) for k in range(5000)]])
    assert matches.best("a b c d e", other=True) == near("y", 0.8)
    assert matches.best("a b c d e") == ("4999", 1.0)
    matches.add("a b c d y", "z")
    assert matches.best("a b c d x") == near("z", 0.8)


def test_a_match_has_no_code_that_the_text_lacks() -> None:
    matches = Matches([("put A1 into it", "A1 darein"), ("put A1 into B2", "A1 in B2"), ("put it into A12", "in A12")])
    assert matches.best("put A1 into that") == near("A1 darein", 0.75)
    assert matches.best("put A1 into B2") == ("A1 in B2", 1.0)
    assert matches.best("put it into B2") is None


def divided(data: DataFolder, i: int) -> tuple[list[int], list[int]]:
    """Returns the subwords of a source before its line, and the subwords of the line."""
    ids = data.train.src(i).tolist()
    at = ids.index(SEPARATOR_ID) + 1 if SEPARATOR_ID in ids else 0
    return ids[:at], ids[at:]


@pytest.mark.parametrize("separate", [False, True])
def test_each_pair_with_a_match_occurs_twice(tmp_path: Path, separate: bool) -> None:
    train = [*TRAIN[:60], TRAIN[0], ("nothing like it here", "gar nichts"), ("A5 red dog sees A7", "A5 x A7")]
    (tmp_path / "train.align").write_text("0-0\n" * len(train))
    report = made(options(tmp_path, train, alignments=(tmp_path / "train.align",), fuzzy=True, separate=separate))
    data = DataFolder.open(tmp_path / "data")
    assert data.matches
    plain = report["train"]["kept"]
    assert plain == len(train)
    assert data.corpora == (plain + report["train"]["matches"],)
    assert [decoded(data, data.train)[i] for i in range(plain)] == train
    number = 0
    for i in range(plain, len(data.train)):
        match, line = divided(data, i)
        source, target = data.src_vocab.decode(line), data.tgt_vocab.decode(data.train.tgt(i).tolist())
        while train[number] != (source, target):
            number += 1
        others = [pair for pair in train if pair[0] != source]
        assert data.src_vocab.decode(match) == (Matches(others).best(source) or ("", 0.0))[0]
        assert np.array_equal(data.train.links(i), data.train.links(number) + np.array([len(match), 0]))
        number += 1
    missing = {"nothing like it here", "A5 red dog sees A7"}
    assert len(data.train) - plain >= plain - len(missing) - 1

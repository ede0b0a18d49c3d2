"""`prepare-bpe --fuzzy`: pairs with fuzzy matches follow the pairs of their corpus."""

from pathlib import Path

import numpy as np
import pytest
from corpora import TRAIN, decoded, made, options

from vtrans.data.matches import SEPARATOR_ID, Matches
from vtrans.data.store import DataFolder


def divided(data: DataFolder, i: int) -> tuple[list[int], list[int]]:
    """Returns the subwords of a source before its line, and those of the line."""
    ids = data.train.src(i).tolist()
    at = ids.index(SEPARATOR_ID) + 1 if SEPARATOR_ID in ids else 0
    return ids[:at], ids[at:]


@pytest.mark.parametrize("separate", [False, True])
def test_each_pair_with_a_match_is_there_twice(tmp_path: Path, separate: bool) -> None:
    train = [*TRAIN[:60], TRAIN[0], ("nothing like it here", "gar nichts"), ("A5 red dog sees A7", "A5 x A7")]
    report = made(options(tmp_path, train, align=True, fuzzy=True, separate=separate))
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

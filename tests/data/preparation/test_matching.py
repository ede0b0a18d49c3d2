"""`prepare-bpe --fuzzy`: pairs with fuzzy matches follow the pairs of their corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import tiny_train
from corpora import TRAIN, Pairs, decoded, made, options, write

from vtrans.checkpoint import load_model
from vtrans.data.store import DataFolder
from vtrans.text.matches import SEPARATOR_ID, Matches


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


def test_sources_of_two_corpora_and_languages_keep_apart(tmp_path: Path) -> None:
    other: Pairs = [(src, tgt.upper()) for src, tgt in TRAIN[:40]]
    src, tgt = write(tmp_path, "train.a", TRAIN[:40])
    more = write(tmp_path, "train.b", other)
    tags: dict[str, Any] = {"tags": (">>de<<", ">>fr<<"), "src_lang": ("en",), "tgt_lang": ("de", "fr")}
    made(options(tmp_path, fuzzy=True, **tags | {"src": (src, more[0]), "tgt": (tgt, more[1])}, valid_tags=(">>de<<",)))
    data = DataFolder.open(tmp_path / "data")
    assert len(data.corpora) == 2
    assert all(count > 40 for count in data.corpora)
    tag_ids = [data.src_vocab.id_of(tag) for tag in (">>de<<", ">>fr<<")]
    for i in range(len(data.train)):
        corpus = int(i >= data.corpora[0])
        ids = data.train.src(i).tolist()
        assert ids[0] == tag_ids[corpus]
        match, _ = divided(data, i)
        text = data.src_vocab.decode(match)
        assert text.isupper() or not text or not corpus
        assert not text.isupper() or corpus


def test_a_source_with_its_match_is_not_too_long(tmp_path: Path) -> None:
    made(options(tmp_path, fuzzy=True, max_tokens=20))
    data = DataFolder.open(tmp_path / "data")
    assert max(len(data.train.src(i)) for i in range(len(data.train))) <= 20


def test_a_model_records_that_it_has_learned_to_use_matches(tmp_path: Path, tiny_data: DataFolder) -> None:
    made(options(tmp_path, TRAIN[:80], fuzzy=True))
    run = tiny_train(DataFolder.open(tmp_path / "data"), tmp_path / "run", "train.max_steps=2")
    assert load_model(run.last).matches
    plain = tiny_train(tiny_data, tmp_path / "plain", "train.max_steps=2", init_from=run.last)
    assert not load_model(plain.last).matches

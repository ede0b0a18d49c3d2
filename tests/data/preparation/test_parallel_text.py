"""Reading parallel text: bad files, held-out pairs, random samples."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpora import TRAIN, VALID, decoded, heard, made, options, refused, write
from drawn import seeded

from vtrans.data.preparation.learn_vocabulary import learn
from vtrans.data.preparation.parallel_text import HELD_OUT_SHARE, Corpus, Sample, Split, Survey
from vtrans.data.store import DataFolder
from vtrans.system.errors import InputError


def many(sources: int, seed: int = 0) -> list[tuple[str, str]]:
    """Source sentences with one to four translations each, shuffled."""
    dice = seeded(seed)
    pairs = [(f"dog {i}", f"Hund {i} {j}") for i in range(sources) for j in range(dice.choice((1, 1, 2, 4)))]
    dice.shuffle(pairs)
    return pairs


def test_at_most_a_twentieth_is_held_out_by_whole_sources(tmp_path: Path) -> None:
    pairs = many(800)
    report, said = heard(options(tmp_path, pairs, None))
    data = DataFolder.open(tmp_path / "data")
    train, valid = decoded(data, data.train), decoded(data, data.valid)
    assert sorted(train + valid) == sorted(pairs)
    assert not {src for src, _ in train} & {src for src, _ in valid}
    assert 0.9 * HELD_OUT_SHARE * len(pairs) < len(valid) <= HELD_OUT_SHARE * len(pairs)
    held_out = {"sources": len({src for src, _ in valid}), "pairs": len(valid)}
    assert report["held_out"] == held_out
    assert re.search(rf"{len(valid)} pairs.* {held_out['sources']} random sources", said)
    assert (report["valid"]["pairs_in_train"], report["valid"]["sources_in_train"]) == (0, 0)
    # They are spread over the corpus, and another seed chooses others.
    places = [i for i, pair in enumerate(pairs) if pair in set(valid)]
    assert places[0] < len(pairs) / 4
    assert places[-1] > len(pairs) * 3 / 4
    folder = tmp_path / "other"
    folder.mkdir()
    made(options(folder, pairs, None, seed=2))
    other = DataFolder.open(folder / "data")
    assert set(decoded(other, other.valid)) != set(valid)


def test_a_sample_is_random_ordered_and_repeatable(tmp_path: Path) -> None:
    pairs = [(f"w{i}x", f"y{i}z") for i in range(2000)]
    src, tgt = write(tmp_path, "train", pairs)
    corpus = Corpus((src,), (tgt,), "error")
    split = Split(corpus, Survey([len(pairs)], len(pairs), {}, {}), None, None, {}, seed=1)

    def drawn(side: str, size: int) -> list[str]:
        return list(Sample(split, side, size, lambda pairs: None))

    both = drawn("both", 100)
    assert len(both) == 200
    assert [line[1:-1] for line in both[::2]] == [line[1:-1] for line in both[1::2]]
    assert both == drawn("both", 100)  # the same at every iteration
    assert both[::2] == drawn("src", 100)
    assert both[1::2] == drawn("tgt", 100)
    places = [int(line[1:-1]) for line in both[::2]]
    assert places == sorted(set(places))
    assert places[0] < 500
    assert places[-1] > 1500
    assert drawn("src", 10**6) == [pair[0] for pair in pairs]
    # The option has an effect: three pairs allow fewer pieces than two thousand.
    small, large = (
        made(options(tmp_path, pairs, sample=n, out=tmp_path / str(n)))["vocabulary"]["src_pieces"] for n in (3, 2000)
    )
    assert small < large


def test_unequal_line_counts_are_refused_with_both_numbers(tmp_path: Path) -> None:
    opts = options(tmp_path)
    for side, path in ((0, opts.src[0]), (1, opts.tgt[0])):
        write(tmp_path, "train", TRAIN)
        with Path(path).open("ab") as file:
            file.write(b"one more\nand one\n")
        counts = [len(TRAIN) + 2 * (side == i) for i in (0, 1)]
        refused(opts, rf"train\.en .*{counts[0]} lines.*train\.de .*{counts[1]}")
    write(tmp_path, "train", TRAIN)
    Path(opts.valid_tgt[0]).write_bytes(b"nur eine\n")
    refused(opts, rf"valid\.en .*{len(VALID)} lines.*valid\.de .*1")


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opts = options(tmp_path)
    path = Path(opts.tgt[0])

    def meddle(*args: Any, **kwargs: Any) -> Any:
        path.write_bytes(change(path.read_bytes()))
        return learn(*args, **kwargs)

    monkeypatch.setattr("vtrans.data.preparation.learn_vocabulary.learn", meddle)
    changes: list[Callable[[bytes], bytes]] = [
        lambda raw: raw.replace(b"Esel", b"Maus"), lambda raw: raw + b"mehr\n"
    ]  # fmt: skip
    for change in changes:  # noqa: B007  # `meddle` reads it
        write(tmp_path, "train", TRAIN)
        with pytest.raises(InputError, match="changed while being read"):
            made(opts)
        assert not (tmp_path / "data").exists()

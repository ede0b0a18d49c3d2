"""Corpora of several target languages: a tag before each source, which no text contains."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from corpora import FRENCH, TAGS, TRAIN, VALID, decoded, made, refused, two_languages, write
from translators import learned

from vtrans.data.options import Subword
from vtrans.data.preparation.overlap import subword_counts
from vtrans.data.store import DataFolder, TokenStore
from vtrans.system.errors import InputError
from vtrans.text.languages import languages_from, languages_record, tags_among, tags_from
from vtrans.text.vocabulary import EOS_ID


def tags_in(data: DataFolder, store: TokenStore) -> list[str]:
    """The first subword of each source; no other subword is a tag."""
    found = []
    for i in range(len(store)):
        first, *rest = (data.src_vocab.piece(id) for id in store.src(i).tolist())
        found.append(first)
        assert not set(TAGS) & {*rest, *(data.tgt_vocab.piece(id) for id in store.tgt(i).tolist())}
    return found


@pytest.mark.parametrize("separate", [False, True])
def test_each_source_begins_with_the_tag_of_its_corpus(tmp_path: Path, separate: bool) -> None:
    report = made(two_languages(tmp_path, separate=separate, symbols=("<BT>",)))
    data = DataFolder.open(tmp_path / "data")
    assert data.tags == {"de": ">>de<<", "fr": ">>fr<<"}
    assert data.languages == (("en", "de"), ("en", "fr"))
    first, second = data.corpora
    assert tags_in(data, data.train) == [">>de<<"] * first + [">>fr<<"] * second
    assert tags_in(data, data.valid) == [">>de<<"] * len(VALID) + [">>fr<<"] * len(VALID)
    assert decoded(data, data.train) == [*TRAIN, *FRENCH[::3]]
    assert (data.src_vocab.tags, data.src_vocab.symbols) == (TAGS, ("<BT>",))
    assert data.tgt_vocab.tags == (() if separate else TAGS)
    assert report["vocabulary"]["symbols"] == {"<BT>": {"src": 0, "tgt": 0}}


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_no_text_becomes_a_tag_and_no_tag_becomes_text(kind: Subword) -> None:
    text = [f"{src} >>de<< x>>de<<y {tgt}" for src, tgt in TRAIN[:60]]
    plain = learned(text, subword=kind)
    tagged = learned(text, subword=kind, tags=TAGS, symbols=("<BT>",))
    ids = [tagged.id_of(tag) for tag in TAGS]
    assert ids == [EOS_ID + 1, EOS_ID + 2]
    for line in (">>de<<", ">>de<< a dog", "dog >>fr<<", "a>>de<<b", ">>de<<>>fr<<", "<BT> >>de<<"):
        found = tagged.encode(line)
        assert not set(ids) & set(found)
        assert tagged.decode([ids[0] or 0, *found]) == tagged.decode(found) == line
    assert not any(tagged.is_subword(id or 0) for id in ids)
    assert not set(subword_counts(tagged, [1] * len(tagged))) & {*TAGS, "<BT>"}
    assert (plain.tags, plain.symbols) == ((), ())


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    whole = two_languages(tmp_path)
    text = write(tmp_path, "text", FRENCH[::3])
    nameless = text[1].rename(tmp_path / "text.txt")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"tags": TAGS[:1]}, "`tags`.* 2 .* 1"),
        ({"tags": (">>de<<", ">>de<<")}, "`tags`.*>>de<< for fr"),
        ({"tags": TAGS, "tgt_lang": ("de",)}, "`tags`.*>>fr<< for de"),
        ({"tags": (">>de<<", "a b")}, "`tags`.*'a b'"),
        ({"tags": (">>de<<", "<s>")}, "`tags` <s>"),
        ({"symbols": (">>de<<",)}, "`tags` >>de<< is given twice"),
        ({"valid_tags": TAGS[:1]}, "`valid_tags`.* 2 .* 1"),
        ({"valid_tags": (">>de<<", ">>it<<")}, "`valid_tags`.*>>it<<"),
        ({"tags": (), "valid_tags": TAGS}, "`valid_tags` needs `tags`"),
        ({"valid_tgt": (whole.valid_tgt[0], nameless)}, r"text\.txt.*`valid_tags`"),
        ({"tgt": (whole.tgt[0], nameless)}, r"second\.en.*`tgt_lang`"),
        ({"src_lang": ("en", "en", "en")}, "`src_lang`.* 3"),
        ({"tags": (), "tgt_lang": ("de", "fr")}, "`src_lang` and `tgt_lang`"),
    ]
    for values, message in cases:
        refused(dataclasses.replace(whole, **values), message)
    other = dataclasses.replace(whole, tgt=(whole.tgt[0], nameless), valid_tags=TAGS)
    made(dataclasses.replace(other, src_lang=("en",), tgt_lang=("de", "pt-BR")))
    assert DataFolder.open(tmp_path / "data").tags == {"de": ">>de<<", "pt-BR": ">>fr<<"}


def test_a_given_vocabulary_needs_the_tags(tmp_path: Path) -> None:
    whole = two_languages(tmp_path)
    made(whole)
    vocabularies = (DataFolder.open(tmp_path / "data").src_vocab.proto,) * 2
    again = dataclasses.replace(whole, out=tmp_path / "again", vocabularies=vocabularies)
    made(again)
    assert DataFolder.open(tmp_path / "again").train.src(0).tolist() == DataFolder.open(whole.out).train.src(0).tolist()
    refused(dataclasses.replace(again, out=tmp_path / "new", tags=(">>de<<", "<2fr>")), "`vocab_from`.*'<2fr>'")


def test_languages_and_tags_survive_a_file() -> None:
    for codes in ([], [("en", "de")], [("en", "de"), ("fr", "pt-BR")]):
        pairs = languages_from([list(pair) for pair in codes] or None)
        assert pairs == tuple(codes)
        assert languages_from(json.loads(json.dumps(languages_record(pairs)))) == pairs
    assert languages_record(languages_from(["en", "de"])) == ["en", "de"]
    for wrong in ([], ["en"], [["en", "de"], "fr"], [["en", 3]], {"en": "de"}, [["en", "XY"]]):
        with pytest.raises(InputError):
            languages_from(wrong)
    assert tags_from({"de": ">>de<<"}, TAGS) == {"de": ">>de<<"}
    wrong_tags: tuple[Any, ...] = ([], {"de": 3}, {"XY": ">>de<<"}, {"it": ">>it<<"})
    for value in wrong_tags:
        with pytest.raises(InputError):
            tags_from(value, TAGS)
    assert tags_among([">>deu<<", ">>pt_BR<<", ">>X<<", "dog", ">>"]) == {"deu": ">>deu<<", "pt-BR": ">>pt_BR<<"}

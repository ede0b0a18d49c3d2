"""Imports with a smaller vocabulary: the text has the same subwords, and the model the same translations among them."""

import dataclasses
import io
import random
from pathlib import Path

import foreign
import pytest
import sentencepiece
import torch
from cli_runner import Run
from conftest import TRAIN_PAIRS
from drawn import some
from exports import assert_equal

from vtrans import load
from vtrans.apps.interop.formats import import_model, read_model
from vtrans.apps.interop.trimming import Keep, trimmed_vocabularies
from vtrans.model.checkpoint import load_model, save_model
from vtrans.storage.run_folder import RunFolder
from vtrans.system.console import Console
from vtrans.text.piece_table import pack
from vtrans.text.vocabulary import BOS_ID, EOS_ID, SPECIAL_PIECES, Vocabulary

QUIET = Console(quiet=True)
LETTERS = ("abcdefgh", "abcdeéßñαβγдж", "漢字仮名かなカナ語")
Law = random.Random


def words(numbers: Law, count: int, letters: str) -> list[str]:
    """Random words, in which the first letters are likelier."""
    weights = [1 / (i + 1) for i in range(len(letters))]
    return ["".join(numbers.choices(letters, weights, k=numbers.randint(1, 9))) for _ in range(count)]


def random_lines(numbers: Law, count: int, known: list[str]) -> list[str]:
    weights = [1 / (i + 1) for i in range(len(known))]
    return [" ".join(numbers.choices(known, weights, k=numbers.randint(1, 14))) for _ in range(count)]


def random_vocabulary(numbers: Law, kind: str, letters: str, known: list[str]) -> Vocabulary:
    """A SentencePiece model of vtrans's or another program's kind."""
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(random_lines(numbers, 300, known)), model_writer=stream, model_type=kind,
        vocab_size=numbers.choice([500, 700]), hard_vocab_limit=False, minloglevel=2,
        byte_fallback=numbers.random() < 0.7, pad_id=0, unk_id=1, bos_id=2, eos_id=3,
        user_defined_symbols=numbers.choice([[], [letters[:2]], ["<BT>"]]), self_test_sample_size=3,
    )  # fmt: skip
    proto = stream.getvalue()
    if numbers.random() < 0.5:
        return Vocabulary(proto)
    model = sentencepiece.SentencePieceProcessor(model_proto=proto)
    pieces = [model.id_to_piece(id) for id in range(1, model.get_piece_size())]
    special = {"unk": 0, "bos": 1, "eos": 2, "pad": len(pieces)}
    return Vocabulary(pack([*pieces, "<pad>", ">>de<<"], special, proto))


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("seed", some(range(40), 6))
def test_the_text_has_the_same_subwords(kind: str, seed: int) -> None:
    numbers = Law(f"{kind} {seed}")
    letters = numbers.choice(LETTERS)
    known = words(numbers, numbers.choice([60, 400]), letters)
    vocab = random_vocabulary(numbers, kind, letters, known)
    others = [*known, *words(numbers, 80, letters + "xyz\u2603")]  # with unknown characters
    numbers.shuffle(others)
    lines = random_lines(numbers, numbers.choice([3, 10, 30]), others)
    smaller, _ = trimmed_vocabularies(vocab, vocab, Keep(lines, numbers.choice([0, 20])))
    assert len(smaller) < len(vocab)
    assert [smaller.piece(id) for id in range(4)] == list(SPECIAL_PIECES)
    assert (smaller.symbols, smaller.tags) == (vocab.symbols, vocab.tags)
    for line in lines:
        before, after = vocab.encode(line), smaller.encode(line)
        assert [smaller.piece(id) for id in after] == [vocab.piece(id) for id in before]
        assert smaller.decode(after) == vocab.decode(before)


@pytest.mark.parametrize("name", ["NLLB", "Marian", "Marian with two vocabularies"])
def test_an_import_is_compared_before_it_is_trimmed(name: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    folder, out = tmp_path / "hf", tmp_path / "model.safetensors"
    direction = {"from": "eng_Latn", "to": "deu_Latn"} if name == "NLLB" else {}
    if direction:
        foreign.multilingual_folder(folder)
    else:
        foreign.hugging_face_folder(folder, separate="two" in name)
    keep = Keep([foreign.TEXT[0], foreign.TARGET_TEXT[0]], 0)
    assert_equal(import_model(folder, out, QUIET, foreign.TEXT[:2], options=direction, keep=keep), 2e-5)
    whole = read_model(folder, direction).model
    assert len(load_model(out).tgt_vocab) < len(whole.tgt_vocab)


def test_a_model_file_gives_the_translations_that_it_gives_with_all_other_subwords_suppressed(
    ending_run: RunFolder, tmp_path: Path
) -> None:
    whole, out, suppressed = ending_run.last, tmp_path / "small.safetensors", tmp_path / "suppressed.safetensors"
    lines = [text for pair in TRAIN_PAIRS[:1] for text in pair]
    assert import_model(whole, out, QUIET, keep=Keep(lines, 0)) is None
    before, after = load_model(whole), load_model(out)
    vocab, smaller = before.tgt_vocab, after.tgt_vocab
    kept = [id for piece in map(smaller.piece, range(len(smaller))) if (id := vocab.id_of(piece)) is not None]
    others = tuple(vocab.piece(id) for id in range(len(vocab)) if id not in kept)
    assert len(kept) == len(smaller) < len(vocab)
    assert (after.languages, after.tags, after.usual_length) == (before.languages, before.tags, before.usual_length)
    search = dataclasses.replace(before.search, suppress=others)
    save_model(suppressed, dataclasses.replace(before, search=search))
    for engine in ("torch", "compiled"):
        found = []
        for file in (suppressed, out):
            translator = load(file, engine=engine, beam=1)
            found.append([result.subwords for (result,) in translator.nbest(lines[::2], 1, raw=True)])
        assert found[0] == found[1]
        assert any(map(len, found[0]))
    # Its probabilities are those of the whole model among the subwords that stay.
    source, target = (vocab.encode(text) for text in lines[:2])
    logits = []
    for model, ids in ((before.model, [source, target]), (after.model, [smaller.encode(text) for text in lines[:2]])):
        src, tgt = torch.tensor([[*ids[0], EOS_ID]]), torch.tensor([[BOS_ID, *ids[1]]])
        with torch.inference_mode():
            logits.append(model(src, torch.ones_like(src, dtype=torch.bool), tgt))
    assert torch.allclose(logits[0][..., kept].log_softmax(-1), logits[1].log_softmax(-1), atol=1e-5)


def test_text_and_models_that_cannot_be_used(tiny_run: RunFolder, tmp_path: Path, run_cli: Run) -> None:
    blank, text = tmp_path / "blank.en", tmp_path / "text.en"
    blank.write_text("\n \n")
    text.write_text("a dog\n")
    refused = ((), ("--keep-frequent", 5), ("--keep-text", blank), ("--keep-text", text, "--keep-frequent", -1))
    for options in refused:
        done = run_cli("import", tiny_run.last, *options, "--out", tmp_path / "x.safetensors")
        assert done.code == 2
        assert "keep-" in done.err
    assert not (tmp_path / "x.safetensors").exists()

"""Word alignments: the attention of the decoder, and the links between words that are read from it."""

from __future__ import annotations

import io
import json
from typing import Any

import networks
import numpy as np
import pytest
import torch
from drawn import some
from networks import SEQUENCES, V, align, make, padded, sequences
from torch import Tensor
from translators import SEARCH, SMALL, VARIANTS, loaded, network, sentences, translator, vocabulary, word_vocabulary

from vtrans.checkpoint import LoadedModel
from vtrans.config import ModelConfig
from vtrans.data.batches import Batch
from vtrans.data.preparation.learn_vocabulary import learn
from vtrans.engines.alignments import ENOUGH, links, pharaoh
from vtrans.engines.attention import cross_attention, mean_attention
from vtrans.engines.forced import forced_batches
from vtrans.engines.torch_engine import TorchEngine
from vtrans.lines.line import lines_of
from vtrans.model import CrossAttention, SelfAttention, Transformer
from vtrans.numerics.attention import merge_heads
from vtrans.search.options import Sampling
from vtrans.text.vocabulary import EOS_ID, UNK_ID, Vocabulary
from vtrans.text.words import words_of_ids, words_of_line
from vtrans.translate.stream import translate_stream
from vtrans.translate.translation import TranslateOptions
from vtrans.translate.translator import Translator

LINES = [line for line in sentences(30, seed=3) if line]


# Attention to links.


@pytest.mark.parametrize(
    ("attention", "src", "tgt", "expected"),
    [
        # Each word of either side is linked to its best one: source word 2, too, which is no target word's best.
        ([[0.8, 0.1, 0.1], [0.1, 0.6, 0.3]], [0, 1, 2], [0, 1], "0-0 1-1 2-1"),
        # A source word whose largest share is below ENOUGH is not linked.
        ([[0.8, 0.1, 0.05], [0.1, 0.6, 0.09]], [0, 1, 2], [0, 1], "0-0 1-1"),
        # Subwords of a source word add up: 0.3 + 0.3 is more than 0.4.
        ([[0.3, 0.3, 0.4]], [0, 0, 1], [0], "0-0 1-0"),
        ([[0.3, 0.3, 0.4], [0.05, 0.05, 0.9]], [0, 0, 1], [0, 1], "0-0 1-1"),
        # Subwords of a target word are averaged.
        ([[0.9, 0.1], [0.3, 0.7], [0.45, 0.55]], [0, 1], [0, 0, 1], "0-0 1-1"),
        # Attention to EOS, the last column here, is ignored.
        ([[0.1, 0.2, 0.7]], [0, 1], [0], "0-0 1-0"),
        ([[0.05, 0.2, 0.75]], [0, 1], [0], "1-0"),
        # Words without subwords leave gaps in the numbers.
        ([[0.9, 0.1], [0.1, 0.9]], [1, 4], [0, 2], "1-0 4-2"),
        ([[0.9, 0.1]], [], [0], ""),
        ([[0.9, 0.1]], [0], [], ""),
    ],
)
def test_words_with_most_attention_are_linked(attention: Any, src: list[int], tgt: list[int], expected: str) -> None:
    assert ENOUGH == 0.1
    assert pharaoh(links(np.array(attention), src, tgt)) == expected


@pytest.mark.parametrize(("layers", "read"), [(1, [0]), (2, [1]), (3, [2]), (4, [2, 3]), (6, [3, 4, 5])])
def test_mean_attention_reads_the_upper_half_at_predicting_positions(layers: int, read: list[int]) -> None:
    config = ModelConfig(d_model=16, d_ff=24, heads=2, encoder_layers=1, decoder_layers=layers, tie="src-tgt-softmax")
    torch.manual_seed(layers)
    model = Transformer(config, 40, 40, joint=True, pad_id=0).double().eval()
    ((_, batch),) = forced_batches([([5, 6, 7], [8, 9, 10, 11])], 100, model.device)
    with torch.no_grad():
        every = cross_attention(model, batch)
        shares = mean_attention(model, batch)
    assert batch.tgt_in_BT.tolist() == [[2, 8, 9, 10]], "position t is fed the subword before the one it predicts"
    expected: Tensor = sum(every[i].mean(1) for i in read) / len(read)  # type: ignore[assignment]  # of tensors
    np.testing.assert_allclose(shares, expected.numpy(), atol=1e-12)


def test_the_averaged_attention_of_several_models_does_not_depend_on_the_batch() -> None:
    models = [loaded(VARIANTS[name]).model for name in ("post-norm, one matrix", "pre-norm, tgt-softmax")]
    pairs = [([5 + i % 7] * (1 + i % 5), [6 + i % 11] * (1 + i % 4)) for i in range(40)]
    words = [(list(range(len(s))), list(range(len(t)))) for s, t in pairs]
    with torch.no_grad():
        together = align(models, [0.75, 0.25], pairs, words, 1000)
        assert together == [align(models, [0.75, 0.25], [p], [w], 1)[0] for p, w in zip(pairs, words, strict=True)]
        assert align(models, [1.0, 0.0], pairs, words, 50) == align(models[:1], [1.0], pairs, words, 50)
        ((_, batch),) = forced_batches(pairs[3:4], 50, models[0].device)
        mixed = 0.75 * mean_attention(models[0], batch) + 0.25 * mean_attention(models[1], batch)
    assert links(mixed[0], *words[3]) == together[3]


# The attention.


@pytest.mark.parametrize("config", some(networks.VARIANTS, 5))
def test_the_attention_returned_is_the_one_that_the_model_uses(
    config: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(config)
    src, keep = padded(sequences(5, 9, 3))
    tgt = torch.randint(4, V, (3, 7))
    batch = Batch(src, keep, tgt, torch.arange(21), tgt.flatten(), 17)
    mixed: list[Tensor] = []
    whole = CrossAttention.forward

    def spied(self: CrossAttention, *args: Any) -> Tensor:
        mixed.append(whole(self, *args))
        return mixed[-1]

    with torch.no_grad():
        memory = model.encode(src, keep)
        monkeypatch.setattr(CrossAttention, "forward", spied)
        model(src, keep, tgt)
        monkeypatch.undo()
        every = cross_attention(model, batch)
        torch.testing.assert_close(cross_attention(model, batch, 2), every[2:])
        for layer, p_BHTS in enumerate(every):
            assert p_BHTS.shape == (3, config.heads, 7, src.shape[1])
            torch.testing.assert_close(p_BHTS.sum(-1), torch.ones(3, config.heads, 7, dtype=torch.float64))
            assert (p_BHTS.transpose(1, 3)[~keep] == 0).all()
            cross: Any = model.decoder.get_submodule(f"layers.{layer}.cross_attention")
            _, values_BHSd = cross.keys_values(memory)
            torch.testing.assert_close(cross.out(merge_heads(p_BHTS @ values_BHSd)), mixed[layer])
    assert len(mixed) == len(every) == config.decoder_layers


@pytest.mark.parametrize("config", SEQUENCES)
def test_the_attention_of_a_decoder_only_model_is_the_one_that_it_uses(
    config: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cross_attention` returns the part from target positions to the source."""
    model = make(config)
    src, keep = padded(sequences(5, 9, 3))
    tgt = torch.randint(4, V, (3, 7))
    batch = Batch(src, keep, tgt, torch.arange(21), tgt.flatten(), 17)
    calls: list[tuple[Any, Tensor, Tensor | None, Tensor, Tensor]] = []
    whole = SelfAttention.forward

    def spied(self: SelfAttention, x: Tensor, turn: Tensor | None, mask: Tensor, *rest: Any) -> Tensor:
        calls.append((self, x, turn, mask, whole(self, x, turn, mask, *rest)))
        return calls[-1][-1]

    with torch.no_grad():
        monkeypatch.setattr(SelfAttention, "forward", spied)
        model(src, keep, tgt)
        monkeypatch.undo()
        every = cross_attention(model, batch)
        torch.testing.assert_close(cross_attention(model, batch, 2), every[2:])
        S = src.shape[1]
        for (attention, x, turn, mask, mixed), shown in zip(calls, every, strict=True):
            q, k, _ = attention.queries_keys_values(x, turn)
            scores_BHnn = (q @ k.transpose(2, 3) / 2).masked_fill(~mask, -torch.inf)
            p_BHnn = scores_BHnn.softmax(-1)
            torch.testing.assert_close(p_BHnn.sum(-1), torch.ones(3, config.heads, S + 7, dtype=torch.float64))
            values = x @ attention.qkv.weight[32:].T + attention.qkv.bias[32:]
            values_BHnd = values.view(3, -1, 4, 4).transpose(1, 2)
            torch.testing.assert_close(attention.out(merge_heads(p_BHnn @ values_BHnd)), mixed)
            torch.testing.assert_close(shown, p_BHnn[:, :, S:, :S])
            assert (shown.transpose(1, 3)[~keep] == 0).all()
            assert (shown[:, :, 1:].sum(-1) < 1).all()


# Subwords to words.


def test_the_words_of_a_line_are_split_at_its_spaces() -> None:
    vocab = vocabulary()
    for line in [
        "a dog",
        " the  dog ",
        "Łódź läuft\tpark",
        "x y",
        "park\u00a0dog",
        "it´s a dog",
        "a \u200b dog",
        "½ park",
    ]:
        ids = vocab.encode(line)
        numbers = words_of_line(line, ids, vocab)
        assert len(numbers) == len(ids)
        assert numbers == sorted(numbers)
        assert set(numbers) <= set(range(len(line.split())))
        for i, word in enumerate(line.split()):
            own = [id for id, number in zip(ids, numbers, strict=True) if number == i]
            if "´" not in line and word not in ("\u200b", "½"):
                assert vocab.decode(own) == word


def test_word_numbers_stay_in_range_when_normalisation_splits_words_elsewhere() -> None:
    vocab = learn(["a dog", "cat\u00a0runs"] * 5, size=None, kind="bpe", coverage=1.0, normalization="identity")
    line = "a cat\u00a0runs"
    numbers = words_of_line(line, vocab.encode(line), vocab)
    assert vocab.encode(line) != [id for word in line.split() for id in vocab.encode(word)]
    assert numbers[0] == 0
    assert max(numbers) <= 2


def ids_of(pieces: str, vocab: Vocabulary) -> list[int]:
    known = {vocab.piece(i): i for i in range(len(vocab))}
    return [known[piece] for piece in pieces.split()]


@pytest.mark.parametrize(
    ("pieces", "text", "expected"),
    [
        ("▁a ▁dog", "a dog", [0, 1]),
        ("a ▁dog", "a dog", [0, 1]),  # the first subword need not begin with a space
        ("▁ a ▁dog", "a dog", [0, 0, 1]),  # a lone space belongs to the word after it
        ("▁a ▁ ▁ ▁dog", "a dog", [0, 1, 1, 1]),
        ("▁a ▁", "a", [0, 0]),
        ("▁a <0x20> a", "a a", [0, 1, 1]),
        ("▁a <0x0A> a", "a a", [0, 1, 1]),
        ("▁a <0xC3> <0xA4> ▁dog", "aä dog", [0, 0, 0, 1]),
        ("<s> ▁a <unk> ▁dog", "a dog", [0, 0, 0, 1]),
        ("▁ <unk>", "", [0, 0]),
        ("", "", []),
    ],
)
def test_words_of_ids_are_the_words_of_the_decoded_text(pieces: str, text: str, expected: list[int]) -> None:
    vocab = vocabulary()
    ids = ids_of(pieces, vocab)
    assert vocab.decode(ids).split() == text.split()
    assert words_of_ids(ids, vocab) == expected


def test_each_piece_of_a_vocabulary_of_words_is_a_word() -> None:
    vocab = word_vocabulary()
    ids = vocab.encode("ein dog in Łódź")
    assert words_of_ids(ids, vocab) == words_of_line("ein dog in Łódź", ids, vocab) == [0, 1, 2, 3]


# Through the translator.


def test_links_refer_to_words_of_the_line_and_its_translation() -> None:
    made = translator()
    plain = list(made.nbest([*LINES, "", " "], 3))
    translations = list(made.nbest([*LINES, "", " "], 3, alignments=True))
    vocab, model = vocabulary(), loaded().model
    met = 0
    for line, a, b in zip([*LINES, "", " "], plain, translations, strict=True):
        for s, t in zip(a, b, strict=True):
            assert (s.text, s.tokens, s.alignment) == (t.text, t.tokens, None)
            assert t.alignment is not None
            assert all(i < len(line.split()) and j < len(t.text.split()) for i, j in t.alignment)
            if t.text.strip():
                assert {j for _, j in t.alignment} == set(range(len(t.text.split()))), "each target word is linked"
                tokens = [token for token in t.tokens if token != EOS_ID]
                words = (words_of_line(line, vocab.encode(line), vocab), words_of_ids(tokens, vocab))
                (alone,) = align([model], [1.0], [(vocab.encode(line), tokens)], [words], 1)
                assert tuple(sorted(alone)) == t.alignment
                met += 1
            else:
                assert t.alignment == ()
    assert met > 20


def test_links_of_a_cut_line_stay_within_its_pieces() -> None:
    line = " ".join(["dog", "cat", "runs", "in"] * 4)
    whole = vocabulary().encode(line)
    cut = Translator(TorchEngine([loaded()]), translator(max_source=len(whole) // 2, max_length=6).search)
    (t,) = next(iter(cut.nbest([line], alignments=True)))
    texts = [
        part.text for half in (line.split()[:8], line.split()[8:]) for part in next(iter(cut.nbest([" ".join(half)])))
    ]
    assert t.text == " ".join(texts)
    border = len(texts[0].split())
    assert border > 0
    assert t.alignment
    assert len({i < 8 for i, _ in t.alignment}) == 2
    assert all((i < 8) == (j < border) for i, j in t.alignment)


@pytest.mark.parametrize("second", ["pre-norm, tgt-softmax", "decoder-only, prefix", "SSRU, pre-norm"])
def test_samples_and_ensembles_have_alignments(second: str) -> None:
    models = [loaded(SMALL, 1), loaded(VARIANTS[second], 2)]
    made = Translator(TorchEngine(models, weights=[1, 2]), SEARCH)
    for sampling in (None, Sampling(seed=1)):
        for (t,) in made.nbest(LINES[:8], 1, sampling, alignments=True):
            assert t.alignment or not t.text
    (first, *_, last) = next(iter(made.nbest(["dog runs"], 7, Sampling(seed=1), alignments=True)))
    assert first.alignment is not None
    assert last.alignment is not None


@pytest.mark.parametrize("name", ["learned positions, untied", "decoder-only, causal, learned positions"])
def test_a_translation_as_long_as_the_position_table_has_an_alignment(name: str) -> None:
    config, vocab = VARIANTS[name], vocabulary()
    model = LoadedModel(network(config, len(vocab), eos=-50.0), vocab, vocab, SEARCH, {})
    made = Translator(TorchEngine([model]), translator(max_length=0).search)
    (t,) = next(iter(made.nbest([" ".join(["dog"] * 20)], alignments=True)))
    assert len(t.tokens) == config.max_length
    assert t.alignment


@pytest.mark.parametrize(("form", "before"), [("text", 0), ("scores", 1), ("tsv", 2)])
def test_links_are_written_before_the_text(form: Any, before: int) -> None:
    made, out = translator(), io.BytesIO()
    translate_stream(made, lines_of(["a dog", "", "cat"]), out, TranslateOptions(alignments=True, form=form))
    translations = [best[0] for best in made.nbest(["a dog", "", "cat"], alignments=True)]
    for line, t in zip(out.getvalue().decode().split("\n")[:-1], translations, strict=True):
        assert line.split("\t")[before:] == [pharaoh(t.alignment or ()), t.text]
    out = io.BytesIO()
    translate_stream(made, lines_of(["a dog", "", "cat"]), out, TranslateOptions(alignments=True, form="json"))
    objects = [json.loads(line) for line in out.getvalue().decode().split("\n")[:-1]]
    expected = [pharaoh(t.alignment or ()) for t in translations]
    assert [entry["translations"][0]["alignment"] for entry in objects] == expected
    assert UNK_ID not in translations[0].tokens

"""The lexical shortlist: the translations that a text shows, and a search restricted to a sentence's shortlist."""

import copy
import dataclasses
import re
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_runner import SENTENCE, Run
from compilers import needs_compiler
from drawn import each_with, seeded
from near_ties import Plain, equal_or_tied, plain
from networks import arrays_of
from safetensors.torch import load_file
from torch import Tensor
from translators import SEARCH, VARIANTS, same, sentences, vocabulary, window

from vtrans.config import ModelConfig
from vtrans.data.aligner import learn_shortlist
from vtrans.data.store import DataFolder, TokenStore
from vtrans.engines.candidates import Candidates
from vtrans.engines.compiled.decoder import compiled_decoder
from vtrans.engines.compiled_engine import CompiledEngine
from vtrans.engines.torch_engine import TorchEngine
from vtrans.model.checkpoint import LoadedModel, add_shortlist, load_model
from vtrans.model.network import Transformer
from vtrans.search.options import Sampling
from vtrans.storage.model_file import Shortlist, with_network
from vtrans.storage.run_folder import RunFolder
from vtrans.storage.tensors import open_tensors, write_tensors
from vtrans.system.errors import FileError
from vtrans.text.vocabulary import EOS_ID, PAD_ID
from vtrans.training.average import average
from vtrans.translate.loading import load
from vtrans.translate.translation import TranslateOptions, Translation
from vtrans.translate.translator import Translator


def store_of(pairs: list[tuple[list[int], list[int]]]) -> TokenStore:
    columns = {}
    for side, name in enumerate(("src", "tgt")):
        ids = [pair[side] for pair in pairs]
        columns[f"{name}_ids"] = np.array([i for sentence in ids for i in sentence], dtype=np.uint16)
        columns[f"{name}_offsets"] = np.cumsum([0, *map(len, ids)])
    return TokenStore(Path("none"), columns)


def test_a_shortlist_has_the_translations_that_the_text_shows() -> None:
    """Each subword has one translation. The tag 4 and the frequent subword 50 are in every pair."""
    numbers, told = seeded(1), list[tuple[int, float]]()
    sources = [numbers.choices(range(5, 25), k=numbers.randrange(2, 7)) for _ in range(300)]
    pairs = [([4, *src], [*numbers.sample([s + 25 for s in src], len(src)), 50]) for src in sources]
    learned = learn_shortlist(store_of(pairs), 25, 51, 2, 1, lambda *done: told.append(done), tags=[4])
    assert learned.frequent.tolist() == [50]
    assert learned.translations[5:, 0].tolist() == list(range(30, 50))
    assert set(learned.translations[:5].flatten().tolist()) == {EOS_ID}
    assert told[-1] == (7 * sum(len(src) * len(tgt) for src, tgt in pairs), 1.0)
    assert told == sorted(told)


# Decoding.

UNTIED = {
    "pre-norm, untied": dataclasses.replace(VARIANTS["pre-norm, tgt-softmax"], tie="none"),
    "learned positions, untied": dataclasses.replace(VARIANTS["learned positions, untied"], norm="pre"),
    "decoder-only, untied": dataclasses.replace(VARIANTS["decoder-only, prefix"], tie="none"),
}


def network(config: ModelConfig, vocab: int, seed: int) -> Transformer:
    """Returns a model in float64 with varied translations that end: its output is biased towards EOS."""
    torch.manual_seed(seed)
    model = Transformer(config, vocab, vocab, joint=True, pad_id=PAD_ID).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p), alpha=0.2)
        model.projection.weight.mul_(2)
        bias = model.decoder.final_norm.bias
        assert isinstance(bias, Tensor)
        bias.copy_(torch.nn.functional.normalize(bias, dim=0) * 1.5)
        model.projection.weight[EOS_ID].add_(bias, alpha=0.6)
    return model


def shortlist(seed: int, k: int = 3, frequent: int = 6) -> Shortlist:
    V, numbers = len(vocabulary()), seeded(seed)
    words = [i for i in range(4, V) if not vocabulary().piece(i).startswith("<0x")]
    table = [numbers.choices(words, k=k) for _ in range(V)]
    return Shortlist(np.array(table, dtype=np.int32), np.array(numbers.sample(words, frequent), dtype=np.int32))


def loaded(name: str, seed: int = 1, shortlist: Shortlist | None = None) -> LoadedModel:
    vocab = vocabulary()
    return LoadedModel(network(UNTIED[name], len(vocab), seed), vocab, vocab, SEARCH, {}, shortlist)


def made(*models: LoadedModel, **search: Any) -> Translator:
    return Translator(TorchEngine(models, shortlist=True), dataclasses.replace(SEARCH, **search))


LINES = [line for line in sentences(20) if line]
PREFIXES = [("", "Łódź", "park 5€ ", "läuft ")[i % 4] for i in range(len(LINES))]


@pytest.mark.parametrize(
    ("how", "name"), each_with(["search", "sampling", "constraints", "ensemble", "narrow blocks"], list(UNTIED))
)
def test_a_translation_with_a_shortlist_does_not_depend_on_its_batch(
    monkeypatch: pytest.MonkeyPatch, name: str, how: str
) -> None:
    if how == "narrow blocks":  # so that there are several blocks in a step
        monkeypatch.setattr("vtrans.engines.incremental.ROWS_CPU", 8)
    models = [loaded(name, seed, shortlist(seed)) for seed in ((1, 2) if how == "ensemble" else (1,))]
    sampling = Sampling(seed=3) if how == "sampling" else None
    rules: dict[str, Any] = {"no_repeat_ngram": 2, "repetition_penalty": 1.3, "min_length": 2}
    search = rules if how == "constraints" else {}
    prefixes = PREFIXES if how == "constraints" else None
    # A sample is seeded by the number of its line, so all lines are translated in one call.
    alone = list(made(*models, batch_tokens=1, **search).nbest(LINES, 2, sampling, prefixes=prefixes))
    assert len({best[0].text for best in alone}) > 2
    for batch_tokens in (20, 5000):
        translator = made(*models, batch_tokens=batch_tokens, **search)
        assert same(list(translator.nbest(LINES, 2, sampling, prefixes=prefixes)), alone)
    if how == "search":
        order = seeded(1).sample(range(len(LINES)), len(LINES))
        assert same(list(made(*models).nbest([LINES[i] for i in order], 2)), [alone[i] for i in order])


def narrowed(model: LoadedModel) -> LoadedModel:
    """Returns a model in float32, as the compiled engine needs it."""
    return dataclasses.replace(model, model=copy.deepcopy(model.model).float())


@needs_compiler
@pytest.mark.parametrize(
    ("how", "name"),
    each_with(["search", "greedy", "sampling", "constraints", "ensemble", "short lists"], list(UNTIED)),
)
def test_the_compiled_engine_translates_like_torch_in_any_batch(name: str, how: str) -> None:
    size = {"k": 1, "frequent": 1} if how == "short lists" else {}
    models = [narrowed(loaded(name, seed, shortlist(seed, **size))) for seed in ((1, 2) if how == "ensemble" else (1,))]
    library, sampling = compiled_decoder(None), Sampling(seed=3) if how == "sampling" else None
    rules: dict[str, Any] = {"no_repeat_ngram": 2, "repetition_penalty": 1.3, "min_length": 2}
    search = rules if how == "constraints" else {"beam": {"greedy": 1, "short lists": 12}.get(how, 3)}
    options = TranslateOptions(1 if how == "greedy" else 2, sampling)
    prefixes = PREFIXES if how == "constraints" else [""] * len(LINES)

    def translated(models: list[LoadedModel], batch: int, *, compiled: bool = False) -> list[list[Translation]]:
        settings = dataclasses.replace(SEARCH, batch_tokens=batch, **search)
        arrays = [with_network(model, arrays_of(model.model)) for model in models]
        in_code = CompiledEngine(arrays, library, shortlist=True) if compiled else None
        engine = in_code or TorchEngine(models, shortlist=True)
        return Translator(engine, settings).translate_window(window(LINES, prefixes=prefixes), options)

    def again(exact: list[LoadedModel], line: int) -> Plain:
        return plain(translated(exact, 5000)[line])

    in_torch, *compiled = translated(models, 50), *(translated(models, n, compiled=True) for n in (1, 50, 5000))
    for other in compiled[1:]:
        assert [plain(best) for best in other] == [plain(best) for best in compiled[0]]
    ours, theirs = ([plain(best) for best in each] for each in (compiled[0], in_torch))
    most = max(abs(t.logprob) for best in in_torch for t in best if t.tokens)
    equal = equal_or_tied(models, again, range(len(LINES)), ours, theirs, most)
    for a, b in compress(zip(compiled[0], in_torch, strict=True), equal):
        assert [t.logprob for t in a] == pytest.approx([t.logprob for t in b], abs=1e-4)


def test_a_list_holds_frequent_subwords_translations_and_copies() -> None:
    table = Shortlist(np.array([[9, 8]] * 4 + [[6, 7], [7, 3], [0, 5]], np.int32), np.array([2, 0], np.int32))
    joint, apart = Candidates(table, 10, joint=True), Candidates(table, 10, joint=False)

    def lists(candidates: Candidates, sources: list[list[int]], forced: list[tuple[int, ...]]) -> list[list[int]]:
        common, more = candidates.common_V.nonzero()[0].tolist(), candidates.more(sources, forced).tolist()
        return [sorted([*common, *(token for row, token in more if row == i)]) for i in range(len(sources))]

    sources = [[4, EOS_ID], [6, 5, EOS_ID]]
    assert lists(joint, sources, [(), ()]) == [[2, 3, 4, 6, 7, 8, 9], [2, 3, 5, 6, 7, 8, 9]]
    assert lists(apart, sources, [(1,), ()]) == [[1, 2, 3, 6, 7, 8, 9], [2, 3, 5, 7, 8, 9]]


def test_a_shortlist_is_added_replaced_dropped_by_averaging_and_checked_on_loading(
    tmp_path: Path, run_copy: RunFolder, tiny_data: DataFolder
) -> None:
    plain, listed = run_copy.last, tmp_path / "listed.safetensors"
    V = len(tiny_data.src_vocab)
    add_shortlist(plain, learn_shortlist(tiny_data.train, V, V, 4, 9), listed)
    before, after = load_file(plain), load_file(listed)
    extra = {"shortlist.translations", "shortlist.frequent"}
    assert set(after) == set(before) | extra
    assert all(torch.equal(after[name], before[name]) for name in before)
    with open_tensors(plain, "model") as (_, a), open_tensors(listed, "model") as (_, b):
        assert a == b
    once = listed.read_bytes()
    add_shortlist(listed, learn_shortlist(tiny_data.train, V, V, 4, 9), listed)
    assert listed.read_bytes() == once
    average([listed, run_copy.best], tmp_path / "mean.safetensors")
    assert not extra & set(load_file(tmp_path / "mean.safetensors"))
    for name, value in (
        ("shortlist.translations", after["shortlist.translations"][1:].clone()),
        ("shortlist.translations", None),
        ("shortlist.frequent", None),
        ("shortlist.frequent", torch.tensor([V], dtype=torch.int32)),
        ("shortlist.frequent", torch.tensor([-1], dtype=torch.int32)),
        ("shortlist.frequent", torch.tensor([1.0])),
    ):
        kept = {key: t for key, t in after.items() if key != name} | ({} if value is None else {name: value})
        write_tensors(tmp_path / "bad.safetensors", kept, b)
        with pytest.raises(FileError, match=r"bad\.safetensors .*shortlist"):
            load_model(tmp_path / "bad.safetensors")


def test_the_command_adds_a_shortlist_that_translate_uses(
    tmp_path: Path, run_copy: RunFolder, tiny_data: DataFolder, run_cli: Run
) -> None:
    lacking = run_cli("translate", "--model", run_copy.path, "--shortlist", stdin=SENTENCE)
    assert (lacking.code, lacking.out) == (2, b"")
    assert "--shortlist needs a model with a shortlist" in lacking.err
    assert "`vtrans shortlist`" in lacking.err
    average([run_copy.step_file(step) for step in run_copy.steps()], run_copy.averaged, max(run_copy.steps()))
    done = run_cli("shortlist", run_copy.path, "--data", tiny_data.path, "--translations", "2", "--frequent", "20")
    assert (done.code, done.out) == (0, b""), done.err
    file = run_copy.choose_model()[0]
    assert re.search(r"\b2 .*\b20 ", done.err)
    assert load_model(file).shortlist is not None
    found = run_cli("translate", "--model", run_copy.path, "--shortlist", stdin=SENTENCE)
    assert found.code == 0, found.err
    assert found.out.decode() == next(load(run_copy.path, shortlist=True).translate([SENTENCE.decode()])) + "\n"
    out = tmp_path / "all.safetensors"
    run_cli("shortlist", file, "--data", tiny_data.path, "--frequent", "100000", "--out", out)
    plain, listed = (
        [line.split("\t") for line in done.out.decode().removesuffix("\n").split("\n")]
        for done in (
            run_cli("translate", "--model", out, "--scores", *flag, stdin=SENTENCE * 3)
            for flag in ((), ("--shortlist",))
        )
    )
    assert [text for _, text in listed] == [text for _, text in plain]
    # The products have other shapes, so the last bits of float32 may differ.
    assert [float(score) for score, _ in listed] == pytest.approx([float(score) for score, _ in plain], abs=1e-4)


def test_a_checkpoint_gets_no_shortlist(
    tmp_path: Path, run_copy: RunFolder, tiny_data: DataFolder, run_cli: Run
) -> None:
    """Training replaces the files `best` and `last`, which would lose the shortlist."""
    before = {file: file.read_bytes() for file in run_copy.path.glob("*.safetensors")}
    for model, out in (
        (run_copy.path, None),  # which stands for its best checkpoint
        (run_copy.best, None),
        (run_copy.step_file(30), None),
        (run_copy.path, run_copy.last),
        (run_copy.path, run_copy.step_file(7)),
    ):
        done = run_cli("shortlist", model, "--data", tiny_data.path, *(["--out", out] if out else []))
        assert done.code == 2
        named = out or (run_copy.best if model == run_copy.path else model)
        assert all(word in done.err for word in (str(named), "vtrans average", "--out")), done.err
    assert {file: file.read_bytes() for file in run_copy.path.glob("*.safetensors")} == before
    copied, new = tmp_path / "copy" / "best.safetensors", tmp_path / "new.safetensors"
    copied.parent.mkdir()
    copied.write_bytes(run_copy.best.read_bytes())
    assert run_cli("shortlist", copied, "--data", tiny_data.path).code == 0
    assert run_cli("shortlist", run_copy.path, "--data", tiny_data.path, "--out", new).code == 0
    assert load_model(copied).shortlist is not None
    assert load_model(new).shortlist is not None

"""Exports to Bergamot: the arithmetic in 8 bits by its definition, the files, what is refused, and the page."""

import importlib.util
import io
import itertools
import json
import math
import os
import re
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_runner import Run
from drawn import seed_of, seeded_tensors, some
from exports import LINES, random_model
from torch import Tensor

from vtrans.apps.interop.bergamot import engine, exporter
from vtrans.apps.interop.bergamot.engine import Matrix
from vtrans.apps.interop.formats import export_model
from vtrans.apps.interop.marian.importer import CONFIG, read
from vtrans.apps.interop.weights import rows_there
from vtrans.config import SearchConfig
from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import LoadedModel, save_model
from vtrans.storage.model_file import Shortlist
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.text.languages import Languages
from vtrans.text.vocabulary import EOS_ID

QUIET = Console(quiet=True)
NPM = os.environ.get("BERGAMOT_TRANSLATOR")  # a folder of the engine's npm package
NO_ENGINE = (
    "the engine and a browser are not installed: npm pack @browsermt/bergamot-translator (unpack it, and set "
    "BERGAMOT_TRANSLATOR to its folder) and apt-get install nodejs chromium chromium-driver"
)

MODEL: dict[str, Any] = {"d_model": 64, "d_ff": 64, "norm_eps": 1e-6, "positions": "marian", "autoregression": "ssru"}
VARIANTS: dict[str, dict[str, Any]] = {
    "SSRU": {},
    "self-attention": {"autoregression": "self-attention", "activation": "swish"},
    "separate embeddings, a bias": {"tie": "tgt-softmax", "projection_bias": True},
    "shared layers": {"share_layers": "all", "decoder_layers": 2},
}


def model(data: DataFolder, *, shortlist: bool = False, **changes: Any) -> LoadedModel:
    loaded = random_model(data, SearchConfig(beam=1, max_ratio=2.0, max_source=100), **MODEL | changes)
    loaded.model.tgt_embedding.weight.data[2] = 0.0  # the start
    if not shortlist:
        return loaded
    generator = seeded_tensors(1)
    size = len(data.tgt_vocab)
    translations = torch.randint(EOS_ID, size, (len(data.src_vocab), 5), dtype=torch.int32, generator=generator)
    made = Shortlist(translations.numpy(), np.arange(260, 290, dtype=np.int32))
    return replace(loaded, shortlist=made)


def written(loaded: LoadedModel, folder: Path) -> LoadedModel:
    folder.mkdir()
    return exporter.write(loaded, folder, QUIET, LINES)[0]


def the_model(folder: Path) -> Path:
    return next(folder.glob("model*.bin"))


def read_model(path: Path) -> dict[str, Tensor | Matrix]:
    """Returns the tensors of a model file, as `loadItems` of Marian reads it."""
    data = path.read_bytes()
    version, count = struct.unpack_from("<2Q", data)
    assert version == 1
    headers = [struct.unpack_from("<4Q", data, 16 + 32 * i) for i in range(count)]
    place = 16 + 32 * count
    names, shapes = [], []
    for length, *_ in headers:
        names.append(data[place : place + length].decode().removesuffix("\0"))
        place += length
    for _, _, rank, _ in headers:
        shapes.append(struct.unpack_from(f"<{rank}i", data, place))
        place += 4 * rank
    place += 8 + struct.unpack_from("<Q", data, place)[0]
    tensors: dict[str, Tensor | Matrix] = {}
    for name, shape, (_, kind, _, size) in zip(names, shapes, headers, strict=True):
        assert (place % 256, size % 256) == (0, 0)
        dtype = {0x0404: torch.float32, 0x0101: torch.int8, 0x4101: torch.int8}[kind]
        values = torch.frombuffer(bytearray(data[place : place + size]), dtype=dtype)[: math.prod(shape)]
        tensors[name] = values.view(shape)
        if kind == 0x4101:
            integers = values.view(shape if "Wemb" in name else shape[::-1])
            tensors[name] = Matrix(integers, struct.unpack_from("<f", data, place + len(values))[0])
        place += size
    assert place == len(data)
    return tensors


# Arithmetic.


@pytest.mark.parametrize("outliers", [0, 40])
def test_no_sum_of_two_products_exceeds_16_bits(outliers: int) -> None:
    torch.manual_seed(seed_of(0))
    weight = torch.randn(240, 64)
    weight.flatten()[:outliers] += 3.0  # neighbours
    matrix = exporter.matrix(weight)
    pairs = matrix.integers.int().view(240, 32, 2)
    assert 254 * pairs.sum(2).abs().max() < 2**15  # inputs are from 0 to 254
    assert (matrix.values - weight).square().mean() < 2e-2 * weight.square().mean()


@pytest.mark.parametrize("name", some(VARIANTS, 2))
def test_the_reference_is_near_the_model_and_rounds(
    tmp_path: Path, tiny_data: DataFolder, tiny_data_separate: DataFolder, name: str
) -> None:
    loaded = model(tiny_data_separate if "tie" in VARIANTS[name] else tiny_data, **VARIANTS[name])
    reference = written(loaded, tmp_path / "out")
    rows = []
    for each in (loaded, reference):
        src = torch.tensor([[*each.src_vocab.encode(LINES[0]), 3]])
        with torch.inference_mode():
            rows.append(each.model(src, torch.ones_like(src, dtype=torch.bool), torch.tensor([[2, 9, 7]]))[..., 1:])
    assert 0 < (rows[0] - rows[1]).norm() < 0.2 * rows[0].norm()


def test_an_alpha_is_the_best_of_all_clips() -> None:
    torch.manual_seed(seed_of(0))
    values = torch.cat((torch.randn(10_000), torch.tensor([50.0])))
    alpha = exporter._alpha(values)
    errors = [float((exporter.rounded(values, a) - values).square().mean()) for a in (alpha, 127 / 50.0, 127 / 10)]
    assert min(errors) == errors[0]


# Files.


def test_a_shortlist_has_the_lists_of_the_model(tmp_path: Path) -> None:
    shortlist = Shortlist(np.array([[5, 6], [6, 7], [3, 3], [3, 3]], np.int32), np.array([4, 5], np.int32))
    engine.write_shortlist(tmp_path / "lex.bin", shortlist)
    data = (tmp_path / "lex.bin").read_bytes()
    magic, total, first, longest, rows, count = struct.unpack_from("<6Q", data)
    assert (magic, total) == (0xF11A48D5013417F5, engine.checksum(data[16:]))
    assert (first, longest, len(data)) == (0, 3, 48 + 8 * rows + 4 * count)
    offsets = struct.unpack_from(f"<{rows}Q", data, 48)
    flat = struct.unpack_from(f"<{count}I", data, 48 + 8 * rows)
    lists = [list(flat[a:b]) for a, b in itertools.pairwise(offsets)]
    assert lists == [[6], [6, 7], [], [3, 4, 5]]  # EOS has the frequent ones, and ends each source


def as_npz(file: Path, sizes: list[int]) -> None:
    """Writes a model.npz of Marian beside a model of Bergamot, without the unused rows of its tables."""
    arrays = {}
    for name, value in read_model(file).items():
        array = value.values if isinstance(value, Matrix) else value
        if "Wemb" in name:
            array = array[: sizes[name.startswith("decoder")]]
        elif isinstance(value, Matrix) or name == "decoder_ff_logit_out_b":
            array = array.T if isinstance(value, Matrix) else array[:, : sizes[1]]
        arrays[name] = array.contiguous().numpy()
    text = arrays[CONFIG].tobytes()
    arrays[CONFIG] = np.frombuffer(re.sub(rb'"dim-vocabs": \[.*?\]', b'"dim-vocabs": %a' % sizes, text), np.int8)
    kept = {name: array for name, array in arrays.items() if not name.endswith("_QuantMultA")}
    np.savez(file.with_name("model.npz"), **kept)  # type: ignore[arg-type]
    vocabs = ", ".join(sorted(spm.name for spm in file.parent.glob("*.spm")))
    file.with_name("decoder.yml").write_text(f"relative-paths: true\nvocabs: [{vocabs}]\n")


@pytest.mark.parametrize("name", some(VARIANTS, 2))
def test_an_export_is_a_network_of_marian(
    tmp_path: Path, tiny_data: DataFolder, tiny_data_separate: DataFolder, name: str
) -> None:
    """The import from Marian gives the exported weights, but for their rounding."""
    loaded = model(tiny_data_separate if "tie" in VARIANTS[name] else tiny_data, **VARIANTS[name])
    written(loaded, tmp_path / "out")
    sizes = [len(loaded.src_vocab), len(loaded.tgt_vocab)]
    as_npz(the_model(tmp_path / "out"), sizes)
    again = read(tmp_path / "out").model
    weights = again.model.state_dict()
    for key, weight in loaded.model.state_dict().items():
        theirs = weights[key]
        if re.match("(src|tgt)_embedding|projection", key):
            order = again.src_vocab.order if key.startswith("src") else again.tgt_vocab.order
            theirs, weight = rows_there(theirs, order, len(weight))[1:], weight[1:]  # without padding
        if "positions" not in key:
            assert (weight - theirs).norm() < 0.02 * weight.norm(), key


# Refusals.


def test_other_positions_and_a_trained_start_are_refused(tmp_path: Path, tiny_data: DataFolder) -> None:
    stored = model(tiny_data, positions="stored", max_positions=64)
    trained = model(tiny_data)
    trained.model.tgt_embedding.weight.data[2] = 0.1
    for loaded in (stored, trained):
        with pytest.raises(InputError, match=r'model\.positions="marian"'):
            written(loaded, tmp_path / str(id(loaded)))


def test_blank_samples_and_an_engine_for_another_program_are_refused(
    tmp_path: Path, tiny_data: DataFolder, run_cli: Run
) -> None:
    file = tmp_path / "model.safetensors"
    save_model(file, model(tiny_data))
    (tmp_path / "blank").write_text("\n \n")
    command = ["export", file, "--out", tmp_path / "out", "--to"]
    for options in (["bergamot", "--sample-file", tmp_path / "blank"], ["huggingface", "--engine", tmp_path]):
        done = run_cli(*command, *options)
        assert (done.code, done.err.count("error:")) == (2, 1)
    assert not (tmp_path / "out").exists()


def test_training_for_a_program_refuses_what_it_lacks(tiny_data: DataFolder, tmp_path: Path, run_cli: Run) -> None:
    command = ["train", "--data", str(tiny_data.path), "--out", str(tmp_path / "run"), "--for"]
    done = run_cli(*command, "bergamot", "--recipe", "small")
    assert (done.code, "model.norm" in done.err) == (2, True)
    assert not (tmp_path / "run").exists()
    assert run_cli(*command, "firefox").code == 2


# The page.


def npm(folder: Path) -> Path:
    for name in ("package.json", "LICENSE", *engine.WORKER):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"the content of {name}")
    return folder


def test_the_page_has_the_engine_with_its_licence_and_names_the_files(tmp_path: Path, tiny_data: DataFolder) -> None:
    loaded = replace(model(tiny_data, shortlist=True), languages=[Languages("en", "de")])
    (tmp_path / "out").mkdir()
    exporter.write_page(loaded, tmp_path / "out", QUIET, LINES, npm(tmp_path / "npm"))
    for name in engine.WORKER:
        assert (tmp_path / "out" / name).read_text() == f"the content of {name}"
    assert (tmp_path / "out" / "worker" / "LICENSE").read_text() == "the content of LICENSE"
    assert "Mozilla Public License" in (tmp_path / "out" / "worker" / "NOTICE.txt").read_text()
    page = (tmp_path / "out" / "index.html").read_text()
    listed = re.search(r'type="application/json">(\{.*\})</script>', page)
    assert listed
    names = json.loads(listed[1])
    named = [names["model"], names["shortlist"], *names["vocabs"]]
    assert all((tmp_path / "out" / name).is_file() for name in named)
    assert not re.findall(r"https?://", page)
    assert page.count("English to German") == 2
    # A strict policy holds for the page: all its scripts and styles are files beside it.
    assert "{{" not in page
    assert "unsafe-inline" not in page
    assert "unsafe-eval" not in page.replace("wasm-unsafe-eval", "")
    assert not re.search(r"<style|style=|\son\w+=|<script>", page)
    for name in re.findall(r'(?:src|href)="([\w.]+)"', page):
        assert (tmp_path / "out" / name).is_file()


# The engine.


def test_without_the_engine_nothing_is_compared(tmp_path: Path, tiny_data: DataFolder) -> None:
    stream = io.StringIO()
    assert export_model(model(tiny_data), "bergamot", tmp_path / "out", Console(stream=stream), LINES) is None
    assert "not compared" in stream.getvalue()
    assert the_model(tmp_path / "out").is_file()


@pytest.mark.skipif(not (NPM and shutil.which("node")), reason=NO_ENGINE)
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("shortlist", [False, True])
def test_the_engine_translates_as_the_reference(
    tmp_path: Path, tiny_data: DataFolder, tiny_data_separate: DataFolder, name: str, shortlist: bool
) -> None:
    data = tiny_data_separate if "tie" in VARIANTS[name] else tiny_data
    loaded = model(data, shortlist=shortlist, **VARIANTS[name])
    comparison = export_model(loaded, "bergamot", tmp_path / "out", QUIET, LINES, engine=Path(NPM or ""))
    assert comparison is not None
    assert comparison.translations is not None
    assert len(comparison.translations.missed) <= 0.1 * comparison.sentences


@pytest.mark.skipif(not (NPM and shutil.which("chromedriver")), reason=NO_ENGINE)
def test_the_page_translates_without_a_server(tmp_path: Path, tiny_data: DataFolder) -> None:
    pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install selenium")
    spec = importlib.util.spec_from_file_location("browser", Path(__file__).parents[2] / "bench" / "browser.py")
    assert spec
    assert spec.loader
    browser = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(browser)
    (tmp_path / "out").mkdir()
    loaded = replace(model(tiny_data, shortlist=True), languages=[Languages("en", "de")])
    _, load = exporter.write_page(loaded, tmp_path / "out", QUIET, LINES, Path(NPM or ""))
    with browser.opened(tmp_path / "out") as (driver, _):
        for line in LINES[:3]:
            assert browser.translated(driver, f"{line}\n\n")[0] == f"{load().texts([line])[0]}\n\n"
        # The model reads capitals as they are.
        capitals, part = load().texts(["THE SMALL HOUSE RUNS.", "The house"])
        assert browser.translated(driver, "THE SMALL HOUSE RUNS.")[0] == capitals
        # The same text twice, because the sentences of a batch share a shortlist.
        emoji = "\U0001f600 {} \u2764\ufe0f"
        assert browser.translated(driver, emoji.format("The house"))[0] == emoji.format(part)
        # Emoji inside a sentence do not cut it.
        for line, texts in (
            ("I like \U0001f355 a lot.", ["I like a lot."]),
            ("I like pizza \U0001f355, too.", ["I like pizza, too."]),
            ("Good! \U0001f355 Next one.", ["Good!", "Next one."]),
        ):
            assert driver.execute_script("return read(arguments[0]).texts", line) == texts
        words = driver.execute_script("return read(arguments[0]).written(['a b c d.'])", "I like \U0001f355 a lot.")
        assert words == "a b \U0001f355 c d."
        # The count of words goes with its text, and the translation is announced.
        driver.execute_script("text.value = ''; text.dispatchEvent(new InputEvent('input'))")
        browser.waited(driver, "return !status.textContent && !output.value")
        assert driver.find_element("id", "output").aria_role == "status"  # a live region
        # Without its server, the page loads again.
        driver.refresh()
        browser.waited(driver, "return document.body.dataset.state === 'ready' || error.textContent")
        assert browser.translated(driver, LINES[0])[0] == load().texts([LINES[0]])[0]
        assert [entry for entry in driver.get_log("browser") if "Content Security Policy" in entry["message"]] == []

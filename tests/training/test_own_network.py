"""A network of one's own, in a file that the recipe names: trained, resumed, averaged, translated with, and refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from cli_runner import Run, start
from conftest import EVERY_STEP, tiny_train
from drawn import seeded
from networks import SMALL, V, padded, sequences, step
from runs import BRIEF, heard, interrupted, same

import vtrans
from vtrans.data.store import DataFolder
from vtrans.engines.incremental import IncrementalDecoder
from vtrans.model.checkpoint import load_model
from vtrans.model.network import Transformer
from vtrans.storage.model_file import read_blueprint
from vtrans.storage.run_folder import RunFolder
from vtrans.system.errors import FileError, InputError
from vtrans.system.own_code import class_of
from vtrans.training.average import average

SETTINGS = (*EVERY_STEP, *BRIEF, "model.network=mine.py:AlibiTransformer")
# Attention with linear biases (Press et al. 2022). A cache has no positions, so the last value of each key is its own.
ALIBI = """
import torch
from torch.nn import functional as F

from vtrans.model.attention import SelfAttention
from vtrans.model.attention_products import dot_product_attention, merge_heads
from vtrans.model.layers import Sublayers
from vtrans.model.network import Transformer


class Alibi(SelfAttention):
    def forward(self, x_BTD, rotary_TD, mask=None, cache=None, recorder=None):
        q_BHTd, k_BHnd, v_BHnd = self.queries_keys_values(x_BTD, None)
        q_BHTd = F.pad(q_BHTd[..., :-1], (0, 1))
        if cache is None:
            at_n = torch.arange(x_BTD.shape[1], device=x_BTD.device)
            distance = at_n[:, None] - at_n
            keep = distance >= 0 if mask is None else mask
            bias = torch.zeros_like(keep, dtype=q_BHTd.dtype).masked_fill(~keep, -torch.inf)
        else:
            at_B1K1 = (cache.bias_B1Kn == 0).sum(-1, keepdim=True).to(k_BHnd)
            k_BHnd = torch.cat((k_BHnd[..., :-1], at_B1K1.expand_as(k_BHnd[..., :1])), -1)
            k_BHnd, v_BHnd, bias = cache.append(k_BHnd, v_BHnd)
            distance = at_B1K1 - k_BHnd[:, :1, None, :, -1]
        slope_H11 = 2.0 ** (-8 * torch.arange(1, self.heads + 1, device=bias.device)[:, None, None] / self.heads)
        dropout = self.dropout if self.training else 0.0
        bias = bias - slope_H11.to(bias) * distance.abs()
        return self.out(merge_heads(dot_product_attention(q_BHTd, k_BHnd, v_BHnd, bias, dropout)))


class AlibiSublayers(Sublayers):
    self_attention_class = Alibi


class AlibiTransformer(Transformer):
    sublayers = AlibiSublayers
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file, in the current folder."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.py"
    file.write_text(ALIBI)
    return file


def test_the_steps_of_a_search_equal_the_full_forward(mine: Path) -> None:
    """Rows change parents and reuse slots, so a key's slot is not its position."""
    config = vtrans.config.ModelConfig(**{**vars(SMALL), "network": "mine.py:AlibiTransformer"})
    torch.manual_seed(1)
    model = class_of(config, "network", Transformer)(config, V, V, joint=True, pad_id=0).double().eval()
    decoder, numbers, sources = IncrementalDecoder(model), seeded(3), sequences(6, 4)
    histories: list[list[list[int]]] = [[[] for _ in range(3)] for _ in sources]
    with torch.inference_mode():
        state = decoder.start(sources, 3)
        for _ in range(12):
            tokens = torch.tensor([[numbers.randrange(4, V) for _ in range(3)] for _ in sources])
            logprobs = step(decoder, state, tokens)
            for b, source in enumerate(sources):
                histories[b] = [[*row, token] for row, token in zip(histories[b], tokens[b].tolist(), strict=True)]
                full = model(*padded([source] * 3), torch.tensor(histories[b]))[:, -1].log_softmax(-1)
                torch.testing.assert_close(logprobs[b][:, 1:], full[:, 1:], rtol=0, atol=1e-10)
            parents = [[numbers.randrange(3) for _ in range(3)] for _ in sources]
            decoder.reorder(state, np.array(parents))
            histories = [[rows[k] for k in chosen] for rows, chosen in zip(histories, parents, strict=True)]


def test_a_run_with_an_own_network(tmp_path: Path, tiny_data: DataFolder, mine: Path, run_cli: Run) -> None:
    whole = tiny_train(tiny_data, tmp_path / "whole", *SETTINGS)
    interrupted(tiny_data, tmp_path / "run", 9, *SETTINGS)
    assert "bit-exactly" not in heard(tiny_data, tmp_path / "run")
    same(RunFolder(tmp_path / "run"), whole)
    blueprint = read_blueprint(whole.last)
    assert blueprint.model.config.network == "mine.py:AlibiTransformer"
    average([whole.step_file(14), whole.last], whole.averaged)
    moved = mine.rename(tmp_path / "moved.py")
    with pytest.raises(InputError, match=r"mine\.py:AlibiTransformer.*`code`"):
        vtrans.load(whole.averaged)
    with pytest.raises(InputError, match=r"`code` needs the torch engine"):
        vtrans.load(whole.averaged, code=moved, engine="compiled")
    translator = vtrans.load(whole.averaged, code=moved)
    assert translator.engine.name == "torch"
    (translation,) = translator.translate(["The big dog sees me."])
    source = tmp_path / "source.txt"
    source.write_text("The big dog sees me.\n")
    said_again = run_cli("translate", whole.averaged, "--code", moved, stdin=source.read_bytes())
    assert said_again.out.decode() == f"{translation}\n"
    assert run_cli("logprob", whole.averaged, source, source, "--code", moved).code == 0
    assert run_cli("attend", whole.averaged, "The big dog.", "--target", "Der Hund.", "--code", moved).code == 0
    assert run_cli("inspect", whole.averaged, "--verify").code == 0
    reported = run_cli("report", whole.path, "--out", tmp_path / "report.html")
    assert (reported.code, "AlibiTransformer" in (tmp_path / "report.html").read_text()) == (0, True)
    refused = run_cli("export", whole.averaged, "--out", tmp_path / "exported")
    assert (refused.code, "model.network" in refused.err) == (2, True)
    sides = ("--src", source, "--tgt", source)
    refused = run_cli("adapt", "--model", whole.averaged, *sides, "--out", tmp_path / "adapted")
    assert (refused.code, refused.err.rstrip().endswith("which only that file can compute.")) == (2, True)
    with pytest.raises(InputError, match=r"model\.network"):
        tiny_train(tiny_data, tmp_path / "next", init_from=whole.averaged)


def test_another_file_is_warned_of_or_refused(tmp_path: Path, tiny_data: DataFolder, mine: Path) -> None:
    run = tiny_train(tiny_data, tmp_path / "run", *SETTINGS, "train.max_steps=1")
    mine.write_text(f"{ALIBI}\n\n")
    with pytest.warns(UserWarning, match=r"mine\.py has changed"):
        load_model(run.last, code=mine)
    _, said = start("inspect", run.last, "--code", mine).communicate()
    assert said.decode() == f"warning: {mine} has changed since {run.last} was trained\n"
    mine.write_text(
        f"{ALIBI}\n    def __init__(self, *sizes, **more):\n        super().__init__(*sizes, **more)\n"
        "        self.more = torch.nn.Parameter(torch.zeros(1))\n"
    )
    with pytest.warns(UserWarning, match="not as it was"), pytest.raises(FileError, match="other weights"):
        load_model(run.last, code=mine)


def test_code_for_a_model_that_needs_none_is_refused(tiny_run: RunFolder, mine: Path) -> None:
    with pytest.raises(InputError, match=r"last\.safetensors needs no code; leave out `code`, got .*mine\.py"):
        vtrans.load(tiny_run.last, code=mine)

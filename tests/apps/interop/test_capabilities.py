"""The table of what each program can express: what it lists exists, and what it does not list is refused by name."""

import dataclasses
import json
import re
from typing import Any

import pytest

from vtrans.apps.interop.capabilities import MODEL, SEARCH, check_model, nearest_search
from vtrans.config import ModelConfig, SearchConfig
from vtrans.config.keys import check_value, keys_of, number
from vtrans.system.console import Console
from vtrans.system.errors import InputError

QUIET = Console(quiet=True)
BASES = dict.fromkeys(MODEL, ModelConfig(tie="none")) | {
    "Bergamot": ModelConfig(tie="tgt-softmax", norm_eps=1e-6, positions="marian")
}
# Values of every key that is not of all programs, each with the programs that have them.
EXPRESSED: list[tuple[dict[str, Any], set[str]]] = [
    ({"architecture": "decoder-only", "encoder_layers": 0}, set()),
    ({"source_mask": "causal"}, set()),
    ({"cross_attention_residual": False}, set()),
    ({"autoregression": "ssru"}, {"Bergamot"}),
    ({"positions": "rotary"}, {"CTranslate2"}),
    ({"positions": "learned"}, {"CTranslate2"}),
    ({"activation": "gelu"}, {"CTranslate2", "Hugging Face"}),
    ({"norm_eps": 1e-6}, {"CTranslate2", "Bergamot"}),
    ({"source_eos": False}, {"CTranslate2"}),
    ({"norm": "pre"}, {"CTranslate2", "Hugging Face"}),
    ({"positions": "marian"}, {"CTranslate2", "Bergamot"}),
    ({"positions": "stored"}, {"CTranslate2", "Hugging Face"}),
    ({"dropout": 0.3, "share_layers": "all"}, set(MODEL)),
]


@dataclasses.dataclass(frozen=True)
class WiderModel(ModelConfig):
    experts: int = number(1, (1, 9), "a new key")


@dataclasses.dataclass(frozen=True)
class WiderSearch(SearchConfig):
    lookahead: int = number(1, (1, 9), "a new key")


@pytest.mark.parametrize("program", MODEL)
def test_a_new_key_is_refused_by_name_unless_it_has_its_default(program: str) -> None:
    values = dataclasses.asdict(BASES[program])
    check_model(WiderModel(**values), program)
    with pytest.raises(InputError, match=rf"model\.experts = 8 .*{program}"):
        check_model(WiderModel(**values, experts=8), program)


@pytest.mark.parametrize("program", SEARCH)
def test_a_new_search_key_is_refused_by_name_unless_it_has_its_default(program: str) -> None:
    nearest_search(WiderSearch(), program, QUIET)
    with pytest.raises(InputError, match=rf"search\.lookahead = 8 .*{program}"):
        nearest_search(WiderSearch(lookahead=8), program, QUIET)


@pytest.mark.parametrize("program", MODEL)
@pytest.mark.parametrize(("changes", "programs"), EXPRESSED, ids=lambda value: "")
def test_each_program_has_its_values(program: str, changes: dict[str, Any], programs: set[str]) -> None:
    config = dataclasses.replace(BASES[program], **changes)
    if program in programs:
        check_model(config, program)
    else:
        with pytest.raises(InputError, match=rf"model\.{next(iter(changes))} = .*{program}") as refused:
            check_model(config, program)
        advice = re.findall(r"--set model\.(\w+)=([^ `]+)", str(refused.value))
        check_model(dataclasses.replace(config, **{name: json.loads(value) for name, value in advice}), program)


def test_a_refusal_names_all_settings_to_train_with() -> None:
    small = dataclasses.replace(ModelConfig(), norm="pre", positions="rotary", d_model=96)
    with pytest.raises(InputError, match=r'norm="post" .*positions="marian" --set model\.d_model=128`'):
        check_model(small, "Bergamot")


@pytest.mark.parametrize(("table", "config"), [(MODEL, ModelConfig), (SEARCH, SearchConfig)])
def test_every_key_and_value_of_the_tables_exists(table: dict[str, dict[str, Any]], config: type[Any]) -> None:
    keys = keys_of(config)
    for program, values in table.items():
        for name, allowed in values.items():
            assert all(check_value(keys[name], name, value) == value for value in allowed or ())
            stores_none = table is SEARCH and program == "CTranslate2"
            assert allowed is not None or not keys[name].choices or stores_none, "a new choice would be expressible"

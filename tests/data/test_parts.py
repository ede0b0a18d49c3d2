"""How pairs are divided into those to train on and those that are held out."""

from hypothesis import given
from hypothesis import strategies as st

from vtrans.data.parts import divided

HELD_OUT = {"test": (0.3, 5), "valid": (0.1, 9)}


@given(st.lists(st.tuples(st.sampled_from("abcdefgh "), st.sampled_from("xyz ")), max_size=80))
def test_no_source_is_in_two_parts_and_no_pair_is_lost(pairs: list[tuple[str, str]]) -> None:
    parts = divided(pairs, HELD_OUT, 1)
    sources = [{src for src, _ in part} for part in parts.values()]
    assert sum(map(len, sources)) == len(set().union(*sources))
    held_out = {src for name in ("test", "valid") for src, _ in parts[name]}
    expected = {pair for pair in pairs if all(side.strip() for side in pair)}
    assert {pair for pair in expected if pair[0] not in held_out} == set(parts["train"])
    assert sources[0] | held_out == {src for src, _ in expected}

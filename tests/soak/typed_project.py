"""A program that uses vtrans. It must pass `mypy --strict`, as `make types` checks."""

from typing import assert_type

import vtrans


def first(lines: list[str]) -> str:
    translator = vtrans.load("run", beam=2)
    assert_type(translator, vtrans.Translator)
    best = next(translator.nbest(lines, n=2))
    assert_type(best, list[vtrans.Translation])
    assert_type(best[0].score, float)
    sampling = vtrans.Sampling(top_k=3)
    texts = list(translator.translate(lines))
    assert_type(texts, list[str])
    try:
        vtrans.configure_process()
    except vtrans.VtransError as error:
        return str(error)
    return f"{texts} {sampling} {vtrans.__version__}"

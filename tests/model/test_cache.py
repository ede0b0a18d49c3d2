"""The key-value cache, compared with plain lists: each row sees its own history, whatever enters, leaves or moves."""

from __future__ import annotations

import torch

from vtrans.model.cache import DecoderSlots, SourceCache


def test_the_example_of_the_docstring() -> None:
    """One sentence, two rows, three steps."""
    history = DecoderSlots(2, reuse_slots=True)
    history.admit(SourceCache(torch.zeros(1, 2, 1, 1, 0, 1), torch.ones(1, 0, dtype=torch.bool), [0]), [0], 1)

    def slots() -> list[list[int]]:
        return [row_n.nonzero().flatten().tolist() for row_n in history.attended_BKn[0]]

    for before, parents, after in [
        ([[0], [1]], [0, 0], [[0], [0]]),
        ([[0, 1], [0, 2]], [1, 0], [[0, 2], [0, 1]]),
        ([[0, 2, 3], [0, 1, 4]], [0, 1], [[0, 2, 3], [0, 1, 4]]),
    ]:
        history.layers()
        assert slots() == before
        history.reorder(torch.tensor([parents]))
        assert slots() == after

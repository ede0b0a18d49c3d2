"""Diverse beam search (Vijayakumar et al. 2018) with their Hamming diversity.

By definition, the K rows of a sentence are G groups of K / G. Each group is a beam search as beam.py defines it, on its
own rows and with a beam of K / G. In each step, the groups rank their extensions one after another. A group ranks an
extension by its sum minus `diversity` times the number of rows of earlier groups that have just chosen the same token
and live on; at the length limit none does. EOS is never penalised, because different translations may well end in the
same step. A group whose search is finished has no rows any more, and waits for the others. The result is the finished
hypotheses of all groups, each once, best first; of equal scores, the earlier group's comes first.

The penalty only decides which extensions a step keeps. Sums, log-probabilities and scores stay those of the model. The
authors' code, fairseq and Hugging Face add the penalties up in the sums instead, and rank the results by them. If each
group has one row, the steps are the same. With 4 groups of 2 rows, adding up made the lists worse: their best
translations by BLEU lost 0.3, 1.3 and 1.8 points with a diversity of 0.5, 1 and 2 (200 lines of Multi30k).

Legend: that of beam.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from vtrans.config import SearchConfig
from vtrans.search.beam import Beam, best_tokens
from vtrans.search.loop import Block, Decoder, Hypothesis, State, run

# A sentence and a token as one number: the sentence times this, plus the token.
STRIDE = 1 << 32


def diverse_beam_search(
    decoder: Decoder[State],
    sources: Sequence[Sequence[int]],
    limits: Sequence[int],
    *,
    config: SearchConfig,
    nbest: int,
    bos_id: int,
    eos_id: int,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Searches in `config.beam_groups` groups for translations of each source; yields what `search.run` yields.

    A sentence gets up to `nbest` finished hypotheses of all groups, best first. If none finished, it gets the best live
    one, with `finished=False`. `nbest` is at most `config.beam`, and only cuts the list: the search is the same for
    each. Raises VtransError if the decoder returns NaN.
    """
    assert 1 <= nbest <= config.beam, (nbest, config.beam)
    return run(decoder, sources, limits, config.batch_tokens, DiverseBeam(limits, config, nbest, bos_id, eos_id))


class DiverseBeam:
    """The groups of all sentences. Rows g * K / G and up of a sentence are those of its group g."""

    def __init__(self, limits: Sequence[int], config: SearchConfig, nbest: int, bos_id: int, eos_id: int) -> None:
        self.width, self.nbest, self.diversity = config.beam, nbest, config.diversity
        own = config.beam // config.beam_groups
        part = replace(config, beam=own)
        self.groups = [Beam(limits, part, own, bos_id, eos_id) for _ in range(config.beam_groups)]
        self.found: list[dict[int, list[Hypothesis]]] = []  # per place, the results of the groups that are finished
        self._join()

    def _join(self) -> None:
        self.tokens_BK = torch.cat([group.tokens_BK for group in self.groups], 1)

    def enter(self, sentences: Sequence[int], places: Sequence[int]) -> None:
        for group in self.groups:
            group.enter(sentences, places)
        self.found += [{} for _ in range(len(sentences) - len(places))]
        self._join()

    def live(self) -> Tensor:
        return torch.from_numpy(np.flatnonzero(np.hstack([group.live_BK for group in self.groups]) > -math.inf))

    def advance(self, blocks: Iterable[Block]) -> list[int]:
        live_r = self.live().numpy()
        sentences_r1, groups_r = live_r[:, None] // self.width, live_r % self.width // self.groups[0].width
        # A group needs K / G + 1 tokens of a row, and the others penalise at most K - K / G of those that are better.
        values_rm, tokens_rm = best_tokens(blocks, self.width + 1)
        keys_rm = sentences_r1 * STRIDE + tokens_rm.astype(np.int64)
        chosen = np.empty(0, dtype=np.int64)  # the keys of the tokens that the groups so far have chosen, in order
        finished = []
        for g, group in enumerate(self.groups):
            own = groups_r == g
            first, last = (np.searchsorted(chosen, keys_rm[own], side) for side in ("left", "right"))
            for b in group.extend(values_rm[own], tokens_rm[own], self.diversity * (last - first)):
                self.found[b][g] = group.leave(b)
                if len(self.found[b]) == len(self.groups):
                    finished.append(b)
            alive_BK = group.live_BK > -math.inf
            keys = np.nonzero(alive_BK)[0] * STRIDE + group.tokens_BK.numpy()[alive_BK]
            chosen = np.sort(np.concatenate((chosen, keys)))
        self._join()
        return sorted(finished)

    def parents(self) -> Tensor | None:
        own = self.groups[0].width
        parents_BK = np.hstack([g * own + group.parents_BK for g, group in enumerate(self.groups)])
        if (parents_BK == np.arange(self.width)).all():
            return None
        return torch.from_numpy(parents_BK.astype(np.int64))

    def leave(self, b: int) -> list[Hypothesis]:
        found = sorted((hyp for _, own in sorted(self.found[b].items()) for hyp in own), key=lambda hyp: -hyp.score)
        self.found[b] = {}
        distinct: dict[tuple[int, ...], Hypothesis] = {}
        for hyp in [hyp for hyp in found if hyp.finished] or found[:1]:
            distinct.setdefault(hyp.tokens, hyp)
        return list(distinct.values())[: self.nbest]

    def select(self, sentences: Sequence[int]) -> None:
        for group in self.groups:
            group.select(sentences)
        self.found = [self.found[b] for b in sentences]
        self._join()

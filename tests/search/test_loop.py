"""The loop of beam search and sampling: its table of histories, and results that never depend on the batch."""

import math
from typing import Any

import numpy as np
import pytest
from drawn import seeded
from fakes import FakeDecoder, Ids, Table, hashed, many_sentences, searched

from vtrans.search.decoder import Ensemble
from vtrans.search.history import RowHistory

GROUPED: dict[str, Any] = {"beam": 4, "beam_groups": 2, "nbest": 4}


@pytest.mark.parametrize(
    "config",
    [
        *({}, {"stop": "exhaustive"}, {"beam": 1}, {"alpha": -1.0, "nbest": 3}),
        *(GROUPED, GROUPED | {"stop": "exhaustive"}, GROUPED | {"beam": 3, "beam_groups": 3, "nbest": 3}),
    ],
)
@pytest.mark.parametrize("trouble", [{}, {"ties": True, "holes": 0.2}])
def test_results_do_not_depend_on_the_batch(config: dict[str, Any], trouble: dict[str, Any]) -> None:
    for seed in range(1 if "beam_groups" in config else 3):
        table = hashed(seed, words=25, **trouble)
        sources, limits = many_sentences(seed)
        alone = [
            searched(FakeDecoder(table), [source], [limit], **config)[0]
            for source, limit in zip(sources, limits, strict=True)
        ]
        for batch_tokens in (1, 7, 100, 1000):
            order = list(range(len(sources)))
            for _ in range(2):
                ordered, ordered_limits = [sources[i] for i in order], [limits[i] for i in order]
                own = dict(zip(ordered, ordered_limits, strict=True))
                decoder = FakeDecoder(table, limits=own, batch_tokens=batch_tokens)
                found = searched(decoder, ordered, ordered_limits, batch_tokens=batch_tokens, **config)
                assert found == [alone[i] for i in order]  # scores too, to the last bit
                seeded(seed).shuffle(order)


def test_waiting_sentences_enter_while_others_are_searched() -> None:
    table = hashed(1, words=25)
    sources, limits = many_sentences(1)
    decoder = FakeDecoder(table, batch_tokens=60)
    searched(decoder, sources, limits, beam=3, batch_tokens=60)
    assert decoder.log[0] == "start"
    assert decoder.log.count("start") == 1  # the batch never ran empty
    assert decoder.log.count("admit") >= 5
    assert any(len(set(ages)) > 2 for ages in decoder.ages)
    # An admission is at least an eighth of the batch, or the last waiting sentences.
    sizes = [len(ages) for ages in decoder.ages]
    fresh = [ages.count(0) for ages in decoder.ages]
    assert sum(fresh) == len(sources)
    admissions = [(new, size) for new, size in zip(fresh, sizes, strict=True) if new]
    assert all(8 * new >= size - new for new, size in admissions[:-1])
    assert "select" in decoder.log
    assert all(4 * empty < size + empty for empty, size in zip(decoder.empty, sizes, strict=True))


def averaged(first: Table, second: Table) -> Table:
    def table(source: Ids, prefix: Ids) -> list[float]:
        pairs = zip(first(source, prefix), second(source, prefix), strict=True)
        means = [(math.exp(a) + math.exp(b)) / 2 for a, b in pairs]
        return [math.log(mean) if mean else -math.inf for mean in means]

    return table


def test_an_ensemble_averages_probabilities() -> None:
    first, second = hashed(12, words=25, holes=0.3), hashed(13, words=25, holes=0.3)
    sources, limits = many_sentences(12)
    own = dict(zip(sources, limits, strict=True))
    decoders = [FakeDecoder(first, own), FakeDecoder(second, own)]
    together = searched(Ensemble(decoders, (0.5, 0.5)), sources, limits, nbest=4, batch_tokens=60)
    expected = searched(FakeDecoder(averaged(first, second)), sources, limits, nbest=4)
    for found, wanted in zip(together, expected, strict=True):
        assert [h.tokens for h in found] == [h.tokens for h in wanted]
        assert [h.score for h in found] == pytest.approx([h.score for h in wanted])
    assert "admit" in decoders[1].log


def test_histories_equal_lists_while_sentences_enter_and_leave() -> None:
    for seed in range(20):
        numbers, K = seeded(seed), 3
        history, said = RowHistory(K, bos_id=0), dict[int, list[list[int]]]()  # by sentence, of each row
        sentences = iter(range(1000))
        for _ in range(200):
            live = [i for i in history.sentences if i is not None]
            if not live or numbers.random() < 0.1:
                fresh = [next(sentences) for _ in range(history.sentences.count(None) + numbers.randrange(1, 3))]
                said |= {i: [[] for _ in range(K)] for i in fresh}
                places = history.enter(fresh)
                assert [history.sentences[b] for b in places] == fresh
                assert (history.newest_BK[places] == 0).all()
            shape = (len(history.sentences), K)
            parents = np.array([[numbers.randrange(K) for _ in range(K)] for _ in range(shape[0])])
            tokens = np.array([[numbers.randrange(1, 99) for _ in range(K)] for _ in range(shape[0])])
            history.extend(parents, tokens, -tokens.astype(np.float32))
            rows = []
            for b, i in enumerate(history.sentences):
                if i is not None:
                    said[i] = [[*said[i][parents[b, k]], int(tokens[b, k])] for k in range(K)]
                    for k in range(K):
                        assert history.path(b, k).tolist() == [said[i][k], [-float(t) for t in said[i][k]]]
                        rows.append((b * K + k, said[i][k]))
            table = history.tokens([row for row, _ in rows]).tolist()
            longest = max(len(tokens) for _, tokens in rows)
            assert table == [[-1] * (longest - len(tokens)) + tokens for _, tokens in rows]
            if numbers.random() < 0.1:
                history.sentences[numbers.randrange(shape[0])] = None
            if numbers.random() < 0.1:
                history.select([b for b, i in enumerate(history.sentences) if i is not None])

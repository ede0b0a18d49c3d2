"""The table of histories, compared with lists of tokens."""

import numpy as np
from drawn import seeded

from vtrans.search.history import RowHistory


def test_histories_are_those_of_lists_however_sentences_come_and_go() -> None:
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

"""Sample sentences for comparing a model with the same model in another program."""

from __future__ import annotations

import random

from vtrans.checkpoint import LoadedModel
from vtrans.text.vocabulary import Vocabulary

SAMPLES = 100  # generated sentences
LONGEST_SAMPLE = 2048  # most positions of the pair that tests the whole position table


def generated_sentences(vocab: Vocabulary) -> list[str]:
    """Returns SAMPLES sentences of 1 to 30 words of the vocabulary, the same in each call; frequent words are likelier.

    They mean nothing but reach all parts of a network; a file of real sentences is a better sample.
    """
    subwords = [i for i in range(len(vocab)) if vocab.is_subword(i)]
    words = [i for i in subwords if len(vocab.piece(i)) > 1 and vocab.piece(i).startswith("\u2581")] or subwords
    numbers = random.Random("samples")
    lengths = [1 + 30 * k // SAMPLES for k in range(SAMPLES)]
    # Pieces are sorted by falling frequency; a rank on a logarithmic scale follows Zipf's law.
    return [vocab.decode(words[int(len(words) ** numbers.random()) - 1] for _ in range(n)) for n in lengths]


def longest_pair(loaded: LoadedModel, longest: int, reach: int) -> tuple[list[int], list[int]]:
    """Returns a random source and target, without EOS, as long as the position table allows."""
    numbers = random.Random("longest")
    sides = []
    for vocab, length in ((loaded.src_vocab, longest), (loaded.tgt_vocab, reach - 1)):
        subwords = [i for i in range(len(vocab)) if vocab.is_subword(i)]
        sides.append([numbers.choice(subwords) for _ in range(min(length, LONGEST_SAMPLE))])
    return sides[0], sides[1]

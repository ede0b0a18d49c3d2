"""Sample sentences for comparing a model with the same model in another program."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Sequence
from pathlib import Path

from vtrans.checkpoint import LoadedModel
from vtrans.text.languages import base
from vtrans.text.vocabulary import Vocabulary

SAMPLES = 100  # generated sentences
LONGEST_SAMPLE = 2048  # most positions of the pair that tests the whole position table

# Everyday sentences by language, some with what models get wrong: names, numbers, quotation marks, capitals, one word.
REAL: dict[str, list[str]] = json.loads(Path(__file__).with_name("samples.json").read_text(encoding="utf-8"))


def real_sentences(languages: Collection[str]) -> list[str]:
    """Returns the sentences in these languages; those in all languages if none of them is here."""
    known = [language for language in REAL if language in map(base, languages)]
    return [sentence for language in known or REAL for sentence in REAL[language]]


def tagged(loaded: LoadedModel, lines: Sequence[str]) -> list[str]:
    """Returns the lines that are not blank, each with the tag of the source language if translations begin with that of
    the target language."""
    tag = next(iter(loaded.tags.values()), "") if loaded.search.begin else ""
    return [f"{tag} {line}".strip() for line in lines if line.strip()] if tag else list(lines)


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

"""Sample sentences for comparing a model with the same model in another program."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from vtrans.checkpoint import LoadedModel
from vtrans.text.languages import base
from vtrans.text.vocabulary import Vocabulary

SAMPLES = 100  # generated sentences
LONGEST_SAMPLE = 2048  # most positions of the pair that tests the whole position table

# Everyday sentences, some with what models get wrong: names, numbers, quotation marks, capitals and one word alone.
REAL = {
    "en": (
        "Hello!",
        "The train to London leaves at 8:45 from platform 3.",
        "I haven't seen her since last summer.",
        "Could you please tell me where the nearest pharmacy is?",
        'She said: "It is going to rain tomorrow."',
        "Prices rose by 2.5% in March, more than the government had expected.",
        "My brother and I bought two loaves of bread, some cheese and a bottle of water.",
        "Although it was late, the children were still playing in the garden behind the house.",
    ),
    "de": (
        "Guten Morgen!",
        "Der Zug nach Berlin fährt um 8.45 Uhr von Gleis 3 ab.",
        "Können Sie mir bitte sagen, wo die nächste Apotheke ist?",
        "Obwohl es spät war, spielten die Kinder noch im Garten hinter dem Haus.",
    ),
    "fr": (
        "Bonjour !",
        "Le train pour Paris part à 8 h 45 du quai numéro 3.",
        "Pourriez-vous me dire où se trouve la pharmacie la plus proche ?",
        "Il était tard, mais les enfants jouaient encore dans le jardin.",
    ),
    "es": (
        "¡Buenos días!",
        "El tren a Madrid sale a las 8:45 de la vía 3.",
        "¿Me podría decir dónde está la farmacia más cercana?",
        "Aunque era tarde, los niños seguían jugando en el jardín.",
    ),
    "ru": ("Доброе утро!", "Поезд в Москву отправляется в 8:45.", "Скажите, пожалуйста, где ближайшая аптека?"),
    "zh": ("早上好！", "去北京的火车八点四十五分开。", "请问最近的药店在哪里？"),
}


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

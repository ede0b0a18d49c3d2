"""Small letters and capitals as languages have them, and how a word in capitals is written in a sentence."""

from __future__ import annotations

import regex

from vtrans.text.languages import base
from vtrans.text.vocabulary import Vocabulary

DOTLESS = ("az", "tr")  # languages in which I is the capital of ı, and İ that of i
NAME_RATIO = 3  # how much more frequent a word is with a capital if it is a name, and not only the first of a sentence
_ACRONYMS = """
AC ATM BBC BIC CD CEO CET CHF CIA CNN COVID DIY DJ DNA DVD EAN EST EUR FAQ FBI GBP GDP GMT GPS HIV HTML HTTP IBAN IBM ID
IMF IQ ISBN KGB LA MRI NASA NATO NBA NFL NGO NY OECD OK OPEC PC PDF PIN PST RNA SKU SMS SOS SUV TV UFO UK UNESCO UNICEF
URL USA USB USD UTC VAT VIP VPN WWW XML
"""
ACRONYMS = frozenset(_ACRONYMS.split())
AFTER_THE = frozenset(("EU", "IT", "UN", "US", "WHO"))  # acronyms that are words of some language

_EMPHASIZED = {
    "en": """
ALL ALWAYS AND ANOTHER ANY ARE ATTENTION BEST CAN'T DON'T EVER EVERY HATE IMPORTANT JUST LOVE MORE MOST MUST MY NEED
NEVER NO NOT NOTE NOTHING NOW ONLY PLEASE REALLY REMEMBER SORRY STOP THANKS THAT THE THESE THIS TODAY TOO UPDATE URGENT
VERY WANT WARNING WHAT WHEN WHERE WHY WILL YES YOU YOUR
""",
    "de": """
ABER ACHTUNG ALLE ALLES BITTE DAS DU HEUTE HINWEIS ICH IMMER JEDE JEDER JETZT KEIN KEINE MEHR MUSS NICHT NICHTS NIE
NIEMALS NUR SEHR SOFORT UND WARUM WAS WICHTIG WIR
""",
}
EMPHASIZED = {language: frozenset(words.split()) for language, words in _EMPHASIZED.items()}
"""By language: words that are emphasized if they are in capitals, as they are neither acronyms nor names."""

WORD = regex.compile(r"(?<![\p{L}\p{M}\d])(?:(?:\p{L}\.){2,}|\p{L}[\p{L}\p{M}]*+(?:['\u2019]\p{L}+)*+(?!-?\d))")
"""A word, or an abbreviation such as U.S.; nothing beside a digit, as in COVID-19 or 5KG."""
_ROMAN = regex.compile("(?=..)X{0,3}(?:IX|IV|V?I{0,3})")
"""Numbers from II to XXXIX."""
_CAPITALS = regex.compile("[A-Z]{2}")
_VOWEL = regex.compile("[aeiouy]|[^a-z'\u2019]")


def lower(text: str, language: str | None = None) -> str:
    """Returns a text of this language in small letters. It has the same length."""
    if language and base(language) in DOTLESS:
        text = text.replace("I", "\u0131")
    return text.replace("\u0130", "i").lower()


def upper(text: str, language: str | None = None) -> str:
    """Returns a text of this language in capitals."""
    return (text.replace("i", "\u0130") if language and base(language) in DOTLESS else text).upper()


class SentenceCase:
    """Writes words as they are inside a sentence of this language. What is more frequent is known from the vocabulary:
    a frequent word has fewer subwords, and of two subwords the more frequent one has the smaller id."""

    def __init__(self, vocab: Vocabulary, language: str | None) -> None:
        self._vocab, self._language = vocab, language

    def __call__(self, word: str, before: str) -> str:
        """Returns a word whose first letter, or each of them, is a capital: as a name, an acronym, or in small letters.
        `before` is the word before it."""
        small = lower(word, self._language)
        name = word[0] + small[1:]
        after_the = word in AFTER_THE and before.lower() == "the"
        if word in ACRONYMS or after_the or "." in word or _ROMAN.fullmatch(word):
            return word
        if regex.match(r"I\b", word) and self._language and base(self._language) == "en":
            return name
        ids = {form: self._vocab.encode_batch([form], tags=False)[0] for form in (word, name, small)}
        as_it_is, as_name, as_word = (ids[form] for form in (word, name, small))
        if word != name:
            fewest = min(len(as_name), len(as_word))
            if len(as_it_is) < fewest or (fewest > 1 and not _VOWEL.search(small)):
                return word
        if len(as_name) != len(as_word):
            return name if len(as_name) < len(as_word) else small
        if word == name and len(as_word) > 1:
            return name
        # [:1], because some vocabularies have no subwords at all for a word.
        is_name = as_name[1:] == as_word[1:] and [NAME_RATIO * id for id in as_name[:1]] < as_word[:1]
        return name if is_name else small

    def emphasized(self, text: str) -> set[str]:
        """Returns the words of a text that are in capitals for emphasis: those of EMPHASIZED, and frequent words in
        capitals beside them."""
        certain, found = EMPHASIZED.get(base(self._language or ""), frozenset()), set[str]()
        row, end = set[str](), 0  # words in capitals that follow each other, and where they end
        for match in WORD.finditer(text) if certain and _CAPITALS.search(text) else ():
            if text[end : match.start()].strip(" ,") or not match.group().isupper():
                row = set()
            if match.group().isupper():
                row.add(match.group())
            end = match.end()
            if not row.isdisjoint(certain):
                found |= {word for word in row if word in certain or self._is_frequent(word)}
        return found

    def _is_frequent(self, word: str) -> bool:
        """Returns whether a word in capitals has one subword as it is written in a sentence."""
        written = self(word, "")
        return written != word and len(self._vocab.encode_batch([written], tags=False)[0]) == 1

"""The definite articles of German names such as `der Bodensee`, in the cases that sentences ask for.

A model that copies a name by a code does not know its gender, and writes the article and the preposition of another.
"""

from __future__ import annotations

import regex

ENDING = "~"
"""Where a name has the ending of an adjective: `Schwarz~ Meer`."""

_GENDERS = "mfnp"  # masculine, feminine, neuter, plural
_ARTICLES = {
    "nominative": ("der", "die", "das", "die"), "genitive": ("des", "der", "des", "der"),
    "dative": ("dem", "der", "dem", "den"), "accusative": ("den", "die", "das", "die"),
}  # fmt: skip
_STRONG = dict(zip(_GENDERS, ("er", "e", "es", "e"), strict=True))
_JOINED = {"in dem": "im", "an dem": "am", "bei dem": "beim", "von dem": "vom", "zu dem": "zum", "zu der": "zur",
           "in das": "ins", "an das": "ans"}  # fmt: skip
_APART = {joined: apart for apart, joined in _JOINED.items()}
_CASES = {
    "dative": "aus außer bei gegenüber mit nach seit von zu", "accusative": "bis durch für gegen ohne um",
    "genitive": "außerhalb innerhalb trotz während wegen",
}  # fmt: skip
_CASE = {word: case for case, words in _CASES.items() for word in words.split()}
_EITHER = ("an", "auf", "hinter", "in", "neben", "über", "unter", "vor", "zwischen")  # with dative or accusative
_BEFORE = regex.compile(
    rf"(?<!\w)(?i:(?<joined>{'|'.join(_APART)})|(?:(?<preposition>{'|'.join((*_CASE, *_EITHER))})(?: |$))?"
    r"(?<article>der|die|das|dem|den|des)?) ?$"
)
_PLURALS = {"ist": "sind", "war": "waren", "hat": "haben", "wird": "werden", "wurde": "wurden", "kann": "können",
            "muss": "müssen", "will": "wollen", "darf": "dürfen", "soll": "sollen", "mag": "mögen"}  # fmt: skip
_SINGULARS = {plural: singular for singular, plural in _PLURALS.items()}
_STRONG_VERB = regex.compile(
    "be(?:gann|kam)|blieb|f(?:and|iel|uhr)|g(?:ab|ewann|ing|riff)|h(?:alf|ielt)|kam|l(?:ag|ief)|nahm|rief"
    "|s(?:ah|ang|ank|chlief|chlug|chloss|chrieb|prach|tand|tarb|tieg)|tr(?:at|ug|ank)|ver(?:ließ|lor)|wuchs|zog"
)
_LONGEST = 30  # characters of a preposition and an article, and of the word before them
_VERB = regex.compile(r"(?<=^ )\p{Ll}+")  # or another word after a name


def with_article(before: str, name: str, gender: str, after: str, *, begins: bool = False) -> tuple[str, str, str]:
    """Returns the text before a name of this gender with the article that it has there, the name with its ending, and
    the text after it, with a verb in its number.

    A name without an article gets one after a preposition, and if it `begins` a sentence; names of peoples (P), such as
    `Schweden`, get none.
    """
    bare, gender = gender == "P", gender.lower()
    found = _BEFORE.search(before, max(0, len(before) - _LONGEST))
    preposition, article = found["preposition"] or "", found["article"] or ""
    if found["joined"]:
        preposition, _, article = _APART[found["joined"].lower()].partition(" ")
    first = found[0].strip()
    if not article and (bare or (not preposition and not (begins and _VERB.search(after)))):
        return before, name.replace(ENDING, _STRONG[gender]), after
    case = _case(preposition.lower(), article.lower(), before[: found.start()])
    if preposition.lower() == "nach" and not article and gender != "n":
        preposition, case = "in", "accusative"  # `nach` is for names without an article
    own = _ARTICLES[case][_GENDERS.index(gender)]
    words = " ".join(filter(None, (preposition, own)))
    joined = _JOINED.get(words.lower(), words.lower())
    written = joined[0].upper() + joined[1:] if not first or first[0].isupper() else joined
    is_weak = (case == "nominative" and gender != "p") or (case == "accusative" and gender in "fn")
    if case == "nominative":
        number = _plural if gender == "p" else lambda verb: _SINGULARS.get(verb, verb)
        after = _VERB.sub(lambda verb: number(verb[0]), after, count=1)
    return f"{before[: found.start()]}{written} ", name.replace(ENDING, "e" if is_weak else "en"), after


def _plural(verb: str) -> str:
    """Returns a verb in the plural, given its third person singular."""
    if verb in _PLURALS:
        return _PLURALS[verb]
    if _STRONG_VERB.fullmatch(verb):
        return f"{verb}en"
    if verb.endswith("te"):
        return f"{verb}n"
    return f"{verb.removesuffix('t').removesuffix('e')}en" if verb.endswith("t") else verb


def _case(preposition: str, article: str, before: str) -> str:
    """Returns the case of a name after a preposition and an article, either of which may be missing."""
    if preposition in _CASE:
        return _CASE[preposition]
    if preposition:
        return "accusative" if article in ("den", "die", "das") else "dative"
    begins = not before.strip() or before.rstrip()[-1] in '.,:;!?"\u201e\u201c'
    if article == "der":
        return "genitive" if not begins and before.split()[-1][0].isupper() else "nominative"
    return {"dem": "dative", "des": "genitive", "den": "accusative"}.get(
        article, "nominative" if begins else "accusative"
    )

"""How English and German words change their form.

German cases are the letters n, a, d, g. A gender is m, f, n, or p for the plural, which German treats as a
fourth gender. A person is "1s" to "3p", and "2f" for the polite address (you, Sie).
"""

VOWELS = "aeiouäöüy"

_THE = {"n": "der die das die", "a": "den die das die", "d": "dem der dem den", "g": "des der des der"}
# Endings in the order m, f, n, p.
_LIKE_DIESER = {"n": "er e es e", "a": "en e es e", "d": "em er em en", "g": "es er es er"}
_LIKE_EIN = {"n": "- e - e", "a": "en e - e", "d": "em er em en", "g": "es er es er"}
_WEAK = {"n": "e e e en", "a": "en e e en", "d": "en en en en", "g": "en en en en"}
_MIXED = {"n": "er e es en", "a": "en e es en", "d": "en en en en", "g": "en en en en"}
_STRONG = {"n": "er e es e", "a": "en e es e", "d": "em er em en", "g": "en er en er"}

# The endings of determiners, and of the adjectives that follow them.
PATTERNS = {
    "the": (_THE, _WEAK),
    "this": (_LIKE_DIESER, _WEAK),
    "a": (_LIKE_EIN, _MIXED),
    "none": (_STRONG, _STRONG),
}

PRONOUNS = {
    "1s": ("I", "me", "ich", "mich", "mir"),
    "2s": ("you", "you", "du", "dich", "dir"),
    "2f": ("you", "you", "Sie", "Sie", "Ihnen"),
    "3m": ("he", "him", "er", "ihn", "ihm"),
    "3f": ("she", "her", "sie", "sie", "ihr"),
    "1p": ("we", "us", "wir", "uns", "uns"),
    "3p": ("they", "them", "sie", "sie", "ihnen"),
}
POSSESSIVES = {
    "1s": ("my", "mein"),
    "2s": ("your", "dein"),
    "2f": ("your", "Ihr"),
    "3m": ("his", "sein"),
    "3f": ("her", "ihr"),
    "1p": ("our", "unser"),
    "3p": ("their", "ihr"),
}
REFLEXIVES = {"1s": "mich", "2s": "dich", "1p": "uns"}  # sich for all other persons

CONTRACTIONS = {
    ("in", "dem"): "im",
    ("an", "dem"): "am",
    ("bei", "dem"): "beim",
    ("von", "dem"): "vom",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("in", "das"): "ins",
    ("an", "das"): "ans",
}


def _cell(table: dict[str, str], case: str, gender: str) -> str:
    ending = table[case].split()["mfnp".index(gender)]
    return "" if ending == "-" else ending


def determiner(stem: str, pattern: str, case: str, gender: str) -> str:
    """Returns a determiner: `determiner("dies", "this", "a", "m")` is "diesen". The article has an empty stem."""
    if stem == "unser" and _cell(PATTERNS[pattern][0], case, gender) == "":
        return "unser"
    return stem + _cell(PATTERNS[pattern][0], case, gender)


def adjective(stem: str, pattern: str, case: str, gender: str) -> str:
    return stem + _cell(PATTERNS[pattern][1], case, gender)


def dative_plural(plural: str) -> str:
    return plural if plural[-1] in "ns" else plural + "n"


def genitive(noun: str) -> str:
    """Returns the genitive of a strong masculine or neuter noun. The lexicon lists the exceptions."""
    groups = sum(1 for i, c in enumerate(noun.lower()) if c in VOWELS and (i == 0 or noun[i - 1].lower() not in VOWELS))
    if noun[-1] in "sßxz" or noun.endswith("sch") or (groups == 1 and noun[-1].lower() not in VOWELS):
        return noun + "es"
    return noun + "s"


def verb_stem(infinitive: str) -> str:
    if infinitive.endswith(("eln", "ern")):
        return infinitive[:-1]
    return infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]


def needs_e(stem: str) -> bool:
    """Returns whether an e precedes the ending: arbeit-e-t, öffn-e-t, atm-e-t; but lern-t, film-t, wohn-t."""
    if stem[-1] in "td":
        return True
    return len(stem) > 2 and stem[-1] in "mn" and stem[-2] not in VOWELS + "lrmnh"


def present(infinitive: str, third: str | None, person: str) -> str:
    """Returns the present tense of a verb without its separable prefix; `third` is given where the vowel changes."""
    stem = verb_stem(infinitive)
    if person in ("1p", "3p", "2f"):
        return infinitive
    e = "e" if needs_e(stem) else ""
    modal = third is not None and third[-1] != "t"  # mag, weiß
    if person == "1s":
        if modal and third is not None:
            return third
        if infinitive.endswith("eln"):
            return stem[:-2] + "le"
        return stem + "e"
    if person == "2s":
        if third is None:
            return stem + (e + "st" if stem[-1] not in "sßzx" else "t")
        base = third if modal or stem[-1] == "t" else third[:-1]
        if stem[-1] == "d":
            base = third[:-1]
        return base + ("t" if base[-1] in "sßzx" else "st")
    return third if third is not None else stem + e + "t"


def preterite(infinitive: str, past: str | None, person: str) -> str:
    stem = verb_stem(infinitive)
    base = past if past is not None else stem + ("ete" if needs_e(stem) else "te")
    weak = base.endswith("e")
    if person in ("1p", "3p", "2f"):
        return base + ("n" if weak else "en")
    if person == "2s":
        return base + ("st" if weak or base[-1] not in "tdsß" else "est")
    return base


def participle(infinitive: str) -> str:
    """Returns the participle of a weak verb without a separable prefix."""
    if infinitive.startswith(("be", "er", "ver", "zer", "ent", "emp")) or infinitive.endswith("ieren"):
        stem = verb_stem(infinitive)
        return stem + ("et" if needs_e(stem) else "t")
    stem = verb_stem(infinitive)
    return "ge" + stem + ("et" if needs_e(stem) else "t")


IRREGULAR_PRESENT = {
    "sein": {"1s": "bin", "2s": "bist", "3s": "ist", "1p": "sind", "3p": "sind", "2f": "sind"},
    "haben": {"1s": "habe", "2s": "hast", "3s": "hat", "1p": "haben", "3p": "haben", "2f": "haben"},
    "werden": {"1s": "werde", "2s": "wirst", "3s": "wird", "1p": "werden", "3p": "werden", "2f": "werden"},
    "tun": {"1s": "tue", "2s": "tust", "3s": "tut", "1p": "tun", "3p": "tun", "2f": "tun"},
}
IRREGULAR_PRETERITE = {"sein": "war", "haben": "hatte", "werden": "wurde"}
MODALS = {  # first and third person singular, preterite
    "können": ("kann", "konnte"),
    "müssen": ("muss", "musste"),
    "wollen": ("will", "wollte"),
    "sollen": ("sollte", "sollte"),
    "dürfen": ("darf", "durfte"),
    "möchten": ("möchte", "wollte"),
}


def modal(infinitive: str, person: str, *, past: bool = False) -> str:
    now, then = MODALS[infinitive]
    if past or infinitive == "sollen":  # "should" is sollte
        return preterite(infinitive, then, person)
    if person in ("1p", "3p", "2f"):
        return infinitive
    if person == "2s":
        return now + ("t" if now.endswith("ss") else "st")
    return now


# English

_DOUBLED = {"stop", "plan", "hug", "get", "put", "run", "swim", "sit", "cut", "win", "chat", "shop", "begin"}
_DOUBLED |= {"forget", "travel", "hug", "let"}


def _split(verb: str) -> tuple[str, str]:
    first, _, rest = verb.partition(" ")
    return first, " " + rest if rest else ""


def third_person(verb: str) -> str:
    word, rest = _split(verb)
    if word == "have":
        return "has" + rest
    if word.endswith(("s", "sh", "ch", "x", "z", "o")):
        return word + "es" + rest
    if word.endswith("y") and word[-2] not in VOWELS:
        return word[:-1] + "ies" + rest
    return word + "s" + rest


def ing(verb: str) -> str:
    word, rest = _split(verb)
    if word in ("lie", "die"):
        return word[:-2] + "ying" + rest
    if word in _DOUBLED:
        return word + word[-1] + "ing" + rest
    if word.endswith("e") and not word.endswith(("ee", "ye")):
        return word[:-1] + "ing" + rest
    return word + "ing" + rest


def past_regular(verb: str) -> str:
    word, rest = _split(verb)
    if word in _DOUBLED:
        return word + word[-1] + "ed" + rest
    if word.endswith("e"):
        return word + "d" + rest
    if word.endswith("y") and word[-2] not in VOWELS:
        return word[:-1] + "ied" + rest
    return word + "ed" + rest


def plural_regular(noun: str) -> str:
    return noun + ("es" if noun.endswith(("s", "sh", "ch", "x", "z")) else "s")


_SOUNDS_LIKE_CONSONANT = ("uni", "use", "euro", "one", "u")


def article(following: str) -> str:
    """Returns "a" or "an", depending on the sound of the next word."""
    word = following.lower()
    if word.startswith(("hour", "honest")):
        return "an"
    if word.startswith(("umbrella", "un", "ug")) and not word.startswith("uni"):
        return "an"
    return "a" if word[0] not in "aeiou" or word.startswith(_SOUNDS_LIKE_CONSONANT) else "an"


_EN_ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_DE_ONES = [
    "null",
    "eins",
    "zwei",
    "drei",
    "vier",
    "fünf",
    "sechs",
    "sieben",
    "acht",
    "neun",
    "zehn",
    "elf",
    "zwölf",
    "dreizehn",
    "vierzehn",
    "fünfzehn",
    "sechzehn",
    "siebzehn",
    "achtzehn",
    "neunzehn",
]
_EN_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_DE_TENS = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]


def english_number(n: int) -> str:
    if n < 20:
        return _EN_ONES[n]
    ten, one = _EN_TENS[n // 10 - 2], n % 10
    return ten + ("-" + _EN_ONES[one] if one else "")


def german_number(n: int) -> str:
    """Returns the number as a word: dreiundzwanzig; einundzwanzig, not einsundzwanzig."""
    if n < 20:
        return _DE_ONES[n]
    ten, one = _DE_TENS[n // 10 - 2], n % 10
    return (("ein" if one == 1 else _DE_ONES[one]) + "und" if one else "") + ten


def number_stems(n: int) -> tuple[str, ...]:
    """Returns the words that the number is composed of, as lemma names."""
    if n < 20 or n % 10 == 0:
        return (f"num:{n}",)
    return (f"num:{n % 10}", f"num:{n - n % 10}")

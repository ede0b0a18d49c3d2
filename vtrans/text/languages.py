"""Languages: the codes of the pairs and tags of a model, their names, the language that a file name suggests, and the
scripts without spaces between words."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from vtrans.errors import InputError

_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*|[a-z]{3}_[A-Z][a-z]{3}")  # the latter are those of NLLB
_PACKED = (".gz", ".xz", ".bz2")
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
"""The characters of scripts that are written without spaces between words, for a character class of `regex`."""

# ISO 639-1.
_NAMES = """
aa Afar, ab Abkhazian, ae Avestan, af Afrikaans, ak Akan, am Amharic, an Aragonese, ar Arabic, as Assamese, av Avaric,
ay Aymara, az Azerbaijani, ba Bashkir, be Belarusian, bg Bulgarian, bi Bislama, bm Bambara, bn Bengali, bo Tibetan,
br Breton, bs Bosnian, ca Catalan, ce Chechen, ch Chamorro, co Corsican, cr Cree, cs Czech, cu Church Slavic,
cv Chuvash, cy Welsh, da Danish, de German, dv Divehi, dz Dzongkha, ee Ewe, el Greek, en English, eo Esperanto,
es Spanish, et Estonian, eu Basque, fa Persian, ff Fulah, fi Finnish, fj Fijian, fo Faroese, fr French,
fy Western Frisian, ga Irish, gd Scottish Gaelic, gl Galician, gn Guarani, gu Gujarati, gv Manx, ha Hausa, he Hebrew,
hi Hindi, ho Hiri Motu, hr Croatian, ht Haitian, hu Hungarian, hy Armenian, hz Herero, ia Interlingua, id Indonesian,
ie Interlingue, ig Igbo, ii Sichuan Yi, ik Inupiaq, io Ido, is Icelandic, it Italian, iu Inuktitut, ja Japanese,
jv Javanese, ka Georgian, kg Kongo, ki Kikuyu, kj Kuanyama, kk Kazakh, kl Kalaallisut, km Khmer, kn Kannada, ko Korean,
kr Kanuri, ks Kashmiri, ku Kurdish, kv Komi, kw Cornish, ky Kyrgyz, la Latin, lb Luxembourgish, lg Ganda, li Limburgish,
ln Lingala, lo Lao, lt Lithuanian, lu Luba-Katanga, lv Latvian, mg Malagasy, mh Marshallese, mi Maori, mk Macedonian,
ml Malayalam, mn Mongolian, mr Marathi, ms Malay, mt Maltese, my Burmese, na Nauru, nb Norwegian Bokmål,
nd North Ndebele, ne Nepali, ng Ndonga, nl Dutch, nn Norwegian Nynorsk, no Norwegian, nr South Ndebele, nv Navajo,
ny Nyanja, oc Occitan, oj Ojibwa, om Oromo, or Odia, os Ossetian, pa Punjabi, pi Pali, pl Polish, ps Pashto,
pt Portuguese, qu Quechua, rm Romansh, rn Rundi, ro Romanian, ru Russian, rw Kinyarwanda, sa Sanskrit, sc Sardinian,
sd Sindhi, se Northern Sami, sg Sango, si Sinhala, sk Slovak, sl Slovenian, sm Samoan, sn Shona, so Somali, sq Albanian,
sr Serbian, ss Swati, st Southern Sotho, su Sundanese, sv Swedish, sw Swahili, ta Tamil, te Telugu, tg Tajik, th Thai,
ti Tigrinya, tk Turkmen, tl Tagalog, tn Tswana, to Tongan, tr Turkish, ts Tsonga, tt Tatar, tw Twi, ty Tahitian,
ug Uyghur, uk Ukrainian, ur Urdu, uz Uzbek, ve Venda, vi Vietnamese, vo Volapük, wa Walloon, wo Wolof, xh Xhosa,
yi Yiddish, yo Yoruba, za Zhuang, zh Chinese, zu Zulu
"""
# The languages of NLLB that have a code of ISO 639-1, by that of ISO 639-3.
_SHORT = """
afr af, aka ak, als sq, amh am, arb ar, asm as, ayr ay, azj az, bak ba, bam bm, bel be, ben bn, bod bo, bos bs, bul bg,
cat ca, ces cs, cym cy, dan da, deu de, dzo dz, ell el, eng en, epo eo, est et, eus eu, ewe ee, fao fo, fij fj, fin fi,
fra fr, fuv ff, gaz om, gla gd, gle ga, glg gl, grn gn, guj gu, hat ht, hau ha, heb he, hin hi, hrv hr, hun hu, hye hy,
ibo ig, ind id, isl is, ita it, jav jv, jpn ja, kan kn, kas ks, kat ka, kaz kk, khk mn, khm km, kik ki, kin rw, kir ky,
kmr ku, knc kr, kon kg, kor ko, lao lo, lim li, lin ln, lit lt, ltz lb, lug lg, lvs lv, mal ml, mar mr, mkd mk, mlt mt,
mri mi, mya my, nld nl, nno nn, nob nb, npi ne, nya ny, oci oc, ory or, pan pa, pbt ps, pes fa, plt mg, pol pl, por pt,
quy qu, ron ro, run rn, rus ru, sag sg, san sa, sin si, slk sk, slv sl, smo sm, sna sn, snd sd, som so, sot st, spa es,
srd sc, srp sr, ssw ss, sun su, swe sv, swh sw, tam ta, tat tt, tel te, tgk tg, tgl tl, tha th, tir ti, tsn tn, tso ts,
tuk tk, tur tr, twi tw, uig ug, ukr uk, urd ur, uzn uz, vie vi, wol wo, xho xh, ydd yi, yor yo, zho zh, zsm ms, zul zu
"""


def _pairs(text: str) -> dict[str, str]:
    return dict(entry.strip().split(" ", 1) for entry in text.replace("\n", " ").split(","))


_SHORT_CODES = _pairs(_SHORT)
NAMES = _pairs(_NAMES)


class Languages(NamedTuple):
    """A source and a target language that a model translates between, as codes such as `en` or `pt-BR`."""

    src: str
    tgt: str


def check_language(name: str, code: str) -> str:
    """Returns a language code. Raises InputError, which calls it `name`, if it is not one."""
    if not _CODE.fullmatch(code):
        raise InputError(f"{name} must be a language code such as en or pt-BR, got {code!r}.")
    return code


def base(code: str) -> str:
    """Returns a language code without its region or script, and with two letters if it is a longer one of NLLB's
    languages: `pt` for `pt-BR`, `de` for `deu_Latn`."""
    language = code.replace("_", "-").partition("-")[0].lower()
    return _SHORT_CODES.get(language, language)


def languages_in(codes: str) -> Languages | None:
    """Returns the languages that a text such as `en-de` or `en-pt-BR` names, or None."""
    words = codes.split("-")
    halves = [("-".join(words[:i]), "-".join(words[i:])) for i in range(1, len(words))]
    pairs = [Languages(*pair) for pair in halves if all(map(_CODE.fullmatch, pair))]
    return pairs[0] if len(pairs) == 1 else None


def direction(known: Sequence[Languages], tagged: bool, src: str | None, tgt: str | None) -> Languages:
    """Returns the one pair of languages that `src` and `tgt`, as far as they are given, name for a model that has
    `known` ones. They are empty for a model of unknown languages that is not `tagged`. Raises InputError if the model
    has no such direction or several."""
    found = [pair for pair in known if src in (None, pair.src) and tgt in (None, pair.tgt)]
    if len(found) == 1:
        return found[0]
    if not known and src and tgt:
        return Languages(check_language("`from`", src), check_language("`to`", tgt))
    if tagged or (known and not found):
        pairs = ", ".join("-".join(pair) for pair in known) or "which does not record its directions"
        given = " and ".join(f"{name} {code}" for name, code in (("`from`", src), ("`to`", tgt)) if code) or "neither"
        raise InputError(f"`from` and `to` must name one direction of the model, {pairs}, got {given}.")
    return Languages("", "")


def language_name(code: str) -> str:
    """Returns the English name of a language: `German`, `Portuguese (BR)`, or the code itself if it has none."""
    base, _, region = code.partition("-")
    name = NAMES.get(base)
    if name is None:
        return code
    return f"{name} ({region})" if region else name


def languages_record(pairs: Sequence[Languages]) -> list[object] | None:
    """Returns pairs of languages as files record them: [source, target] for one, a list of these for several."""
    return None if not pairs else list(pairs[0]) if len(pairs) == 1 else [list(pair) for pair in pairs]


def languages_from(value: object) -> tuple[Languages, ...]:
    """Returns the pairs of languages that a file records, none for None. Raises InputError for anything else."""
    if value is None:
        return ()
    pairs: list[Any] = value if isinstance(value, list) and value and isinstance(value[0], list) else [value]
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(code, str) for code in pair):
            raise InputError(f"languages must be a source and a target language, got {pair!r}.")
    return tuple(Languages(*(check_language("a language", code) for code in pair)) for pair in pairs)


def tags_from(value: object, pieces: Collection[str]) -> dict[str, str]:
    """Returns the tag of each target language that a file records, none for None. Raises InputError for anything else,
    and for a tag that is not one of `pieces`."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for pair in value.items() for text in pair):
        raise InputError(f"tags must be a tag for each target language, got {value!r}.")
    for code, tag in value.items():
        check_language("the language of a tag", code)
        if tag not in pieces:
            raise InputError(f"the tag of {code} must be a subword of the vocabulary, got {tag!r}.")
    return value


def tags_among(pieces: Sequence[str]) -> dict[str, str]:
    """Returns the tag of each language that pieces such as `>>fr<<` and `>>pt_BR<<` name."""
    codes = {piece[2:-2].replace("_", "-"): piece for piece in pieces if piece[:2] == ">>" and piece[-2:] == "<<"}
    return {code: piece for code, piece in codes.items() if _CODE.fullmatch(code)}


def language_of_file(name: str) -> str | None:
    """Returns the language in which a file name ends, such as `en` for `train.en` and `train.en.gz`, or None.

    Only the codes of ISO 639-1 count, so that `.txt` or `.src` is no language.
    """
    path = PurePath(name)
    ending = (PurePath(path.stem) if path.suffix in _PACKED else path).suffix[1:]
    return ending if ending in NAMES else None

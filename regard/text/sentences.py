"""Long texts split into parts that a model can take, and parts joined again."""

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

Encode = Callable[[Sequence[str]], list[list[int]]]

# Languages that put no space between words, and those of them that put none between sentences.
UNSPACED = {"zh", "zho", "chi", "cmn", "yue", "ja", "jpn", "th", "tha", "lo", "lao", "km", "khm", "my", "mya"}
_UNSPACED_SENTENCES = {"zh", "zho", "chi", "cmn", "yue", "ja", "jpn"}

# Unicode's sentence terminals (in the BMP). Most end a sentence only before white space without a lower-case letter behind.
_TERMINALS = ".!?…․‼‽⁇⁈⁉։؝؞۔܀-܂߹࠷࠹࠽࠾᙮᜵᜶។៕᠃᠉᥄᥅᪨-᪫᭎᭏᭚᭛᭞᭟᭽-᭿᰻᰼᱾᱿⳹-⳻⸮⸼⹓⹔⹠⹡꓿꘎꘏꛳꛷꡶꡷꣎꣏꤯꧈꧉꩝-꩟꫰꫱꯫﹒﹖﹗"
# These end a sentence anywhere: they have no other use, such as in numbers or abbreviations.
_CLEAR_TERMINALS = "。！？｡︒︕︖؟။።፧፨"
_CLOSING = "\"'”’»›)\\]}」』）】》〉〕〗〙〛｣］｝＂＇"
# Before a space, opening quotation marks close: „…“ and »…« in German. French has a space before its closing ones.
_CLOSING_BEFORE_SPACE = rf"(?:[{_CLOSING}“‘«‹]|\s[»›”’](?=\s|$))*"
# A run of terminals is one match, so that the time for a thousand dots is linear.
_SENTENCE_ENDS = re.compile(
    rf"(?P<mark>[{_TERMINALS}]+{_CLOSING_BEFORE_SPACE})(?P<space>\s*)"
    rf"|(?:[{_CLEAR_TERMINALS}]|[।॥](?![\d।॥])|．(?![0-9A-Za-z０-９Ａ-Ｚａ-ｚ]))[{_TERMINALS}{_CLEAR_TERMINALS}]*[{_CLOSING}]*\s*"
)
_OPENING = re.compile(r"[\s\"'“”„‘’‚«»‹›¿¡(\[{–—-]*")

_ABBREVIATIONS = """
    Mr Mrs Ms Mx Dr Drs Prof St Ste Jr Sr Rev Hon Gen Col Capt Lt Sgt Maj Gov Sen Rep Messrs vs etc Inc Ltd Corp Co Bros Mt
    al approx dept cf viz ed eds Hr Fr Hrn Nr Abb Abs Abt Anm Aufl Bd Bde Hrsg hg geb gest bzw vgl ca usw sog evtl ggf inkl
    exkl zzgl Tel Jh Dipl Ing Mag Univ allg bes Mme Mmes Mlle MM Mgr env éd réf Sra Sres Srta Dra Dña Ud Uds Vd Vds Lic Gral
    Avda EE UU Exmo Exma Profa núm pág págs pag pagg Sig Sigg ra dott Avv Mons ecc dhr mevr mw bijv blz enz jl Jhr osv kl jf
    mgr inż ul św ks np itd itp tzn tzw wg hab płk zob tj např tzv atd čj MUDr MVDr PhDr JUDr RNDr resp cca гг ул им др пр
    стр см тыс млн млрд руб коп проф акад доц ред св кв обл пл вул ім напр Δρ κα σελ αρ καθ Sn Doç Av Alb Yrd Öğr vb bkz Cad
    Sok Mah örn özv ifj stb kb ún dl dna jud esim ks ym jne nt lk pvz piem डॉ प्रो स्व ডা ড TP ThS GS Jl Bpk dll dsb Tn Ny
"""
_BEFORE_NUMBERS = """
    No Nos Art Fig Figs Sec Ch chap Eq Vol pp Kap max min Jan Feb Mar Mär Apr Jun Jul Aug Sep Sept Oct Okt Nov Dec Dez
"""
# Initials (J. S. Bach), ordinals (am 3. Mai, Ludwig XIV.) and dotted abbreviations (z.B.) are recognised by their shape.
_WORD_BEGINS = r"(?:^|[\s(\[{\"'“”„‘’‚«»‹›/–—-])"
_ABBREVIATION = re.compile(
    rf"{_WORD_BEGINS}(?:(?:[^\W\d]\.)*[^\W\d]|\d{{1,3}}|[IVX]+|\w*[Ss]tr|(?:\w+\.)?(?i:{'|'.join(_ABBREVIATIONS.split())}))$"
)
_BEFORE_NUMBER = re.compile(rf"{_WORD_BEGINS}(?i:{'|'.join(_BEFORE_NUMBERS.split())})$")
_LONGEST_ABBREVIATION = 16  # characters

_DOUBTFUL_ENDS = re.compile(rf"[{_TERMINALS}]+{_CLOSING_BEFORE_SPACE}\s+")
_CLAUSE_ENDS = re.compile(r"[,;:–—،؛՝၊།]\s+|[，；：、､﹐፣፤፥]\s*")
_SPACES = re.compile(r"\s+")
LONGEST_PIECE = 16  # characters; a text with more than so many times n has more than n subwords


class EncodedText(NamedTuple):
    """A text, or a part of one, and its subwords."""

    text: str
    ids: list[int]


def sentences(text: str) -> list[str]:
    """Split a text into sentences. A doubtful end is none: a long part is better than a torn sentence."""
    parts, start = [], 0
    for end in _SENTENCE_ENDS.finditer(text):
        if end["mark"] is None or _is_end(text, start, end):
            parts.append(text[start : end.end()].strip())
            start = end.end()
    return [part for part in (*parts, text[start:].strip()) if part]


def _is_end(text: str, start: int, end: re.Match[str]) -> bool:
    """Return whether a mark that may have other uses ends the sentence that begins at `start`."""
    opening = _OPENING.match(text, end.end())
    following = text[opening.end() : opening.end() + 1] if opening else ""
    if not end["space"] or following.islower() or following in ".!?…,;:)]}":
        return False
    before = text[max(start, end.start() - _LONGEST_ABBREVIATION) : end.start()]
    is_abbreviation = _ABBREVIATION.search(before) or (following.isdigit() and _BEFORE_NUMBER.search(before))
    return not (end["mark"] == "." and is_abbreviation)


def parts_for(text: str, encode: Encode, *, used_to: int, bearable: int) -> list[EncodedText]:
    """Return the text if it has at most `used_to` subwords, otherwise its sentences. A sentence with more than `bearable`
    subwords is cut into clauses, words, or at worst any pieces, as few as fit. A text that is not cut is encoded once."""
    whole = _fitting(text, encode, bearable)
    if whole is not None and len(whole.ids) <= used_to:
        return [whole]
    found = sentences(text)
    if whole is not None and len(found) == 1:
        return [whole]
    return [part for sentence in found for part in _cut(sentence, encode, used_to, bearable)]


def joined(parts: Sequence[str], language: str) -> str:
    """Join sentences with a space, but in Chinese and Japanese only between ASCII characters."""
    text = ""
    for part in filter(None, parts):
        is_spaced = primary(language) not in _UNSPACED_SENTENCES or (text[-1:].isascii() and part[0].isascii())
        text += f" {part}" if text and is_spaced else part
    return text


def is_unspaced(language: str) -> bool:
    return primary(language) in UNSPACED


def primary(language: str) -> str:
    """Return the primary subtag of a language code: `zh` for zh-TW."""
    return re.split("[-_]", language.lower(), maxsplit=1)[0]


def _fitting(text: str, encode: Encode, limit: int) -> EncodedText | None:
    """Return the encoded text if it has at most `limit` subwords, otherwise None."""
    if len(text) > LONGEST_PIECE * limit:
        return None
    [ids] = encode([text])
    return EncodedText(text, ids) if len(ids) <= limit else None


def _cut(text: str, encode: Encode, limit: int, bearable: int) -> list[EncodedText]:
    """Return the text if it has at most `bearable` subwords, otherwise parts of up to `limit` subwords."""
    if (fitting := _fitting(text, encode, bearable)) is not None:
        return [fitting]
    for ends in (_DOUBTFUL_ENDS, _CLAUSE_ENDS, _SPACES):
        units = _split_after(ends, text)
        packed = list(_packed(units, encode, limit)) if len(units) > 1 else []
        if len(packed) > 1:  # one part would be the whole text again
            return [part for one in packed for part in _cut(one, encode, limit, limit)]
    if len(text) < 2:
        [ids] = encode([text])
        return [EncodedText(text, ids)]
    half = _middle(text)
    return [part for one in (text[:half], text[half:]) for part in _cut(one, encode, limit, limit)]


def _middle(text: str) -> int:
    """Return where to halve a text: not within a character of several code points, unless it is the whole text."""
    half = place = len(text) // 2
    while place and (unicodedata.category(text[place])[0] == "M" or "\u200d" in text[place - 1 : place + 1]):
        place -= 1
    return place or half


def _split_after(ends: re.Pattern[str], text: str) -> list[str]:
    places = [0, *(end.end() for end in ends.finditer(text)), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(places) if start < end]


def _packed(units: Sequence[str], encode: Encode, limit: int) -> Iterator[str]:
    """Join neighbouring units as long as they fit."""
    start, total = 0, 0
    for place, length in enumerate(map(len, encode(units))):
        if total and total + length > limit:
            yield "".join(units[start:place]).strip()
            start, total = place, 0
        total += length
    yield "".join(units[start:]).strip()

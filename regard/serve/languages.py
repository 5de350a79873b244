"""Language codes as people and other programs write them: en, EN-US, zh_Hans."""

from collections.abc import Iterable
from typing import Any

from regard.text.sentences import primary

NAMES = dict(
    pair.split("=")
    for pair in """
    ar=Arabic bg=Bulgarian bn=Bengali ca=Catalan cs=Czech cy=Welsh da=Danish de=German el=Greek en=English
    eo=Esperanto es=Spanish et=Estonian eu=Basque fa=Persian fi=Finnish fr=French ga=Irish gl=Galician he=Hebrew
    hi=Hindi hr=Croatian hu=Hungarian id=Indonesian is=Icelandic it=Italian ja=Japanese ka=Georgian ko=Korean
    la=Latin lt=Lithuanian lv=Latvian mk=Macedonian ms=Malay mt=Maltese nb=Norwegian nl=Dutch no=Norwegian
    pl=Polish pt=Portuguese ro=Romanian ru=Russian sk=Slovak sl=Slovenian sq=Albanian sr=Serbian sv=Swedish
    sw=Swahili ta=Tamil te=Telugu th=Thai tr=Turkish uk=Ukrainian ur=Urdu vi=Vietnamese zh=Chinese
    """.split()
)
AUTO = "auto"


def plain(code: str) -> str:
    """Return a code in lower case and with hyphens: `en-us` for EN_US."""
    return code.strip().lower().replace("_", "-")


def base(code: str) -> str:
    """Return the language of a code: `en` for EN-US."""
    return primary(plain(code))


def name_of(code: str) -> str:
    return NAMES.get(base(code), code)


def matching(code: str, served: Iterable[str]) -> list[str]:
    """Return the served codes that equal this one, or else those of the same language."""
    every = list(served)
    return [one for one in every if plain(one) == plain(code)] or [one for one in every if base(one) == base(code)]


def languages_listed(pairs: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return every language with its possible target languages."""
    every = list(pairs)
    codes = dict.fromkeys([src for src, _ in every] + [tgt for _, tgt in every])
    targets = {code: list(dict.fromkeys(tgt for src, tgt in every if src == code)) for code in codes}
    return [{"code": code, "name": name_of(code), "targets": found} for code, found in targets.items()]

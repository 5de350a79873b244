"""Writes findings as one HTML page in English and Chinese, which needs no network."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import get_args

from regard.lab.finding import Finding, FindingTable, Verdict
from regard.lab.report import claims_in_words, duration, is_number, shown
from regard.lab.words import words
from regard.pages.charts import PageLanguage, Words, bilingual, figure
from regard.pages.template import read

SIGNS: dict[Verdict, str] = {"held": "✓", "did not hold": "✗", "no difference found": "≈", "measured": "·"}


@dataclass(frozen=True)
class Entry:
    finding: Finding
    stored: bool = False  # read from a file


def page(entries: Sequence[Entry], not_run: Sequence[str], language: PageLanguage) -> str:
    """Return the page as HTML. `not_run` names the experiments that were skipped."""
    anchors = _anchors(entries)
    sections = [_section(entry, anchor) for entry, anchor in zip(entries, anchors, strict=True)]
    body = [_summary(entries), _contents(entries, anchors, not_run), *sections]
    template = read("regard.lab", "lab.html")
    html_language = "zh-Hans" if language == "zh" else "en"
    template = template.replace('lang="en" data-language="en"', f'lang="{html_language}" data-language="{language}"')
    return template.replace("<!--BODY-->", "\n".join(body))


def _anchors(entries: Sequence[Entry]) -> list[str]:
    """Return the experiments' names, numbered if they occur more than once."""
    seen: Counter[str] = Counter()
    found = []
    for entry in entries:
        name = re.sub(r"[^\w-]", "-", entry.finding.name)
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return found


def _badge(verdict: Verdict) -> str:
    said = words("verdicts", verdict)
    signed = Words(f"{SIGNS[verdict]} {said.en}", f"{SIGNS[verdict]} {said.zh}")
    return f'<span class="badge {verdict.replace(" ", "-")}">{bilingual(signed)}</span>'


def _summary(entries: Sequence[Entry]) -> str:
    counts = Counter(entry.finding.verdict for entry in entries)
    badges = " ".join(f"{_badge(one)} {counts[one]}" for one in get_args(Verdict) if counts[one])
    return f'<p class="counts">{badges}</p>'


def _contents(entries: Sequence[Entry], anchors: Sequence[str], not_run: Sequence[str]) -> str:
    rows = []
    for entry, anchor in zip(entries, anchors, strict=True):
        one = entry.finding
        rows.append(
            f'<tr><td><a href="#{anchor}">{bilingual(one.title)}</a></td><td>{bilingual(claims_in_words(one.claims))}</td>'
            f'<td>{_badge(one.verdict)}</td><td class="number">{duration(one.seconds)}</td>'
            f"<td>{_said('stored' if entry.stored else 'here')}</td></tr>"
        )
    rows += [f'<tr><td>{escape(name)}</td><td></td><td colspan="3">{_said("not-run")}</td></tr>' for name in not_run]
    head = "".join(f'<th scope="col">{_said(one)}</th>' for one in ("experiment", "claims", "verdict", "seconds", "from"))
    return (
        f'<nav><h2>{_said("experiments")}</h2><div class="scroll"><table class="contents"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></nav>"
    )


def _section(entry: Entry, anchor: str) -> str:
    one = entry.finding
    origin = f"{escape(one.machine)}, {escape(one.date)}"
    mark = f'<span class="stored">{_said("stored")}: {origin}</span>' if entry.stored else ""
    exhibits = "".join([*map(figure, one.charts), *map(_table, one.tables)])
    return (
        f'<section id="{anchor}"><h2>{bilingual(one.title)} {_badge(one.verdict)}</h2>'
        f'<p class="soft">{bilingual(claims_in_words(one.claims))} · <code>{escape(one.name)}</code> {mark}</p>'
        f'<div class="prose"><div class="says"><h3>{_said("says")}</h3>{bilingual(one.claim, "p")}</div>'
        f"<div><h3>{_said('seen')}</h3>{bilingual(one.outcome, 'p')}</div></div>"
        f'<div class="exhibits">{exhibits}</div>{_origin(one)}</section>'
    )


def _table(table: FindingTable) -> str:
    numbers = [all(is_number(row[at]) for row in table.rows) for at in range(len(table.columns))]
    kind = [' class="number"' if one else "" for one in numbers]
    head = "".join(f'<th scope="col"{kind[at]}>{bilingual(column)}</th>' for at, column in enumerate(table.columns))
    wide = " wide" if len(table.columns) > 5 else ""
    cells = [[Words(shown(cell, "en") or "–", shown(cell, "zh") or "–") for cell in row] for row in table.rows]
    rows = "".join(
        f"<tr>{''.join(f'<td{kind[at]}>{bilingual(cell)}</td>' for at, cell in enumerate(row))}</tr>" for row in cells
    )
    return (
        f'<div class="scroll{wide}"><table><caption>{bilingual(table.title)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _origin(one: Finding) -> str:
    """Describe how to reproduce these numbers."""
    facts = {
        "seeds": ", ".join(map(str, one.seeds)) or _said("nothing-random"),
        "took": f"{duration(one.seconds)} s",
        "command": f"<code>{escape(one.command)}</code>",
        "machine": escape(one.machine),
        "date": escape(one.date),
    }
    return "<dl>" + "".join(f"<div><dt>{_said(key)}</dt><dd>{fact}</dd></div>" for key, fact in facts.items()) + "</dl>"


def _said(key: str) -> str:
    return bilingual(words("page", key))

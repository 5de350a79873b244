"""Findings as one page that needs no network, in English and Chinese; a browser shows one of them."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from regard.lab.charts import bilingual, figure
from regard.lab.finding import VERDICTS, Finding, Language, Table, Verdict, Words
from regard.lab.report import claims_in_words, duration, is_number, shown

SIGNS: dict[Verdict, str] = {"held": "✓", "did not hold": "✗", "no difference found": "≈", "measured": "·"}
SAYS = Words("The notes say", "笔记所说")
SEEN = Words("What was seen", "实验所见")
HERE = Words("this run", "本次运行")
STORED = Words("stored result", "已存结果")
NOT_RUN = Words("not run: it was stopped, or the time was over", "未运行：已中断，或时间已到")


@dataclass(frozen=True)
class Entry:
    finding: Finding
    stored: bool = False  # made elsewhere, and read from a file


def page(entries: Sequence[Entry], not_run: Sequence[str], language: Language) -> str:
    """`not_run` are the names of experiments that it did not come to."""
    anchors = _anchors(entries)
    sections = [_section(entry, anchor) for entry, anchor in zip(entries, anchors, strict=True)]
    body = [_summary(entries), _contents(entries, anchors, not_run), *sections]
    template = files("regard.lab").joinpath("lab.html").read_text(encoding="utf-8")
    html_language = "zh-Hans" if language == "zh" else "en"
    return template.replace('lang="en" data-language="en"', f'lang="{html_language}" data-language="{language}"').replace(
        "<!--BODY-->", "\n".join(body)
    )


def _anchors(entries: Sequence[Entry]) -> list[str]:
    """The experiment's name; a number behind it where a stored result has the same."""
    seen: Counter[str] = Counter()
    found = []
    for entry in entries:
        name = re.sub(r"[^\w-]", "-", entry.finding.name)
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return found


def _badge(verdict: Verdict) -> str:
    words = VERDICTS[verdict]
    signed = Words(f"{SIGNS[verdict]} {words.en}", f"{SIGNS[verdict]} {words.zh}")
    return f'<span class="badge {verdict.replace(" ", "-")}">{bilingual(signed)}</span>'


def _summary(entries: Sequence[Entry]) -> str:
    counts = Counter(entry.finding.verdict for entry in entries)
    return '<p class="counts">' + " ".join(f"{_badge(one)} {counts[one]}" for one in VERDICTS if counts[one]) + "</p>"


def _contents(entries: Sequence[Entry], anchors: Sequence[str], not_run: Sequence[str]) -> str:
    heads = (
        Words("experiment", "实验"),
        Words("claims", "论断"),
        Words("verdict", "结论"),
        Words("seconds", "秒"),
        Words("from", "来源"),
    )
    rows = []
    for entry, anchor in zip(entries, anchors, strict=True):
        one = entry.finding
        rows.append(
            f'<tr><td><a href="#{anchor}">{bilingual(one.title)}</a></td><td>{bilingual(claims_in_words(one.claims))}</td>'
            f'<td>{_badge(one.verdict)}</td><td class="number">{duration(one.seconds)}</td>'
            f"<td>{bilingual(STORED if entry.stored else HERE)}</td></tr>"
        )
    rows += [f'<tr><td>{escape(name)}</td><td></td><td colspan="3">{bilingual(NOT_RUN)}</td></tr>' for name in not_run]
    head = "".join(f'<th scope="col">{bilingual(one)}</th>' for one in heads)
    title = bilingual(Words("All experiments", "全部实验"))
    return (
        f'<nav><h2>{title}</h2><div class="scroll"><table class="contents"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></nav>"
    )


def _section(entry: Entry, anchor: str) -> str:
    one = entry.finding
    mark = (
        f'<span class="stored">{bilingual(STORED)}: {escape(one.machine)}, {escape(one.date)}</span>' if entry.stored else ""
    )
    exhibits = "".join([*map(figure, one.charts), *map(_table, one.tables)])
    return (
        f'<section id="{anchor}"><h2>{bilingual(one.title)} {_badge(one.verdict)}</h2>'
        f'<p class="soft">{bilingual(claims_in_words(one.claims))} · <code>{escape(one.name)}</code> {mark}</p>'
        f'<div class="prose"><div class="says"><h3>{bilingual(SAYS)}</h3>{bilingual(one.claim, "p")}</div>'
        f"<div><h3>{bilingual(SEEN)}</h3>{bilingual(one.outcome, 'p')}</div></div>"
        f'<div class="exhibits">{exhibits}</div>{_origin(one)}</section>'
    )


def _table(table: Table) -> str:
    numbers = [all(is_number(row[at]) for row in table.rows) for at in range(len(table.columns))]
    kind = [' class="number"' if one else "" for one in numbers]
    head = "".join(f'<th scope="col"{kind[at]}>{bilingual(column)}</th>' for at, column in enumerate(table.columns))
    wide = " wide" if len(table.columns) > 5 else ""
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td{kind[at]}>{bilingual(Words(shown(cell, 'en') or '–', shown(cell, 'zh') or '–'))}</td>"
            for at, cell in enumerate(row)
        )
        + "</tr>"
        for row in table.rows
    )
    return (
        f'<div class="scroll{wide}"><table><caption>{bilingual(table.title)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _origin(one: Finding) -> str:
    """How to get these numbers again."""
    seeds = ", ".join(map(str, one.seeds))
    facts = [
        (
            Words("seeds", "种子"),
            bilingual(Words(seeds, seeds) if seeds else Words("none: nothing is random", "无：没有随机性")),
        ),
        (Words("took", "用时"), f"{duration(one.seconds)} s"),
        (Words("command", "命令"), f"<code>{escape(one.command)}</code>"),
        (Words("machine", "机器"), escape(one.machine)),
        (Words("date", "日期"), escape(one.date)),
    ]
    return "<dl>" + "".join(f"<div><dt>{bilingual(name)}</dt><dd>{fact}</dd></div>" for name, fact in facts) + "</dl>"

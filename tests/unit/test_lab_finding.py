"""Tests of writing an experiment's findings to JSON and reading them back."""

import json

import pytest

from regard.lab.finding import Finding, FindingTable, from_json, to_json
from regard.pages.charts import BarChart, HeatMap, LineChart, Series, Words


def words(text: str) -> Words:
    return Words(text, f"{text}的中文")


def finding() -> Finding:
    return Finding(
        name="everything",
        claims=("M1", "T2"),
        title=words("title"),
        claim=words("1 < 2 & </script>"),
        verdict="no difference found",
        outcome=words("outcome"),
        tables=(
            FindingTable(
                words("table"), (words("a"), words("b"), words("c"), words("d")), (("plain", 3, 0.1 + 0.2, words("x")),)
            ),
        ),
        charts=(
            LineChart(
                words("lines"),
                words("x"),
                words("y"),
                (Series(words("one"), y=(1.0, 1e-300), x=(1.0, 2.0), low=(0.5, 1e-301), high=(2.0, 1.0)),),
                log_y=True,
            ),
            BarChart(words("bars"), words("y"), (words("g"), words("h")), (Series(words("one"), y=(1.0, -2.0)),)),
            HeatMap(words("heat"), words("x"), words("y"), ("r",), (), ((1.0 / 3.0, -1.0, 0.0),)),
        ),
        seeds=(1, 2, 3),
        seconds=1.25,
        command="regard lab everything",
        machine="a machine",
        date="2026-01-02 03:04 UTC",
    )


def test_json_and_back_is_the_same_to_the_last_digit_and_kind() -> None:
    one = finding()
    [again] = from_json(to_json([one]))
    assert again == one
    assert [type(chart) for chart in again.charts] == [LineChart, BarChart, HeatMap]
    assert [type(cell) for cell in again.tables[0].rows[0]] == [str, int, float, Words]
    assert from_json(to_json([])) == ()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[]", "must be a table"),
        ('{"finding": []}', "did you mean findings"),
        ('{"findings": [{"name": "x"}]}', r"findings\[0\].claims is missing"),
    ],
)
def test_what_is_no_finding_is_refused_in_words(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        from_json(text)


def test_a_damaged_finding_is_refused_in_words() -> None:
    content = json.loads(to_json([finding()]))
    content["findings"][0]["charts"][2]["values"] = [[1.0], [1.0, 2.0]]
    with pytest.raises(ValueError, match="differ in length"):
        from_json(json.dumps(content))
    content["findings"][0]["verdict"] = "hoped"
    with pytest.raises(ValueError, match="'hoped'; it must be one of held"):
        from_json(json.dumps(content))


def test_what_is_not_finite_or_half_translated_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="not finite"):
        Series(words("x"), y=(float("nan"),))
    with pytest.raises(AssertionError, match="one language"):
        Words("only", " ")
    with pytest.raises(AssertionError, match="logarithmic"):
        LineChart(words("t"), words("x"), words("y"), (Series(words("x"), y=(0.0,), x=(1.0,)),), log_y=True)

"""Measure the alignment error rate of a run's cross-attention, by layer, against gold alignments.

    python scripts/alignment_error.py RUN --gold word-align-ja-en --src kftt-ja-en/tune.ja.xz --tgt kftt-ja-en/tune.en.xz

`regard lab alignment` does the same, head by head, for models that it trains itself.
"""

import argparse
from pathlib import Path

from regard.lab.alignment import MEAN, error_rates, read_gold
from regard.text.cleaning import Pair
from regard.text.corpus import read_lines
from regard.translate.alignment import AttentionPlace, place_for
from regard.translate.translator import load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    for name in ("--gold", "--src", "--tgt"):
        parser.add_argument(name, required=True)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    translator = load(arguments.run, device=arguments.device)
    text = [Pair(*pair) for pair in zip(read_lines(arguments.src), read_lines(arguments.tgt), strict=True)]
    gold = read_gold(Path(arguments.gold), text)
    print(f"{len(gold)} sentences of {arguments.gold} found in {arguments.src}")
    rates = {one: rate for one, rate in error_rates(translator, gold).items() if one.head == MEAN}
    used = place_for(1 + max(one.layer for one in rates))
    for one in sorted(rates, key=lambda one: (one.layer, one.where)):
        is_ours = AttentionPlace(one.layer, one.where == "fed-in") == used
        print(f"layer {one.layer + 1}, {one.where:9}: AER {rates[one]:.3f}{'  (what regard uses)' if is_ours else ''}")


if __name__ == "__main__":
    main()

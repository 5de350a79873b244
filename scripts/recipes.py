"""Several ways to train on the same prepared text, side by side: what presets are chosen by.

    regard prepare ... -o prepared
    python scripts/recipes.py prepared -o out --device cuda --jobs 4 --steps 3000 norm=post norm=pre,learning_rate=2e-3

Each recipe is a list of settings (`a=b,c=d`; those of the model or of training, by their own names). The table has the BLEU
of greedy translation and the perplexity of the validation text, for the average of the last checkpoints and the best one.
"""

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

from regard.config import ModelConfig

MODEL_FIELDS = {field.name for field in fields(ModelConfig)}


def train(recipe: str, number: int, options: argparse.Namespace) -> dict[str, Any]:
    folder = options.output / f"{number:02}-{recipe.replace(',', '+')}"
    sets = []
    for setting in filter(None, recipe.split(",")):
        name = setting.partition("=")[0]
        place = "" if name in ("paper", "preset") else ("model." if name in MODEL_FIELDS else "train.")
        sets += ["--set", place + setting]
    arguments = ["--data", str(options.prepared), "-o", str(folder), "--preset", options.preset, "--device", options.device]
    arguments += ["--steps", str(options.steps)] if options.steps else ["--minutes", str(options.minutes)]
    result = subprocess.run(
        [sys.executable, "-m", "regard", "train", *arguments, *sets], capture_output=True, text=True, check=False
    )
    if result.returncode:
        return {"recipe": recipe, "error": result.stderr.strip().splitlines()[-1]}
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    timing = [json.loads(line) for line in (folder / "timing.jsonl").read_text(encoding="utf-8").splitlines()]
    validations = [line for line in lines if "valid_bleu" in line]
    return {
        "recipe": recipe,
        "steps": validations[-1]["step"],
        "average_bleu": round(lines[-1]["average_bleu"], 2),
        "best_bleu": round(max(line["valid_bleu"] for line in validations), 2),
        "average_nll": round(lines[-1]["average_nll"], 4),
        "bleus": [round(line["valid_bleu"], 1) for line in validations],
        "seconds": round(sum(line.get("seconds", 0.0) for line in timing)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=5.0, help="where no --steps are given")
    parser.add_argument("--jobs", type=int, default=1, help="trained at the same time")
    options = parser.parse_args()
    with ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(lambda entry: train(entry[1], entry[0], options), enumerate(options.recipes)):
            print(json.dumps(result, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()

"""Train in several ways on the same text, to compare presets and recipes.

    python scripts/recipes.py recipes/multi30k-en-de.toml --corpora corpora -o out --device cuda --jobs 4 \\
        as-it-is dropout=0.2 learning_rate=4e-3,vocab_size=10000 --seeds 1 2 --minutes 0.9
    python scripts/recipes.py recipes/multi30k-en-de.toml --corpora corpora -o final --device cuda \\
        --seeds 1 2 3 --measure valid test --beam 5
    python scripts/recipes.py prepared -o out --device cuda --jobs 4 --steps 3000 norm=post norm=pre,learning_rate=2e-3

Each way is a list of settings (`a=b,c=d`; those of the model, of training or of the data by their own names, others in full,
as `data.cleaning.max_tokens=100`), which override the recipe, or the preset where prepared text is given. Ways with the same
data settings share one prepared text. A failure is reported, the other ways run, and the exit code is 1; a second call with
the same folder continues where the first was stopped.

The table has the mean, minimum and maximum over the seeds: BLEU on the validation text by greedy search, as logged in
training (of the averaged checkpoints, and the best of all validations); the seconds of training, with validations and
checkpoints; and with --measure the BLEU of `regard evaluate`, cased and lower-cased. out/results.json holds all of it, and
is rewritten after each run.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import fields
from pathlib import Path
from statistics import mean
from typing import Any

from regard.cli.training_flags import within
from regard.config import CorpusConfig, DataConfig, ModelConfig, RunConfig
from regard.data.prepare import prepare
from regard.errors import UserError
from regard.run.checkpoint import Run, write_atomically
from regard.run.metrics import read_lines
from regard.settings import Table, flattened, merged, parse_setting, read_table, read_toml, to_table

AS_IT_IS = "as-it-is"
# Tables of the settings that are given by their own name; all others, `steps` and `seed` too, belong to training.
PLACES = {one.name: "model." for one in fields(ModelConfig)}
PLACES |= {one.name: "data." for one in fields(DataConfig) if one.name != "seed"}
PLACES |= {one.name: "" for one in fields(RunConfig)}

Result = dict[str, Any]


def settings_of(way: str) -> Table:
    """Parse `dropout=0.2,vocab_size=8000` into the tables of a TOML file."""
    tables = []
    for setting in filter(None, way.split(",") if way != AS_IT_IS else ()):
        name = setting.partition("=")[0].strip()
        tables.append(parse_setting(setting if "." in name else PLACES.get(name, "train.") + setting))
    return merged(*tables)


def recipe_of(options: argparse.Namespace) -> Table:
    """Return the settings that all ways share."""
    if options.recipe.is_dir():
        return {"prepared": str(options.recipe.resolve()), "preset": options.preset or "small"}
    recipe = read_toml(options.recipe)
    recipe = within(options.corpora, recipe) if options.corpora else recipe
    return merged(recipe, {"preset": options.preset} if options.preset else {})


def with_end(settings: Table, options: argparse.Namespace) -> Table:
    """Set the length of training: from the command line, else the recipe, else five minutes."""
    train = settings.get("train", {})
    if options.steps or options.minutes:
        train = {key: value for key, value in train.items() if key not in ("steps", "minutes")}
        train |= {"steps": options.steps} if options.steps else {"minutes": options.minutes}
    return settings | {"train": train if {"steps", "minutes"} & train.keys() else train | {"minutes": 5.0}}


def prepared_for(data: Table, folder: Path) -> Path:
    """Return the prepared text for a way's data, made unless another way has the same settings."""
    config = read_table(DataConfig, data, "data")
    name = hashlib.sha256(json.dumps(to_table(config)).encode()).hexdigest()[:8]
    place = folder / f"prepared-{name}"
    if not place.exists():
        prepare(config, place)
    return place.resolve()


def regard(*arguments: str) -> str:
    """Run a command and return an empty string, or a one-sentence error."""
    result = subprocess.run([sys.executable, "-m", "regard", *arguments], capture_output=True, text=True, check=False)
    if result.returncode == 1:  # a fault prints a traceback, which is more than a sentence
        print(result.stderr, file=sys.stderr, flush=True)
    words = (result.stderr or result.stdout).strip().splitlines()
    return "" if result.returncode == 0 else (words[-1] if words else f"exit code {result.returncode}")


def train(way: str, seed: int, settings: Table, options: argparse.Namespace) -> Result:
    """Train one run and measure it."""
    folder = options.output / f"{way.replace(',', '+').replace('/', '_')}-seed-{seed}"
    own: Table = {"seed": seed, "device": options.device} | ({"threads": 1} if options.jobs > 1 else {})
    table = merged(settings, {"train": own})
    sets = [word for name, value in flattened(table).items() for word in ("--set", f"{name}={json.dumps(value)}")]
    result: Result = {"way": way, "seed": seed, "folder": str(folder)}
    if error := regard("train", *sets, "-o", str(folder)):
        return result | {"error": error}
    run = Run(folder)
    metrics, timing = read_lines(run.metrics_path), read_lines(run.timing_path)
    validations = [line for line in metrics if "valid_bleu" in line]
    result |= {
        "steps": metrics[-1]["step"],
        "average_bleu": metrics[-1].get("average_bleu"),
        "best_bleu": max((line["valid_bleu"] for line in validations), default=None),
        "average_nll": metrics[-1]["average_nll"],
        "bleus": [round(line["valid_bleu"], 1) for line in validations],
        "seconds": sum(value for line in timing for name, value in line.items() if name.endswith("seconds")),
        "tokens_per_second": sum(one["tokens"] for one in metrics if "tokens" in one)
        / max(1e-9, sum(line.get("seconds", 0.0) for line in timing)),
    }
    return result | measured(run, options)


def measured(run: Run, options: argparse.Namespace) -> Result:
    """Return the BLEU of beam search by `regard evaluate`, cased and lower-cased, on each requested text."""
    data = run.read_config().data
    corpora = {"valid": (data.valid,) if data.valid else (), "test": data.test}
    found: Result = {}
    for corpus in (one for name in options.measure for one in corpora[name]):
        found |= scores(run, corpus, options)
    return found


def scores(run: Run, corpus: CorpusConfig, options: argparse.Namespace) -> Result:
    name = str(Path(Path(corpus.src).parent.name, Path(corpus.src).name.split(".")[0]))
    output = run.folder / f"measured-{name.replace('/', '-')}"
    translations = output / "translations.txt"
    files = ["--ref", str(corpus.tgt), "--src", corpus.src, "--num-resamples", "40", "--device", options.device]
    found: Result = {}
    for what, system, flags in (
        ("BLEU", str(run.folder), ["--beam", str(options.beam)]),
        ("BLEU, lower-cased", str(translations), ["--lowercase", "--tgt-lang", run.read_config().data.tgt_lang]),
    ):
        if error := regard("evaluate", system, *files, *flags, "-o", str(output)):
            return found | {"error": error}
        report = json.loads((output / "evaluation.json").read_text(encoding="utf-8"))
        [found[f"{name} {what}"]] = (one["score"] for one in report["systems"][0]["scores"] if one["metric"] == "BLEU")
        lines = [one["translations"][0] for one in report["sentences"]]
        translations.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return found


def print_table(ways: Sequence[str], results: Sequence[Result]) -> None:
    """Print the results as a Markdown table for EXPERIMENTS.md."""
    known = {"way", "seed", "folder", "error", "bleus"}
    columns = list(dict.fromkeys(name for one in results for name in one if name not in known))
    print(f"\n| settings | seeds | {' | '.join(name.replace('_', ' ') for name in columns)} |")
    print("|---" * (len(columns) + 2) + "|")
    for way in ways:
        runs = [one for one in results if one["way"] == way]
        done = [one for one in runs if "steps" in one]
        cells = [_spread([one[name] for one in done if one.get(name) is not None]) for name in columns]
        print(f"| {way} | {', '.join(str(one['seed']) for one in done) or 'none'} | {' | '.join(cells)} |")
    for one in results:
        if "error" in one:
            print(f"{one['way']}, seed {one['seed']}: {one['error']}")


def _spread(numbers: Sequence[float]) -> str:
    if not numbers:
        return ""
    form = ",.0f" if all(isinstance(one, int) or abs(one) >= 100 for one in numbers) else ".2f"
    average, least, greatest = (format(one, form) for one in (mean(numbers), min(numbers), max(numbers)))
    return average if len(numbers) == 1 else f"{average} ({least}–{greatest})"


def jobs(options: argparse.Namespace) -> Iterator[tuple[str, Table | str]]:
    """Yield each way with all its settings and its text prepared, or with its error."""
    recipe = recipe_of(options)
    for way in dict.fromkeys(options.ways or [AS_IT_IS]):
        try:
            settings = with_end(merged(recipe, settings_of(way)), options)
            if "prepared" not in settings:
                settings["prepared"] = str(prepared_for(settings.pop("data"), options.output))
            yield way, settings
        except UserError as error:
            yield way, str(error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path, help="a recipe's TOML file, or prepared text")
    parser.add_argument("ways", nargs="*", help=f"settings to try, as a=b,c=d; default: {AS_IT_IS}")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--corpora", type=Path, help="folder of the recipe's files")
    parser.add_argument("--preset", help="default: the recipe's, or small")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0.0, help="without --steps; default: the recipe's, or 5")
    parser.add_argument("--jobs", type=int, default=1, help="runs to train at the same time")
    parser.add_argument("--measure", nargs="+", choices=("valid", "test"), default=[], help="texts for beam search")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--prepare-only", action="store_true", help="only prepare the text, for a later call")
    options = parser.parse_intermixed_args()
    options.output.mkdir(parents=True, exist_ok=True)
    ways = list(jobs(options))
    if options.prepare_only:
        return
    results: list[Result] = [{"way": way, "seed": 0, "error": given} for way, given in ways if isinstance(given, str)]
    with ThreadPoolExecutor(options.jobs) as pool:
        futures = {
            pool.submit(train, way, seed, given, options): (way, seed)
            for way, given in ways
            if not isinstance(given, str)
            for seed in options.seeds
        }
        for future in as_completed(futures):
            way, seed = futures[future]
            try:
                result = future.result()
            except Exception as error:  # whatever fails, the other ways run
                if not isinstance(error, UserError):
                    traceback.print_exc()
                result = {"way": way, "seed": seed, "error": f"{type(error).__name__}: {error}"}
            print(json.dumps(result, ensure_ascii=False), flush=True)
            results.append(result)
            kept = json.dumps(sorted(results, key=lambda one: (one["way"], one["seed"])), ensure_ascii=False, indent=1)
            write_atomically(options.output / "results.json", f"{kept}\n".encode())
    print_table([way for way, _ in ways], results)
    if any("error" in one for one in results):
        sys.exit(1)


if __name__ == "__main__":
    main()

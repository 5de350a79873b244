"""Print sizes and shape of the code as a table of numbers, to compare before and after a change of its layout.

    python scripts/code_size.py

The table counts lines of Python, the modules that `Translator` imports, the modules of the core that import `regard.fast`,
checks for static caches in forward passes and, by translating two sentences with the stored run, the functions of regard
that a translation calls, and how many of them lie on the way from `Translator.translate` to `step`.
"""

import ast
import subprocess
import sys
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "regard"
STORED_RUN = ROOT / "tests" / "runs" / "0.1.0"
CORE = "config settings errors checkpoint text data model search train translate generate evaluate run machine".split()
BESIDE_THE_CORE = ("ablated.py", "onednn.py")
PAPER = ("model/attention.py", "model/transformer.py", "model/layers.py")
FORWARD_PASSES = ("attention", "layers", "transformer", "recurrent", "language")
GPU_ROAD = "kernels fast static_cache packing packed parameters graphs rig board queue fused".split()
LISTING = """import sys, regard.translate.translator
print(sum(n.split('.')[0] == 'regard' and not hasattr(m, '__path__') for n, m in sys.modules.items()))"""


def lines(*paths: Path) -> int:
    files = [file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def core() -> list[Path]:
    """Return the files of the core, without the lab's ablated models and the oneDNN kernels."""
    folders = [file for name in CORE for file in sorted((PACKAGE / name).rglob("*.py"))]
    files = [PACKAGE / f"{name}.py" for name in CORE]
    return [path for path in folders + files if path.exists() and path.name not in BESIDE_THE_CORE]


def imports_of(file: Path) -> set[str]:
    """Return the modules of regard that a file imports anywhere, including inside functions."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("regard."):
            found.add(node.module)
    return found


def files_that_import_the_gpu_road() -> list[str]:
    return [
        str(file.relative_to(PACKAGE))
        for file in core()
        if file.stem not in GPU_ROAD and any(set(module.split(".")) & set(GPU_ROAD) for module in imports_of(file))
    ]


def static_checks() -> int:
    files = [PACKAGE / "model" / f"{name}.py" for name in FORWARD_PASSES]
    return sum(file.read_text(encoding="utf-8").count("isinstance(") for file in files if "Static" in file.read_text())


def crossed() -> tuple[int, int]:
    """Count the functions of regard that a translation calls, and those on the way to `step`."""
    import regard

    translator = regard.load(STORED_RUN, device="cpu")
    called: set[CodeType] = set()
    depths: set[int] = set()

    def look(frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(str(PACKAGE)):
            return
        if "<" not in frame.f_code.co_name:  # comprehensions and lambdas count as part of their functions
            called.add(frame.f_code)
        if frame.f_code.co_name == "step" and "model" in Path(frame.f_code.co_filename).parts:
            above = frame.f_back
            depth = 0
            while above is not None and above.f_code.co_qualname != "Translator.translate":
                depth += above.f_code.co_filename.startswith(str(PACKAGE))
                above = above.f_back
            depths.add(depth)

    sys.setprofile(look)
    try:
        translator.translate(["Wo ist der Bahnhof?", "Guten Morgen!"])
    finally:
        sys.setprofile(None)
    return len(called), min(depths)


def main() -> None:
    modules = subprocess.run([sys.executable, "-c", LISTING], cwd=ROOT, capture_output=True, text=True, check=True)
    num_called, num_hops = crossed()
    table = {
        "attention + transformer + layers, lines": lines(*(PACKAGE / name for name in PAPER)),
        "modules that Translator imports": modules.stdout.strip(),
        "files of the core that import regard.fast": len(files_that_import_the_gpu_road()),
        "isinstance in forward passes beside a static cache": static_checks(),
        "functions that a translation calls": num_called,
        "functions between Translator.translate and step": num_hops,
        "lines of Python, all": lines(PACKAGE),
        "lines of Python, the core": lines(*core()),
        "lines of Python, the lab": lines(PACKAGE / "lab"),
    }
    for what, number in table.items():
        print(f"{what:55} {number:>7}")
    for file in files_that_import_the_gpu_road():
        print(f"  imports regard.fast: {file}")


if __name__ == "__main__":
    main()

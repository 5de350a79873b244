"""`regard doctor`: describe this machine, measure its peak speed, and report problems."""

import json
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import regard
from regard.bench.model import matmul_ceiling, step_flops
from regard.config import ModelConfig
from regard.machine.device import is_short_of_memory, num_cores, processor, synchronize
from regard.machine.load import OtherPrograms
from regard.model.transformer import Transformer

VOCABULARY, LENGTH = 8000, 25  # of the models and sentences whose speed is estimated
FORETOLD = ("small", "base", "big")
REQUIREMENT = re.compile(r"([\w-]+)>=([\d.]+)(?:;(?: .* and)? extra == ['\"](\w+)['\"])?$")  # as pyproject.toml has them
ENOUGH_MEMORY = 2 * 2**30
WORTH_SHORT = 1.5  # ratio of the speeds of a matrix product; the rest of an update is no faster in bfloat16
ENOUGH_DISK = 2 * 2**30


@dataclass(frozen=True)
class Problem:
    what: str
    remedy: str


@dataclass(frozen=True)
class Package:
    name: str
    version: str  # empty: not installed
    extra: str  # of regard, that needs it; empty: all need it


@dataclass(frozen=True)
class DeviceFindings:
    name: str  # as --device takes it
    description: str
    memory_bytes: int
    dtype: str  # that training uses there
    flops: float  # of a matrix product, at best
    bandwidth: float  # bytes a second, at best
    tokens_per_second: dict[str, float]  # upper bound for training each preset, by its matrix products alone
    advice: str = ""


@dataclass(frozen=True)
class Findings:
    regard: str
    system: str
    python: str
    packages: tuple[Package, ...]
    cores: int  # that this process may use
    threads: int  # that torch uses
    free_memory_bytes: int
    free_disk_bytes: int
    disk_bandwidth: float  # bytes a second, written and flushed
    devices: tuple[DeviceFindings, ...]
    problems: tuple[Problem, ...]


def examine() -> Findings:
    """Examine the machine for a few seconds. Nothing is left behind."""
    others = OtherPrograms()
    devices = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    devices += ["mps"] if torch.backends.mps.is_available() else []
    examined = [_examined(name) for name in devices]
    packages, problems = _packages()
    cores = num_cores()
    free_disk, disk_bandwidth, disk_problems = _disk()
    findings = Findings(
        regard=regard.__version__,
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        python=platform.python_version(),
        packages=packages,
        cores=cores,
        threads=torch.get_num_threads(),
        free_memory_bytes=_free_memory(),
        free_disk_bytes=free_disk,
        disk_bandwidth=disk_bandwidth,
        devices=tuple(one for one in examined if isinstance(one, DeviceFindings)),
        problems=(),
    )
    problems += [one for one in examined if isinstance(one, Problem)]
    problems += disk_problems + _machine_problems(findings)
    if complaint := others.complaint(findings.threads):
        problems.append(Problem(complaint, "stop them, or expect training on a CPU to take longer"))
    return replace(findings, problems=tuple(problems))


def _packages() -> tuple[tuple[Package, ...], list[Problem]]:
    """Return the packages that regard requires, with their installed versions, and problems with them."""
    found: list[Package] = []
    problems: list[Problem] = []
    try:
        requirements = metadata.requires("regard") or []
    except metadata.PackageNotFoundError:  # it runs from a checkout that is not installed
        requirements = []
    for line in requirements:
        match = REQUIREMENT.match(line)
        assert match is not None, line
        name, least, extra = match.groups()
        if extra == "dev":
            continue
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            version = ""
        found.append(Package(name, version, extra or ""))
        remedy = f"pip install '{name}>={least}'"
        if version and _numbers(version) < _numbers(least):
            problems.append(Problem(f"{name} is {version}, and regard needs {least} or newer", remedy))
        elif not version and not extra:
            problems.append(Problem(f"{name} is not installed", remedy))
    return tuple(found), problems


def _numbers(version: str) -> list[int]:
    """Return the numbers at the beginning of a version: [2, 13, 0] for 2.13.0+cpu."""
    leading = re.match(r"\d+(\.\d+)*", version)
    return [int(number) for number in leading.group().split(".")] if leading else []


def _free_memory() -> int:
    """Return the bytes of free memory, or 0 if they are not known."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return 0
    return int(re.findall(r"^MemAvailable:\s+(\d+)", lines, flags=re.MULTILINE)[0]) * 1024


def _disk() -> tuple[int, float, list[Problem]]:
    """Return the free space of the current folder, where runs are made, its writing speed, and its problems."""
    try:
        free = shutil.disk_usage(Path()).free
        content = bytes(min(64 * 2**20, free // 2))
        with tempfile.TemporaryFile(dir=Path()) as file:
            began = time.perf_counter()
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            return free, len(content) / (time.perf_counter() - began), []
    except OSError as error:
        problem = Problem(f"this folder cannot be written to ({error.strerror})", "go to one of your own, or give -o")
        return 0, 0.0, [problem]


def _examined(name: str) -> DeviceFindings | Problem:
    """Examine a device. A device that fails, or has no memory left, is a problem to report, not a fault of regard."""
    try:
        difference = _arithmetic_error(torch.device(name))
        if not difference < 1e-2:
            return Problem(f"{name} computes wrongly: a model's output is off by {difference:.2g}", "do not use this device")
        return _measured(torch.device(name))
    except RuntimeError as error:
        if name == "cpu" and not is_short_of_memory(error):  # which has no driver that could be at fault
            raise
        words = str(error).strip().splitlines()[0]
        return Problem(f"{name} cannot be used: {words}", "free its memory, or look at its driver")


def _measured(device: torch.device) -> DeviceFindings:
    on_gpu = device.type == "cuda"
    dtype = torch.bfloat16 if on_gpu else torch.float32
    flops = matmul_ceiling(device, dtype)
    configs = {preset: ModelConfig.preset(preset, vocab_size=VOCABULARY) for preset in FORETOLD}
    speeds = {preset: flops * LENGTH / step_flops(config, 1, LENGTH) for preset, config in configs.items()}
    if on_gpu:
        properties = torch.cuda.get_device_properties(device)
        description, memory = properties.name, properties.total_memory
        advice = ""
    else:
        advice = _advice_on_precision(matmul_ceiling(device, torch.bfloat16), flops)
        description, memory = processor(), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return DeviceFindings(
        name=str(device),
        description=description,
        memory_bytes=memory,
        dtype=str(dtype).removeprefix("torch."),
        flops=flops,
        bandwidth=_bandwidth(device),
        tokens_per_second=speeds,
        advice=advice,
    )


def _advice_on_precision(short: float, full: float) -> str:
    """Recommend bfloat16 on CPUs that have units for it. Others emulate it, and gain no speed."""
    if short < WORTH_SHORT * full:
        return ""
    return f"in bfloat16 {short / 1e9:,.0f} GFLOP/s: --set train.precision=bfloat16 is faster from preset small on"


def _bandwidth(device: torch.device) -> float:
    """Measure the bytes a second of a copy that is too large for caches. Each byte is read once and written once."""
    source = torch.ones(2**26, device=device)  # 256 MiB
    target = torch.empty_like(source)
    seconds = []
    for _ in range(4):
        synchronize(device)
        began = time.perf_counter()
        target.copy_(source)
        synchronize(device)
        seconds.append(time.perf_counter() - began)
    return 2 * source.nbytes / min(seconds[1:])


def _machine_problems(found: Findings) -> list[Problem]:
    problems = []
    if found.threads > found.cores:
        problems.append(
            Problem(
                f"torch uses {found.threads} threads, but this process may use only {found.cores} cores",
                f"set OMP_NUM_THREADS={found.cores}, or train with --set train.threads={found.cores}",
            )
        )
    if 0 < found.free_memory_bytes < ENOUGH_MEMORY:
        problems.append(Problem(f"only {_size(found.free_memory_bytes)} of memory are free", "close other programs"))
    if 0 < found.free_disk_bytes < ENOUGH_DISK:
        problems.append(Problem(f"only {_size(found.free_disk_bytes)} are free on this disk", "make room, or give -o"))
    if not torch.cuda.is_available() and any(Path("/dev").glob("nvidia[0-9]*")):
        built = torch.version.cuda
        reason = "is built without CUDA" if built is None else f"wants CUDA {built}, which the driver does not offer"
        problems.append(
            Problem(f"there is an NVIDIA GPU, but torch {torch.__version__} {reason}", "install another torch or driver")
        )
    if sys.platform == "linux" and not torch.backends.mkldnn.is_available():
        problems.append(Problem("this torch has no oneDNN, so a CPU trains slowly", "install torch from its own wheels"))
    return problems


@torch.no_grad()
def _arithmetic_error(device: torch.device) -> float:
    """Return the largest difference of a tiny model's output from that of the same model in float64 on the CPU."""
    torch.manual_seed(1)
    model = Transformer(ModelConfig.preset("tiny", vocab_size=100)).eval()
    src, tgt = torch.randint(1, 100, (3, 9)), torch.randint(1, 100, (3, 7))
    expected = model.double()(src, tgt)
    found = model.float().to(device)(src.to(device), tgt.to(device))
    return float((found.cpu().double() - expected).abs().max())


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:,.1f} GiB"


def as_json(findings: Findings) -> str:
    return json.dumps(asdict(findings), indent=1, ensure_ascii=False)


def print_findings(findings: Findings) -> None:
    packages = [f"{one.name} {one.version}" for one in findings.packages if one.version]
    packages += [f"no {one.name} (pip install {one.name})" for one in findings.packages if not one.version]
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_row("regard", f"{findings.regard}, Python {findings.python}, {findings.system}")
    table.add_row("packages", ", ".join(packages) or "not known: regard runs from a checkout that is not installed")
    table.add_row("cores", f"{findings.cores} available; torch uses {findings.threads}")
    table.add_row("memory", f"{_size(findings.free_memory_bytes)} free" if findings.free_memory_bytes else "not known")
    table.add_row(
        "disk here", f"{_size(findings.free_disk_bytes)} free, written at {findings.disk_bandwidth / 1e6:,.0f} MB/s"
    )
    for device in findings.devices:
        speeds = ", ".join(f"{speed:,.0f} ({preset})" for preset, speed in device.tokens_per_second.items())
        table.add_row(
            device.name,
            f"{device.description}, {_size(device.memory_bytes)}\n"
            f"at most {device.flops / 1e9:,.0f} GFLOP/s in {device.dtype} and {device.bandwidth / 1e9:,.0f} GB/s,\n"
            f"which would allow training at {speeds} target tokens a second"
            + (f"\n{device.advice}" if device.advice else ""),
        )
    console = Console(highlight=False, markup=False)
    console.print(table)
    for problem in findings.problems:
        console.print(f"problem: {problem.what}; {problem.remedy}", soft_wrap=True)
    if not findings.problems:
        console.print("no problems found; `regard bench model` measures how close training comes to this speed")

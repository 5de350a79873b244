"""Test a server with malformed requests and under load.

    python scripts/load.py RUN --sentences test.de --requests 5000 --seconds 60

It starts three servers, one after the other. The first gets malformed requests, those of scripts/malformed.py and those that
schemathesis generates from the API's description, valid and invalid; its memory is read before and after. The second gets 1,
8, 32 and 128 clients that each send one sentence after the other, then twice as many requests a second as it can answer. The
third translates every request by itself, for comparison. Each answer is compared with that of `regard.load(RUN).translate`.
"""

import argparse
import asyncio
import json
import random
import re
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy
from schemathesis.core.result import Ok

import regard
from regard.serve.settings import DEFAULT_LIMITS
from regard.text.corpus import read_lines
from scripts.malformed import malformed

CLIENTS = (1, 8, 32, 128)
WARM_SECONDS = 5.0
NO_ANSWER, NOT_SENT = 599, 0  # used in place of a status
WARM_UP = 2500  # malformed requests before memory is first read, so that one-time allocations are not taken for a leak


@dataclass
class Results:
    """Results of one kind of load."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)  # of correct answers
    refused: int = 0  # status 429, as expected under overload
    errors: Counter[str] = field(default_factory=Counter)
    mixed_up: int = 0  # answers that belong to another request

    @property
    def throughput(self) -> float:
        return len(self.latencies) / self.seconds

    def quantile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def row(self, what: str) -> str:
        return (
            f"{what:<24} {self.throughput:>9.1f} {1000 * self.quantile(0.5):>9.0f} {1000 * self.quantile(0.95):>9.0f} "
            f"{self.refused:>8} {sum(self.errors.values()):>7} {self.mixed_up:>9}"
        )


HEAD = f"{'load':<24} {'texts/s':>9} {'p50 ms':>9} {'p95 ms':>9} {'429':>8} {'errors':>7} {'mixed up':>9}"


@contextmanager
def serving(run: str, *flags: str) -> Iterator[int]:
    """Start a server and yield its port."""
    command = [sys.executable, "-m", "regard", "serve", run, "--port", "0", *flags]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        said = ""
        assert process.stderr
        while not (address := re.search(r"serves at http://\S+:(\d+)/", said)):
            line = process.stderr.readline()
            if not line:
                raise ValueError(said)
            said += line
        port = int(address[1])
        threading.Thread(target=process.stderr.read, daemon=True).start()  # keep the pipe from filling up
        try:
            yield port
        finally:
            process.terminate()
            process.wait(60)


def memory(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        found = re.search(r"process_resident_memory_bytes (\d+)", answer.read().decode())
    return int(found[1]) if found else 0


def send_own(port: int, run: str, count: int, statuses: Counter[int]) -> None:
    """Send our own list of requests repeatedly; from the second round on, change one byte of each body."""
    session = requests.Session()
    every = malformed(run)
    draw = random.Random(1)
    for number in range(count):
        wrong = every[number % len(every)]
        body = bytearray(wrong.body)
        if number >= len(every) and body:
            body[draw.randrange(len(body))] = draw.randrange(256)
        headers = {"Content-Type": wrong.kind.replace("\x7f", "?"), **dict(wrong.headers)}
        try:
            url = f"http://127.0.0.1:{port}{wrong.path}"
            answer = session.request(wrong.method, url, data=bytes(body), headers=headers, timeout=60)
            statuses[answer.status_code] += 1
        except requests.ConnectionError:
            # The connection was closed while sending, which is allowed only for a body that is too large.
            statuses[413 if len(body) > DEFAULT_LIMITS.body_bytes else NO_ANSWER] += 1
        except requests.Timeout:
            statuses[NO_ANSWER] += 1


def send_made_up(port: int, count: int, statuses: Counter[int]) -> None:
    """Send requests that schemathesis generates from the API's description: for each route, valid and invalid ones."""
    warnings.filterwarnings("ignore", module="schemathesis|hypothesis")
    url = f"http://127.0.0.1:{port}"
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    session = requests.Session()
    each = max(1, count // (len(operations) * len(modes)))
    for operation in operations:
        for mode in modes:
            try:
                _send(operation.as_strategy(mode), url, each, session, statuses)
            except Exception as error:
                if "Unsatisfiable" not in type(error).__name__:  # a route without parameters has no invalid requests
                    raise


def _send(strategy: SearchStrategy[Any], url: str, count: int, session: requests.Session, statuses: Counter[int]) -> None:
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(case=strategy)
    def send(case: Any) -> None:
        try:
            statuses[case.call(base_url=url, session=session, timeout=60).status_code] += 1
        except (requests.ConnectionError, requests.Timeout):
            statuses[NO_ANSWER] += 1
        except (requests.RequestException, UnicodeError):  # requests that its own client cannot send
            statuses[NOT_SENT] += 1

    send()


class Connection:
    """A client's connection, with a minimal HTTP implementation, because a slow client would distort measurements."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, body: bytes) -> tuple[int, bytes]:
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.streams
        head = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        writer.write(f"POST /translate HTTP/1.1\r\n{head}\r\n\r\n".encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = re.search(rb"content-length: (\d+)", answer)
        content = await reader.readexactly(int(length[1])) if length else b""
        if b"connection: close" in answer:
            self.close()
        return int(answer[9:12]), content

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


@dataclass(frozen=True)
class Load:
    """Requests to send and the expected answers."""

    port: int
    bodies: Sequence[bytes]
    expected: Sequence[str]

    async def ask(self, connection: Connection, number: int, results: Results) -> bool:
        """Send one request and return whether it was answered rather than refused."""
        place = number % len(self.bodies)
        began = time.monotonic()
        try:
            status, content = await connection.ask(self.bodies[place])
        except (OSError, asyncio.IncompleteReadError) as error:
            connection.close()
            results.errors[type(error).__name__] += 1
            return True
        if status == 429:
            results.refused += 1
            return False
        if status != 200:
            results.errors[str(status)] += 1
        elif json.loads(content)["translatedText"] != self.expected[place]:
            results.mixed_up += 1
        else:
            results.latencies.append(time.monotonic() - began)
        return True

    async def clients(self, count: int, seconds: float) -> Results:
        """Run `count` clients with one request at a time each; a refused client waits a little."""
        results = Results()
        began = time.monotonic()

        async def client(number: int) -> None:
            connection = Connection(self.port)
            draw = random.Random(number)
            while time.monotonic() - began < seconds:
                if not await self.ask(connection, draw.randrange(len(self.bodies)), results):
                    await asyncio.sleep(0.1)
            connection.close()

        await asyncio.gather(*(client(number) for number in range(count)))
        results.seconds = time.monotonic() - began
        return results

    async def flood(self, rate: float, seconds: float) -> Results:
        """Send `rate` requests a second, whether they are answered or not."""
        results = Results()
        idle: list[Connection] = []
        tasks: set[asyncio.Task[None]] = set()
        began = time.monotonic()

        async def one(number: int) -> None:
            connection = idle.pop() if idle else Connection(self.port)
            await self.ask(connection, number, results)
            idle.append(connection)

        number = 0
        while (now := time.monotonic() - began) < seconds:
            while number < now * rate:
                task = asyncio.create_task(one(number))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                number += 1
            await asyncio.sleep(0.005)
        answered = len(results.latencies)  # answered within the interval; later answers are awaited, but not counted
        results.seconds = time.monotonic() - began
        await asyncio.gather(*tasks)
        for connection in idle:
            connection.close()
        results.latencies = results.latencies[:answered]
        return results


def fuzz(run: str, name: str, count: int, *flags: str) -> None:
    with serving(run, *flags) as port:
        send_own(port, name, WARM_UP, Counter())
        before, statuses = memory(port), Counter[int]()
        send_made_up(port, count // 2, statuses)
        send_own(port, name, count - sum(statuses.values()), statuses)
        after = memory(port)
    failures = sum(number for status, number in statuses.items() if status >= 500 and status != 503)
    print(f"malformed requests: {sum(statuses.values()):,}; 5xx other than 503, or no answer: {failures}")
    names = {NO_ANSWER: "no answer", NOT_SENT: "not sent"}
    print("  " + ", ".join(f"{names.get(status, status)}: {number:,}" for status, number in sorted(statuses.items())))
    change = f"{after / 2**20:.1f} MiB after ({after / before - 1:+.1%})"
    print(f"  memory: {before / 2**20:.1f} MiB before, warmed up by {WARM_UP:,} others; {change}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--sentences", required=True, help="a file of source text; 500 of its lines are asked for")
    parser.add_argument("--requests", type=int, default=5000, help="malformed requests; 0: none")
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of each load")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()

    sentences = [line for line in read_lines(options.sentences) if line.strip()][:500]
    translator = regard.load(options.run, device=options.device)
    data = translator.config.data
    expected = [one.text for one in translator.translate(sentences)]
    languages = {"source": data.src_lang or "src", "target": data.tgt_lang or "tgt"}
    bodies = [json.dumps({"q": sentence, **languages}).encode() for sentence in sentences]
    name = options.run.rstrip("/").rpartition("/")[2]
    del translator  # free the memory for the servers
    flags = ("--device", options.device)

    if options.requests:
        fuzz(options.run, name, options.requests, *flags)
    print(HEAD)
    rates = {}
    with serving(options.run, *flags) as port:
        load = Load(port, bodies, expected)
        asyncio.run(load.clients(4, WARM_SECONDS))
        for count in CLIENTS:
            results = asyncio.run(load.clients(count, options.seconds))
            rates[count] = results.throughput
            print(results.row(f"{count} client{'s' if count > 1 else ''}"), dict(results.errors) or "", flush=True)
        peak = max(rates.values())
        if not peak:
            raise ValueError("no request was answered as it should be")
        flooded = asyncio.run(load.flood(2 * peak, options.seconds))
        print(flooded.row(f"{2 * peak:.0f} requests a second"), dict(flooded.errors) or "", flush=True)
    with serving(options.run, *flags, "--batch-tokens", "1", "--wait-ms", "0", "--queue-tokens", "100000") as port:
        load = Load(port, bodies, expected)
        asyncio.run(load.clients(4, WARM_SECONDS))
        alone = asyncio.run(load.clients(32, options.seconds))
        print(alone.row("32 clients, no batches"), dict(alone.errors) or "", flush=True)
    print(f"\ntwice the capacity: {flooded.throughput / peak:.0%} of the peak")
    print(f"batches: {peak / alone.throughput:.2f} times the throughput of one request at a time")
    print(f"mean length: {statistics.mean(map(len, sentences)):.0f} characters")


if __name__ == "__main__":
    main()

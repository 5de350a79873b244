"""Tests of `regard serve` as a process with a port, other projects' clients, and signals."""

import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import deepl
import pytest
from libretranslatepy import LibreTranslateAPI

import regard
from regard.demo.command import text
from regard.text.corpus import read_lines
from scripts.malformed import malformed
from tests.commands import process

ROOT = Path(__file__).parents[2]
RUN = ROOT / "tests" / "runs" / "0.1.0"
STORED = [json.loads(line) for line in (RUN / "translations.jsonl").read_text(encoding="utf-8").splitlines()]
SENTENCES = [line["source"] for line in STORED]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


class Server(NamedTuple):
    process: "subprocess.Popen[str]"
    port: int
    said: str  # output until it was ready

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def post(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=600) as answer:
            found = re.search(rf"^{name} (\S+)$", answer.read().decode(), flags=re.MULTILINE)
        assert found
        return float(found[1])


@contextmanager
def serving(*arguments: str, run: Path = RUN, program: Sequence[str] = ("-m", "regard")) -> Iterator[Server]:
    """Start a server at a free port and yield it; its last output before it is ready is its address."""
    command = [sys.executable, *program, "serve", str(run), "--port", "0", "--device", "cpu", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as running:
        said = ""
        assert running.stderr
        while not (address := re.search(r"regard serves at http://\S+:(\d+)/", said)):
            line = running.stderr.readline()
            assert line, said
            said += line
        server = Server(running, int(address[1]), said)
        wait_until_ready(server)
        try:
            yield server
        finally:
            if running.poll() is None:
                running.kill()


def wait_until_ready(server: Server) -> None:
    """Wait for a server that has a port, but does not listen yet."""
    for _ in range(6000):
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", server.port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("it never listened")


def stopped(server: Server, number: int) -> tuple[int, str]:
    """Stop a server with a signal, and return its exit code and its remaining output."""
    server.process.send_signal(number)
    _, stderr = server.process.communicate(timeout=600)
    return server.process.returncode, stderr


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


def test_the_client_of_libretranslate(server: Server) -> None:
    client = LibreTranslateAPI(server.url, api_key="any")
    assert client.translate(SENTENCES[0], "de", "en") == STORED[0]["text"]
    assert client.translate(SENTENCES[1], "auto", "en") == STORED[1]["text"]
    assert client.languages()[0] == {"code": "de", "name": "German", "targets": ["en"]}
    assert {one["language"] for one in client.detect(SENTENCES[0])} == {"de", "en"}


def test_the_client_of_deepl(server: Server) -> None:
    client = deepl.DeepLClient("any", server_url=server.url)
    one = client.translate_text(SENTENCES[0], target_lang="EN-US")
    assert isinstance(one, deepl.TextResult)
    assert (one.text, one.detected_source_lang, one.billed_characters) == (STORED[0]["text"], "DE", len(SENTENCES[0]))
    several = client.translate_text(SENTENCES[:5], source_lang="DE", target_lang=deepl.Language.ENGLISH_BRITISH)
    assert isinstance(several, list)
    assert [result.text for result in several] == [line["text"] for line in STORED[:5]]
    assert [language.code for language in client.get_source_languages()] == ["DE"]
    assert [language.code for language in client.get_target_languages()] == ["EN-US", "EN-GB"]
    assert client.get_usage().character.valid
    with pytest.raises(deepl.DeepLException, match="no run that is served here translates"):
        client.translate_text("Guten Morgen!", target_lang="JA")


@pytest.mark.slow
def test_server_and_page_translate_as_python_and_the_command_line_do_also_for_32_at_once(server: Server) -> None:
    """Send 200 sentences, each alone in its request, and in lists, in batches of any composition. The page shows the target
    that it inspects."""
    sentences = list(read_lines(text("test", "de")))[:200]
    python = [one.text for one in regard.load(RUN, device="cpu").translate(sentences)]
    command = [sys.executable, "-m", "regard", "translate", str(RUN), "--device", "cpu"]
    lines = "".join(f"{sentence}\n" for sentence in sentences)
    result = subprocess.run(command, input=lines, capture_output=True, encoding="utf-8", check=True, env=ENVIRONMENT)
    assert result.stdout.splitlines() == python

    def translated(q: str | Sequence[str]) -> Any:
        return server.post("/translate", {"q": q, "source": "de", "target": "en"})["translatedText"]

    def inspected(sentence: str) -> Any:
        return server.post("/inspect", {"run": RUN.name, "text": sentence})["target"]["text"]

    before = server.metric("regard_batch_texts_count")
    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(translated, sentences)) == python
        assert list(pool.map(inspected, sentences)) == python
    assert server.metric("regard_batch_texts_count") - before < len(sentences), "nothing was batched"
    assert [one for start in range(0, 200, 50) for one in translated(sentences[start : start + 50])] == python


def test_what_is_wrong_never_breaks_a_real_server(server: Server) -> None:
    """Send invalid requests through a real connection, and raw bytes that are not HTTP."""
    for wrong in malformed(RUN.name):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
        try:
            headers = {"Content-Type": wrong.kind.replace("\x7f", "?"), **dict(wrong.headers)}
            connection.request(wrong.method, wrong.path, wrong.body, headers)
            assert 400 <= connection.getresponse().status < 500, wrong.what
        except (BrokenPipeError, ConnectionResetError):
            assert "larger" in wrong.what  # it was cut off while it was sent
        finally:
            connection.close()
    for raw in (
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /translate HTTP/1.1\r\nHost: [::1]\r\nContent-Length: -5\r\n\r\n",
        b"POST /translate HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST /translate HTTP/1.1\r\nHost: [::1]\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /translate HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: [::1]\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", server.port), timeout=600) as sock:
            sock.sendall(raw)
            sock.shutdown(socket.SHUT_WR)
            answer = sock.recv(100)
            assert not re.match(rb"HTTP/1.1 5", answer), (raw[:80], answer)
    assert (
        server.post("/translate", {"q": SENTENCES[0], "source": "de", "target": "en"})["translatedText"] == STORED[0]["text"]
    )


def test_a_chunked_body_is_cut_off(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=600) as sock:
        sock.sendall(
            b"POST /translate HTTP/1.1\r\nHost: [::1]\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
        rest, chunks, answer = b"", 0, b""
        sock.setblocking(False)
        while not answer and chunks < 1000:
            answers, takes, _ = select.select([sock], [sock], [], 600)
            if answers:
                answer = sock.recv(1000)
            elif takes:
                chunks += not rest
                rest = rest or chunk
                rest = rest[sock.send(rest) :]
        assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_what_is_running(number: int) -> None:
    """The request waits a second for others, of which there are none; the signal comes while it waits."""
    with serving("--wait-ms", "1000") as server, ThreadPoolExecutor(1) as pool:
        asked = {"q": SENTENCES[0], "source": "de", "target": "en"}
        running = pool.submit(server.post, "/translate", asked)
        while not server.metric("regard_queue_requests"):
            if running.done():  # this process slept longer than the request waited
                running = pool.submit(server.post, "/translate", asked)
        code, said = stopped(server, number)
        assert running.result(600) == {"translatedText": STORED[0]["text"]}
        assert code in ((0, 130) if number == signal.SIGINT else (0,))
        assert said == ""


def test_who_hangs_up_is_not_worked_for() -> None:
    """The request waits a second for others, and its client disconnects in that second; if the machine is so busy that this
    comes too late, try again."""
    body = json.dumps({"q": SENTENCES[0], "source": "de", "target": "en"}).encode()
    head = (
        f"POST /translate HTTP/1.1\r\nHost: [::1]\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )

    def is_worked_for(server: Server) -> bool:
        before = server.metric("regard_batch_texts_sum")
        with socket.create_connection(("127.0.0.1", server.port), timeout=600) as sock:
            sock.sendall(head.encode() + body)
            while not server.metric("regard_queue_requests") and server.metric("regard_batch_texts_sum") == before:
                pass
        while server.metric("regard_queue_requests"):
            pass
        assert server.post("/translate", {"q": SENTENCES[0], "source": "de", "target": "en"})  # earlier requests are done
        return server.metric("regard_batch_texts_sum") > before + 1  # this one

    with serving("--wait-ms", "1000") as server:
        assert not all(is_worked_for(server) for _ in range(20))
        assert stopped(server, signal.SIGTERM) == (0, "")


def test_who_may_ask_is_said_and_kept() -> None:
    with serving("--host", "0.0.0.0") as server:
        assert "warning: anyone who can reach this machine may use the server" in server.said
        assert server.post("/translate", {"q": "", "source": "de", "target": "en"}) == {"translatedText": ""}
        assert stopped(server, signal.SIGTERM) == (0, "")
    with serving("--host", "0.0.0.0", "--api-key", "secret") as server:
        assert "anyone who can reach" not in server.said
        assert LibreTranslateAPI(server.url, api_key="secret").translate(SENTENCES[0], "de", "en") == STORED[0]["text"]
        with pytest.raises(deepl.AuthorizationException):
            deepl.DeepLClient("wrong", server_url=server.url).translate_text("a", target_lang="EN-US")


def test_mistakes_get_a_sentence(server: Server) -> None:
    def said(*arguments: str) -> str:
        result = process.run("serve", *arguments)
        assert result.returncode == 2
        assert "Traceback" not in result.stderr
        return result.stderr

    assert "try another --port" in said(str(RUN), "--port", str(server.port))
    assert "there is no run /no/such/run" in said("/no/such/run", "--port", "0")
    assert "there is no address" in said(str(RUN), "--host", "no.such.host.invalid")
    assert "an API key is empty" in said(str(RUN), "--api-key", " ")


def test_without_fastapi_one_sentence_says_what_to_install() -> None:
    script = """
import sys
sys.modules["fastapi"] = sys.modules["starlette"] = sys.modules["uvicorn"] = None
sys.argv = ["regard", "serve", "somewhere"]
from regard.__main__ import main
main()
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert result.returncode == 2
    assert result.stderr == "regard: regard serve needs fastapi and uvicorn: pip install fastapi uvicorn\n"


@pytest.mark.skipif(not shutil.which("curl") and "CI" not in os.environ, reason="there is no curl here")
def test_what_the_documentation_shows(tmp_path: Path) -> None:
    """Run every command of docs/serving.md that calls a server, and the one that starts it."""
    blocks = re.findall(
        r"^```sh served\n(.*?)^```$", (ROOT / "docs" / "serving.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    first, *commands = [line for block in blocks for line in block.splitlines()]
    assert first == "regard serve runs/mine"
    assert len(commands) >= 10
    (tmp_path / "mine").symlink_to(RUN)
    with serving(run=tmp_path / "mine") as server:
        for command in commands:
            assert command.startswith("curl http://127.0.0.1:8000/")
            here = command.replace("http://127.0.0.1:8000", server.url) + " --silent --fail"
            answer = subprocess.run(here, shell=True, capture_output=True, text=True, check=True).stdout
            assert answer.startswith("# HELP") if "/metrics" in command else json.loads(answer)

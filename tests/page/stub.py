"""A minimal server for the page: its files, and answers straight from `regard.inspection`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from regard.inspection.look import Question, describe, look, look_at_head
from regard.model.trace import Head, Intervention
from regard.pages.template import DRAWER
from regard.run.checkpoint import Run
from regard.run.metrics import read_lines
from regard.serve.runs import NAMELESS
from regard.translate.search import Search
from regard.translate.translator import Translator, load

PAGE = Path(__file__).parents[2] / "regard" / "serve" / "page"
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class Served:
    """Runs by name, and the answers to questions about them."""

    def __init__(self, runs: dict[str, Path]) -> None:
        self.folders = runs
        self.translators: dict[str, Translator] = {name: load(folder, device="cpu") for name, folder in runs.items()}
        self.lock = Lock()
        self.is_finished = True

    def get(self, path: str) -> Any:
        if path == "/runs":
            return [{"name": name, **languages(one)} for name, one in self.translators.items()]
        name = path.split("/")[2]
        if path.endswith("/training"):
            run = Run(self.folders[name])
            steps = self.translators[name].config.train.steps
            metrics = read_lines(run.metrics_path)
            return {
                "metrics": metrics,
                "timing": read_lines(run.timing_path),
                "steps": steps,
                "is_finished": self.is_finished,
            }
        return describe(self.translators[name])

    def post(self, path: str, asked: dict[str, Any]) -> Any:
        if path == "/translate":
            return {"translatedText": self.translated(asked)}
        translator, question = self.translators[asked["run"]], question_of(asked)
        with self.lock:
            if path == "/inspect/head":
                return look_at_head(translator, question, Head(asked["site"], asked["layer"], asked["head"]))
            return look(translator, question)

    def translated(self, asked: dict[str, Any]) -> str:
        """Translate line by line, by the first run for these languages."""
        wanted = {"src_lang": asked["source"], "tgt_lang": asked["target"]}
        translator = next(one for one in self.translators.values() if languages(one) == wanted)
        search = Search(beam=asked["beam"], alpha=float(asked["alpha"]))
        with self.lock:
            return "\n".join(one.text for one in translator.translate(asked["q"].split("\n"), search))


def languages(translator: Translator) -> dict[str, str]:
    data = translator.config.data
    return {"src_lang": data.src_lang or NAMELESS[0], "tgt_lang": data.tgt_lang or NAMELESS[1]}


def question_of(asked: dict[str, Any]) -> Question:
    """Convert a request to a `Question`. JSON has one kind of number, so floats may arrive as integers."""
    asked = asked | {name: float(asked[name]) for name in ("alpha", "score_scale") if name in asked}
    intervention = Intervention(
        heads_off=frozenset(Head(*head) for head in asked.get("heads_off", [])),
        score_scale=asked.get("score_scale"),
        positions=asked.get("positions", True),
        causal=asked.get("causal", True),
    )
    told: dict[str, Any] = {
        name: asked[name] for name in ("text", "part", "target", "prefix", "beam", "alpha") if name in asked
    }
    told |= {name: tuple(asked[name]) for name in ("target_pieces", "prefix_pieces") if asked.get(name) is not None}
    return Question(**told, intervention=intervention)


@contextmanager
def serving(runs: dict[str, Path]) -> Iterator[tuple[str, Served]]:
    """Start a server, and yield its address and its `Served`."""
    served = Served(runs)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = "index.html" if self.path == "/" else self.path.removeprefix("/page/")
            path = DRAWER if name == DRAWER.name else PAGE / name
            if path.is_file():
                self._answer(200, KINDS[path.suffix], path.read_bytes())
            else:
                self._answer(200, "application/json", json.dumps(served.get(self.path)).encode())

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                self._answer(200, "application/json", json.dumps(served.post(self.path, asked)).encode())
            except ValueError as error:
                self._answer(422, "application/json", json.dumps({"error": str(error)}).encode())

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            with suppress(ConnectionError):  # nobody waits any more
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", served
    finally:
        server.shutdown()
        server.server_close()

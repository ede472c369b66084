"""A server on a free port of localhost, in a thread, and a small client."""

import http.client
import json
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, Any
from unittest.mock import patch

from regard.serve.app import create_app
from regard.serve.served_models import ModelPool
from regard.serve.server import Server, build_config, open_socket
from regard.serve.settings import ServeSettings

JSON = {"Content-Type": "application/json"}
COMMAND = "import sys; from regard.cli import main; sys.exit(main())"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        assert list(self.json) == ["error"]
        return self.json["error"]

    @property
    def events(self) -> list[tuple[str, Any]]:
        """The server-sent events."""
        pairs = [each.split("\n") for each in self.body.decode().split("\n\n")[:-1]]
        return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in pairs]


class Client:
    """Sends requests to a server."""

    def __init__(self, port: int, lines: list[str]) -> None:
        self.port, self.lines = port, lines
        self.address = f"http://127.0.0.1:{port}"

    @property
    def logged(self) -> list[dict[str, Any]]:
        """The log of the server; complete once it has stopped."""
        return [json.loads(line) for line in self.lines]

    def ask(self, path: str, content: Any = None, method: str | None = None, **headers: str) -> Answer:
        """Send bytes unchanged, anything else as JSON."""
        body = content if content is None or isinstance(content, bytes) else json.dumps(content).encode()
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method or ("GET" if body is None else "POST"), path, body, {**JSON, **names})
            response = connection.getresponse()
            headers_ = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, headers_, response.read())
        finally:
            connection.close()


@contextmanager
def running(models: Any, **settings: Any):
    """Yield a client of a server with these models, or with a pool of models."""
    options = ServeSettings(**{"port": 0, **settings})
    pool = models if isinstance(models, ModelPool) else ModelPool(models)
    lines: list[str] = []
    started = threading.Event()
    with patch("regard.serve.log.write_line", lines.append), open_socket(options) as listening:
        server = Server(build_config(create_app(pool, options), options), started.set)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        assert started.wait(30)
        yield Client(listening.getsockname()[1], lines)
        server.should_exit = True
        thread.join()


@dataclass(frozen=True)
class Process:
    """The command in its own process, and a client."""

    process: subprocess.Popen[str]
    log: IO[str]
    client: Client

    def end(self, kind: signal.Signals = signal.SIGTERM) -> list[dict[str, Any]]:
        """Stop it by a signal, check stdout and the exit status, and return the log."""
        self.process.send_signal(kind)
        out, _ = self.process.communicate(timeout=60)
        assert (self.process.returncode, out) == (0, "")
        self.log.seek(0)
        return [json.loads(line) for line in self.log]


@contextmanager
def in_process(*arguments: object, max_files: int | None = None):
    """Yield a server in its own process. It logs to a file, since a full pipe would block it.

    Args:
        arguments: Of the command.
        max_files: Limit of open files.
    """
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({max_files}, {max_files})); "
    code = COMMAND if max_files is None else limit + COMMAND
    line = [sys.executable, "-c", code, "serve", *map(str, arguments), "--port", "0", "--device", "cpu"]
    with TemporaryFile("w+") as log, subprocess.Popen(line, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            yield Process(process, log, Client(int(address.rpartition(":")[2].strip("/")), []))
        finally:
            process.kill()

"""Load-test a server on the loopback: many clients at once, every answer checked, its memory watched.

    python benchmarks/serve.py                 # 200 clients, 20,000 requests, a small model trained first
    python benchmarks/serve.py --quick         # 20 clients, 1,000 requests
    python benchmarks/serve.py runs/reverse    # a run of yours, of pairs of texts over --alphabet

Each client asks for the answers to texts of its own and compares each with what the model says when it is
called in this process. Meanwhile other clients send slowly, cancel, send bodies of 10 MB and deeply nested
JSON, and halfway through the run folder of a second model is deleted. Prints the throughput, the latency and
the memory of the server; exits with 1 if an answer is wrong or missing, or if the memory grows without end.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

COMMAND = "import sys; from regard.cli import main; sys.exit(main())"
TEXTS = 500
MAX_GROWTH = 50.0
"""Megabytes that the server may grow by after the first tenth of the requests."""

RECIPE = {
    "data": {"train": "reverse", "corpus_size": 1000, "corpus": {"min_length": 1, "max_length": 8, "alphabet": "abcd"}},
    "model": {"name": "bahdanau", "hidden": 32, "embedding": 32, "dropout": 0.0},
    "training": {"steps": 300, "batch_tokens": 500, "learning_rate": 0.01, "validate_every": 300},
}
HEAD = "Host: localhost\r\nContent-Type: application/json\r\n"
DEEP = b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
LARGE = b'{"text": "' + b"a" * 10_000_000 + b'"}'


def draw_texts(alphabet: str, count: int) -> list[str]:
    """Return different texts of one to eight letters."""
    draw = random.Random(1)
    texts: dict[str, None] = {}
    while len(texts) < count:
        texts[" ".join(draw.choices(alphabet, k=draw.randint(1, 8)))] = None
    return list(texts)


def read_memory(process: int) -> float:
    """Return the resident memory of a process in megabytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


async def read_response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the status and the body of a response."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.split("content-length: ")[1].split("\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(length)


@dataclass
class Load:
    """Clients that share a number of requests, and what came of them."""

    port: int
    expected: dict[str, str]  # text -> answer of the model alone
    left: int
    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    retries: int = 0
    disturbances: Counter[str] = field(default_factory=Counter)

    def connect(self) -> Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        return asyncio.open_connection("127.0.0.1", self.port)

    async def send(self, body: bytes, path: str = "/api/predict") -> tuple[int, bytes]:
        """Send one request on a connection of its own."""
        reader, writer = await self.connect()
        writer.write(f"POST {path} HTTP/1.1\r\n{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        response = await read_response(reader)
        writer.close()
        return response

    async def get(self, path: str) -> tuple[int, str]:
        reader, writer = await self.connect()
        writer.write(f"GET {path} HTTP/1.1\r\n{HEAD}\r\n".encode())
        status, body = await read_response(reader)
        writer.close()
        return status, body.decode()

    async def run_client(self, number: int) -> None:
        """Send requests one after the other on one connection until all are sent."""
        reader, writer = await self.connect()
        draw, texts = random.Random(number), list(self.expected)
        while self.left > 0:
            self.left -= 1
            text, model = draw.choice(texts), draw.choice(("kept", "deleted"))
            body = json.dumps({"model": model, "text": text, "beam": 1}).encode()
            request = f"POST /api/predict HTTP/1.1\r\n{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body
            started, status = time.perf_counter(), 503
            while status == 503:
                writer.write(request)
                status, content = await read_response(reader)
                if status == 503:
                    self.retries += 1
                    await asyncio.sleep(0.1)
            self.seconds.append(time.perf_counter() - started)
            answer = json.loads(content)
            if (status, answer.get("model"), answer.get("text")) != (200, model, self.expected[text]):
                self.wrong.append(f"{model}, {text}: {status} {answer}")
        writer.close()

    async def disturb(self, kind: str, action: Callable[[], Awaitable[bool]]) -> None:
        """Repeat a disturbance until all requests are sent."""
        while self.left > 0:
            self.disturbances[kind] += 1
            if not await action():
                self.wrong.append(f"{kind}: not answered as expected")
            await asyncio.sleep(0.2)

    async def send_slowly(self) -> bool:
        """Send a request in small parts; it is answered like any other."""
        text, answer = next(iter(self.expected.items()))
        body = json.dumps({"text": text, "beam": 1}).encode()
        reader, writer = await self.connect()
        request = f"POST /api/predict HTTP/1.1\r\n{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body
        for start in range(0, len(request), 20):
            writer.write(request[start : start + 20])
            await writer.drain()
            await asyncio.sleep(0.05)
        status, content = await read_response(reader)
        writer.close()
        return (status, json.loads(content).get("text")) == (200, answer)

    async def hang(self) -> bool:
        """Send half of the headers and leave after a second."""
        _, writer = await self.connect()
        writer.write(b"POST /api/predict HTTP/1.1\r\nHost: loc")
        await asyncio.sleep(1)
        writer.close()
        return True

    async def cancel(self) -> bool:
        """Send a request and leave before the answer."""
        for path in ("/api/predict", "/api/stream"):
            body = json.dumps({"text": "a b c d a b c d", "beam": 5}).encode()
            _, writer = await self.connect()
            writer.write(f"POST {path} HTTP/1.1\r\n{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()
            writer.close()
        return True

    async def send_large(self) -> bool:
        return (await self.send(LARGE))[0] == 413

    async def send_deep(self) -> bool:
        return (await self.send(DEEP))[0] in (400, 422)

    async def run(self, clients: int) -> None:
        """Run all clients and all disturbances."""
        disturbances = {
            "slow": self.send_slowly,
            "half headers": self.hang,
            "canceled": self.cancel,
            "10 MB": self.send_large,
            "nested": self.send_deep,
        }
        await asyncio.gather(
            *(self.run_client(number) for number in range(clients)),
            *(self.disturb(kind, action) for kind, action in disturbances.items()),
        )


async def watch(load: Load, clients: int, process: int, folder: Path) -> list[float]:
    """Run the clients; delete a run folder halfway; return the memory of the server after each tenth."""
    total, memory = load.left, [read_memory(process)]
    work = asyncio.create_task(load.run(clients))
    while not work.done():
        if len(load.seconds) >= len(memory) * total / 10:
            memory.append(read_memory(process))
        if folder.exists() and len(load.seconds) >= total / 2:
            shutil.rmtree(folder)
        await asyncio.sleep(0.05)
    await work
    status, body = await load.get("/ready")
    if (status, folder.exists()) != (503, False):
        load.wrong.append(f"/ready after the run folder was deleted: {status} {body}")
    _, metrics = await load.get("/metrics")
    counts = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
    answered = int(counts['regard_requests_total{route="/api/predict",status="200"}'])
    if answered < total:
        load.wrong.append(f"/metrics counts {answered} answers")
    return [*memory, read_memory(process)]


def measure(run: Path, clients: int, requests: int, alphabet: str, log: IO[str]) -> int:
    """Serve a run twice, put it under load, and print the results; return the exit status."""
    from regard import load as load_run

    expected = {
        prediction.source: prediction.text for prediction in load_run(run).predict(draw_texts(alphabet, TEXTS), beam=1)
    }
    with TemporaryDirectory() as name:
        folders = [Path(name) / "kept", Path(name) / "deleted"]
        for folder in folders:
            shutil.copytree(run, folder)
        line = [sys.executable, "-c", COMMAND, "serve", *map(str, folders), "--port", "0", "--device", "cpu"]
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=log, text=True) as server:
            assert server.stdout is not None
            try:
                load = Load(int(server.stdout.readline().rpartition(":")[2].strip("/\n")), expected, requests)
                started = time.perf_counter()
                memory = asyncio.run(watch(load, clients, server.pid, folders[1]))
                seconds = time.perf_counter() - started
            finally:
                server.terminate()
    if server.returncode:
        load.wrong.append(f"the server exited with {server.returncode}")
    return report(load, seconds, memory, clients, requests)


def report(load: Load, seconds: float, memory: list[float], clients: int, requests: int) -> int:
    """Print the results; return 1 if an answer was wrong or lost, or the memory grew too much."""
    latencies = sorted(load.seconds)
    median, high = (1000 * latencies[int(share * len(latencies))] for share in (0.5, 0.99))
    print(
        f"{len(latencies)} requests of {clients} clients in {seconds:.1f} s, {len(latencies) / seconds:.0f} per second"
    )
    print(f"latency: median {median:.0f} ms, 99th percentile {high:.0f} ms")
    print("meanwhile: " + ", ".join(f"{count} {kind}" for kind, count in load.disturbances.items()))
    print(f"retries after 503: {load.retries}; wrong or lost: {len(load.wrong) + requests - len(latencies)}")
    print("memory after each tenth, MB: " + ", ".join(f"{megabytes:.0f}" for megabytes in memory))
    with suppress(OSError):
        print(f"{os.cpu_count()} cores, load average at the end {os.getloadavg()[0]:.1f}")
    growth = max(memory) - memory[1]
    if growth > MAX_GROWTH:
        load.wrong.append(f"the memory grew by {growth:.0f} MB after the first tenth")
    for line in load.wrong[:10]:
        print(line)
    return 1 if load.wrong or len(latencies) != requests else 0


def main() -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(description="Load-test a server on the loopback.")
    parser.add_argument("run", nargs="?", type=Path, help="a run folder of a model of pairs; trained if not given")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--quick", action="store_true", help="20 clients, 1,000 requests")
    parser.add_argument("--alphabet", default="abcd")
    options = parser.parse_args()
    clients, requests = (20, 1000) if options.quick else (options.clients, options.requests)
    with TemporaryDirectory() as name, (Path(name) / "log").open("w+") as log:
        run = options.run or Path(name) / "reverse"
        if options.run is None:
            from regard import train

            train(RECIPE, run, quiet=True)
        status = measure(run, clients, requests, options.alphabet, log)
        log.seek(0)
        bugs = [line for line in log if json.loads(line)["event"] == "bug"]
    print(f"internal errors in the log: {len(bugs)}")
    return 1 if bugs else status


if __name__ == "__main__":
    sys.exit(main())

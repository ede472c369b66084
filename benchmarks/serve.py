"""Put a server under load on the loopback: many clients at once, every answer checked, its memory watched.

    python benchmarks/serve.py runs/reverse --clients 200 --requests 20000

Each client asks for the answers to texts of its own, all different, and compares each with
what the model says when it is called in this process. Prints how many requests were
answered a second, how long they took, and the memory of the server after each tenth.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from pathlib import Path

COMMAND = "import sys; from regard.cli import main; sys.exit(main())"
TEXTS = 500


def texts_of(alphabet: str, count: int) -> list[str]:
    """Different texts of one to eight letters."""
    draw = random.Random(1)
    found: dict[str, None] = {}
    while len(found) < count:
        found[" ".join(draw.choices(alphabet, k=draw.randint(1, 8)))] = None
    return list(found)


def memory_of(process: int) -> float:
    """The megabytes that a process holds."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, content: dict[str, object]
) -> tuple[int, str]:
    """One request on an open connection: the status, and the text of the answer."""
    body = json.dumps(content).encode()
    head = "POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
    answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(answer.split("content-length: ")[1].split("\r\n")[0])
    found = json.loads(await reader.readexactly(length))
    return int(answer.split()[1]), found.get("text", found.get("error"))


class Load:
    """Clients that share a number of requests."""

    def __init__(self, port: int, expected: dict[str, str], requests: int) -> None:
        self.port, self.expected, self.left = port, expected, requests
        self.texts = list(expected)
        self.seconds: list[float] = []
        self.wrong: list[str] = []
        self.refused = 0

    async def client(self, number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        draw = random.Random(number)
        while self.left > 0:
            self.left -= 1
            await self.one(reader, writer, draw.choice(self.texts))
        writer.close()

    async def one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: str) -> None:
        """One request, again for as long as the server is too busy."""
        began = time.perf_counter()
        status, found = await ask(reader, writer, {"text": text, "beam": 1})
        while status == 503:
            self.refused += 1
            await asyncio.sleep(0.1)
            status, found = await ask(reader, writer, {"text": text, "beam": 1})
        self.seconds.append(time.perf_counter() - began)
        if status != 200 or found != self.expected[text]:
            self.wrong.append(f"{text}: {status} {found}")

    async def run(self, clients: int) -> None:
        await asyncio.gather(*(self.client(number) for number in range(clients)))


async def watched(load: Load, clients: int, process: int) -> list[float]:
    """Run the clients; the memory of the server after each tenth of the requests."""
    total, memory = load.left, [memory_of(process)]
    work = asyncio.create_task(load.run(clients))
    while not work.done():
        if len(load.seconds) >= len(memory) * total / 10:
            memory.append(memory_of(process))
        await asyncio.sleep(0.05)
    await work
    return [*memory, memory_of(process)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Put a server under load on the loopback.")
    parser.add_argument("run", help="a run folder of a model of pairs")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--alphabet", default="abcd")
    options = parser.parse_args()

    from regard import load as load_run

    texts = texts_of(options.alphabet, TEXTS)
    expected = {found.source: found.text for found in load_run(options.run).predict(texts, beam=1)}
    line = [sys.executable, "-c", COMMAND, "serve", options.run, "--port", "0", "--device", "cpu"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        load = Load(int(server.stdout.readline().rpartition(":")[2].strip("/\n")), expected, options.requests)
        began = time.perf_counter()
        memory = asyncio.run(watched(load, options.clients, server.pid))
        seconds = time.perf_counter() - began
        server.terminate()
    took = sorted(load.seconds)
    print(f"{len(took)} requests of {options.clients} clients in {seconds:.1f} s, {len(took) / seconds:.0f} a second")
    print(f"median {1000 * took[len(took) // 2]:.0f} ms, 99th of 100 {1000 * took[int(0.99 * len(took))]:.0f} ms")
    print(f"asked again after 503: {load.refused}; wrong answers: {len(load.wrong)}; stopped with {server.returncode}")
    print("memory after each tenth, MB: " + ", ".join(f"{each:.0f}" for each in memory))
    for line_ in load.wrong[:10]:
        print(line_)
    return 1 if load.wrong or len(took) != options.requests or server.returncode else 0


if __name__ == "__main__":
    sys.exit(main())

"""Latency and throughput of `rl-training serve`, for a run and some numbers of clients.

    python benchmarks/serve.py runs/ppo/CartPole-v1/… --clients 1,8,64 --seconds 5

The server is a process of its own. The clients are coroutines of this one, each with one connection that it asks again
as soon as it has an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from rl_training.runtime.opening import load_policy


async def ask(port: int, body: bytes, until: float) -> list[float]:
    """Seconds of each request on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = ("POST /act HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", f"Content-Length: {len(body)}")
    request, seconds = "\r\n".join([*lines, "", ""]).encode() + body, []
    while time.perf_counter() < until:
        started = time.perf_counter()
        writer.write(request)
        header = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in header.lower().split(b"\r\n") if line.startswith(b"content-length"))
        await reader.readexactly(int(length.split(b":")[1]))
        if not header.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(header.decode())
        seconds.append(time.perf_counter() - started)
    writer.close()
    return seconds


async def measure(port: int, body: bytes, clients: int, seconds: float) -> dict[str, float]:
    until = time.perf_counter() + seconds
    times = np.concatenate(await asyncio.gather(*(ask(port, body, until) for _ in range(clients))))
    p50, p99 = np.quantile(times, [0.5, 0.99]) * 1e3
    return {"clients": clients, "requests_per_s": len(times) / seconds, "p50_ms": float(p50), "p99_ms": float(p99)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--clients", default="1,8,64")
    parser.add_argument("--seconds", type=float, default=5.0)
    args = parser.parse_args()
    observation = load_policy(args.run).spaces.observation.sample()
    body = json.dumps({"obs": np.asarray(observation).tolist()}).encode()
    command = [sys.executable, "-m", "rl_training", "serve", str(args.run), "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        assert server.stderr is not None
        line = next(line for line in server.stderr if line.startswith("serving"))
        port = int(line.partition(";")[0].rpartition(":")[2])
        asyncio.run(measure(port, body, 1, 1.0))  # to warm it up
        for clients in map(int, args.clients.split(",")):
            print(json.dumps(asyncio.run(measure(port, body, clients, args.seconds))), flush=True)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()

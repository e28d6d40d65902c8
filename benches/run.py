#!/usr/bin/env python3
"""Measures the built daemon from outside: an ACP client on its stdin, a scripted model server behind it.

usage: run.py [--turnd FILE] [--rounds N] [--json FILE]

Standard library only, Linux only, nothing but loopback. Each figure stands beside its floor: what the same machine
needs in the same run for the least that could do the job. Compare ratios and counts; times are worth little alone.
"""

import argparse
import http.client
import http.server
import json
import multiprocessing
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

CHUNKS = 10_000
WARM_TURNS = 50
SESSIONS = 20
OPEN_SESSIONS = 1_000
LOADED_TURNS = 100
ANSWER_SECONDS = 60
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


# --- The model server ------------------------------------------------------------------------------------------------


def chunk(delta, finish=None):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return f"data: {json.dumps({'id': 'x', 'object': 'chat.completion.chunk', 'choices': [choice]})}\n\n".encode()


def answer(pieces):
    """A whole streamed chat completion of that many one-token chunks."""
    usage = b'data: {"id":"x","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":10,"total_tokens":20}}\n\n'
    words = b"".join(chunk({"content": "word "}) for _ in range(pieces))
    return chunk({"role": "assistant", "content": ""}) + words + chunk({}, "stop") + usage + b"data: [DONE]\n\n"


class Model(http.server.BaseHTTPRequestHandler):
    """Answers `long` with CHUNKS chunks, `hang` with one chunk and silence, everything else with one chunk."""

    protocol_version = "HTTP/1.1"
    # Head and body leave in one packet; otherwise the delayed acknowledgement of the other side would be measured.
    wbufsize = -1
    disable_nagle_algorithm = True
    answers = {"short": answer(1), "long": answer(CHUNKS)}

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = json.dumps(next(m["content"] for m in reversed(body["messages"]) if m["role"] == "user"))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        if "hang" in prompt:
            self.end_headers()
            self.wfile.write(chunk({"role": "assistant", "content": "word "}))
            self.wfile.flush()
            self.connection.settimeout(ANSWER_SECONDS)
            self.connection.recv(1)
            self.close_connection = True
            return
        whole = self.answers["long" if "long" in prompt else "short"]
        self.send_header("content-length", str(len(whole)))
        self.end_headers()
        self.wfile.write(whole)

    def log_message(self, *_):
        pass


def serve(port_out):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    port_out.send(server.server_port)
    server.serve_forever()


# --- The client ------------------------------------------------------------------------------------------------------


class Daemon:
    """One turnd process and the client's end of its pipes; lines are counted, and parsed only when they matter."""

    def __init__(self, turnd, home, folder):
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "TURND_HOME": str(home)}
        self.process = subprocess.Popen(
            [turnd],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=folder,
        )
        self.folder, self.last_id = str(folder), 0
        self.lines = self.received = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(ANSWER_SECONDS)

    def send(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def start(self, method, params):
        self.last_id += 1
        self.send({"id": self.last_id, "method": method, "params": params})
        return self.last_id

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("turnd ended")
        self.lines += 1
        self.received += len(line)
        return line

    def answer(self, request_id):
        """Reads on to the answer of a request and gives its result."""
        while True:
            line = self.line()
            # Most lines are updates, which begin with other keys; parsing them here would be measured, too.
            if b'"session/update"' in line:
                continue
            message = json.loads(line)
            if message.get("id") == request_id and "method" not in message:
                if "error" in message:
                    raise SystemExit(f"turnd answered {message['error']}")
                return message["result"]

    def call(self, method, params):
        return self.answer(self.start(method, params))

    def initialize(self):
        return self.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})

    def session(self):
        return self.call("session/new", {"cwd": self.folder, "mcpServers": []})["sessionId"]

    def prompt(self, session, text):
        return self.start("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": text}]})

    def cpu_seconds(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    def resident_bytes(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024


# --- What is measured ------------------------------------------------------------------------------------------------


def seconds(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def start(make, rounds):
    """Spawn to the answer of initialize, and on to the answer of session/new; floor: cat answers one line."""
    initialized, ready, floor = [], [], []
    for _ in range(rounds):
        began = time.perf_counter()
        with make() as daemon:
            daemon.initialize()
            initialized.append(time.perf_counter() - began)
            daemon.session()
            ready.append(time.perf_counter() - began)
        floor.append(seconds(cat))
    middle = statistics.median(floor)
    yield "spawn to initialize answered", statistics.median(initialized) * 1000, "ms", middle * 1000
    yield "spawn to session ready", statistics.median(ready) * 1000, "ms", middle * 1000


def cat():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(b"{}\n")
        process.stdin.flush()
        process.stdout.readline()


def direct(port, prompt):
    """The same model request without a daemon."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    body = json.dumps({"messages": [{"role": "user", "content": prompt}], "stream": True})
    connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
    for _ in connection.getresponse():
        pass
    connection.close()


def warm(make, port):
    """A one-word turn in a session that has had some; floor: the bare model request."""
    with make() as daemon:
        daemon.initialize()
        session = daemon.session()
        turn = lambda: daemon.answer(daemon.prompt(session, "short"))  # noqa: E731
        for _ in range(5):
            turn()
        before = daemon.cpu_seconds()
        turns = [seconds(turn) for _ in range(WARM_TURNS)]
        cpu = (daemon.cpu_seconds() - before) / WARM_TURNS
    floor = statistics.median(seconds(lambda: direct(port, "short")) for _ in range(WARM_TURNS))
    yield "warm turn, model included", statistics.median(turns) * 1000, "ms", floor * 1000
    yield "CPU of a warm turn", cpu * 1000, "ms", None


def stream(make, port, rounds):
    """CHUNKS one-token chunks that arrive at once; floor: reading the same answer without a daemon."""
    walls, cpus = [], []
    with make() as daemon:
        daemon.initialize()
        for _ in range(rounds):
            session = daemon.session()
            lines, received, before = daemon.lines, daemon.received, daemon.cpu_seconds()
            walls.append(seconds(lambda: daemon.answer(daemon.prompt(session, "long"))))
            cpus.append(daemon.cpu_seconds() - before)
            lines, received = daemon.lines - lines, daemon.received - received
    floor = statistics.median(seconds(lambda: direct(port, "long")) for _ in range(rounds))
    yield f"stream of {CHUNKS} chunks", statistics.median(walls) * 1000, "ms", floor * 1000
    yield f"CPU of {CHUNKS} chunks", statistics.median(cpus) * 1000, "ms", None
    yield f"lines for {CHUNKS} chunks", lines, "", None
    yield f"bytes for {CHUNKS} chunks", received, "B", None


def cancel(make, rounds):
    """session/cancel in a silent stream to the answer of the prompt."""
    taken = []
    with make() as daemon:
        daemon.initialize()
        session = daemon.session()
        for _ in range(rounds):
            prompt = daemon.prompt(session, "hang")
            while b"agent_message_chunk" not in daemon.line():
                pass
            daemon.send({"method": "session/cancel", "params": {"sessionId": session}})
            taken.append(seconds(lambda: daemon.answer(prompt)))
    yield "cancel to the prompt's answer", statistics.median(taken) * 1000, "ms", None


def memory(make):
    """Resident memory after one session, after SESSIONS with a turn each, and with OPEN_SESSIONS."""
    with make() as daemon:
        daemon.initialize()
        first = daemon.session()
        yield "memory with one idle session", daemon.resident_bytes() / 1e6, "MB", None
        daemon.answer(daemon.prompt(first, "short"))
        for _ in range(SESSIONS - 1):
            daemon.answer(daemon.prompt(daemon.session(), "short"))
        yield f"memory with {SESSIONS} used sessions", daemon.resident_bytes() / 1e6, "MB", None
        for _ in range(OPEN_SESSIONS - SESSIONS):
            daemon.session()
        yield f"memory with {OPEN_SESSIONS} open sessions", daemon.resident_bytes() / 1e6, "MB", None


def load(make, rounds):
    """session/load of LOADED_TURNS turns, each time by a new process."""
    with make() as daemon:
        daemon.initialize()
        session = daemon.session()
        for _ in range(LOADED_TURNS):
            daemon.answer(daemon.prompt(session, "short"))
    taken = []
    for _ in range(rounds):
        with make() as daemon:
            daemon.initialize()
            wish = {"sessionId": session, "cwd": daemon.folder, "mcpServers": []}
            taken.append(seconds(lambda: daemon.call("session/load", wish)))
    yield f"session/load of {LOADED_TURNS} turns", statistics.median(taken) * 1000, "ms", None


def sandbox(turnd, folder, rounds):
    """A contained and a restricted /bin/true; floor: starting it without anything."""
    limits = {"processes": 4096, "memory_bytes": 0, "file_bytes": 0}
    policy = {"writable": [str(folder)], "deny_read": [], "network": False, "temporary": None, "limits": limits}

    def run(*command):
        return statistics.median(seconds(lambda: subprocess.run(command, check=True)) for _ in range(rounds * 3))

    floor = run("/bin/true") * 1000
    for view, what in (("Own", "contained /bin/true"), ("Shared", "/bin/true held to reading")):
        argument = json.dumps({**policy, "view": view})
        yield what, run(turnd, "__exec", "--sandbox", argument, "/bin/true") * 1000, "ms", floor


def measure(turnd, port, rounds):
    with tempfile.TemporaryDirectory(prefix="turnd-bench-") as base:
        home, folder = Path(base) / "home", Path(base) / "work"
        home.mkdir(mode=0o700)
        folder.mkdir()
        (home / "config.toml").write_text(
            f'model = "bench/model"\n[providers.bench]\nbase_url = "http://127.0.0.1:{port}/v1"\napi_key = "none"\n'
        )

        def make():
            return Daemon(turnd, home, folder)

        yield from start(make, rounds)
        yield from warm(make, port)
        yield from stream(make, port, max(3, rounds // 4))
        yield from cancel(make, rounds)
        yield from load(make, rounds)
        yield from memory(make)
        yield from sandbox(turnd, folder, rounds)
        yield "size of the binary", os.path.getsize(turnd) / 1e6, "MB", None


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--turnd", default="target/release/turnd")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json")
    given = parser.parse_args()
    ours, theirs = multiprocessing.Pipe(duplex=False)
    model = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
    model.start()
    figures = []
    print(f"{'what':34} {'turnd':>12} {'floor':>12} {'ratio':>7}")
    for what, value, unit, floor in measure(os.path.abspath(given.turnd), ours.recv(), given.rounds):
        ratio = f"{value / floor:7.1f}" if floor else ""
        shown = f"{floor:9.2f} {unit:2}" if floor else ""
        print(f"{what:34} {value:9.2f} {unit:2} {shown:>12} {ratio}", flush=True)
        figures.append({"what": what, "value": value, "unit": unit, "floor": floor})
    if given.json:
        Path(given.json).write_text(json.dumps(figures, indent=1))
    model.terminate()


if __name__ == "__main__":
    main()

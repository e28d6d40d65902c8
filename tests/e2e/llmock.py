#!/usr/bin/env python3
"""Lets the fault server llmock judge how turnd deals with a failing provider, in the three wire formats.

usage: llmock.py TURND     (run by a Python that has `llmock` installed)

Each scenario starts `turnd run` with a home of its own against a server that fails to order, and asks the server for
its verdict: a scenario passes when turnd ends as wanted and the verdict has no error, and no warning but those that
the scenario names. Prints one line per scenario; closing line `N passed, N failed`. Exit code 1 when one failed.

Not covered: the random faults of the same kinds, because a test has to repeat.
"""
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

FORMATS = {
    "chat_completions": ("/v1", "gpt-4o"),
    "codex_responses": ("/v1", "gpt-4o"),
    "anthropic_messages": ("/anthropic", "claude-sonnet-4-5"),
}
KEY = "sk-llmock-0123456789"
# Whatever proxy the environment names has no business here.
OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def fail(status, **more):
    return {"type": "fail", "status": status, **more}


def stream(kind, after=2, **more):
    return {"type": "stream_fault", "kind": kind, "after_chunks": after, **more}


CITY = {"name": "read_file", "arguments": {"path": "a.txt"}}
TWO_CALLS = {"type": "reply", "tool_calls": [CITY, {"name": "read_file", "arguments": {"path": "b.txt"}}]}

# Name, behaviours, how turnd must end (text: an answer; any; else a part of the error), warnings that are no fault of
# turnd's, requests at most.
SCENARIOS = [
    ("plain", [], "text", (), 3),
    # A request that is wrong stays wrong.
    *[(f"status {status}", [fail(status)], f"HTTP {status}", (), 1) for status in (400, 401, 403, 404, 422)],
    # The format's rules call a conflict a mistake of the request's; llmock would ask once more.
    ("status 409", [fail(409)], "HTTP 409", ("gave_up",), 1),
    # Whether a shorter request is possible is compaction's business.
    ("status 413", [fail(413)], "any", (), 6),
    *[(f"status {status}", [fail(status)], "text", (), 4) for status in (408, 429, 500, 502, 503, 504, 529)],
    *[
        (f"status {status} with a wait", [fail(status, retry_after=0.6)], "text", (), 4)
        for status in (429, 500, 503, 529)
    ],
    ("two different failures", [fail(503, retry_after=0.5), fail(500)], "text", (), 5),
    ("never well", [fail(500, times=None)], "HTTP 500", (), 6),
    ("limited for ever", [fail(429, times=None)], "HTTP 429", (), 6),
    ("late", [{"type": "delay", "seconds": 0.7}], "text", (), 3),
    ("too late", [{"type": "delay", "seconds": 6}], "text", (), 4),
    ("a slow first token", [{"type": "slow_first_token", "seconds": 0.7}], "text", (), 3),
    ("a first token that comes too late", [{"type": "slow_first_token", "seconds": 6}], "text", (), 4),
    *[(f"{kind} after {after}", [stream(kind, after)], "text", (), 4)
      for kind in ("disconnect", "truncate", "malformed") for after in (0, 1, 3)],
    ("a stall", [stream("stall", stall_seconds=6)], "text", (), 4),
    ("a short stall", [stream("stall", stall_seconds=0.7)], "text", (), 3),
    *[(f"{kind} inside a call", [TWO_CALLS, stream(kind, 2)], "text", (), 6)
      for kind in ("disconnect", "truncate", "malformed")],
    ("every stream cut", [stream("disconnect", 1, times=None)], "broke off|ended before|failed", (), 6),
    ("two calls", [TWO_CALLS], "text", (), 3),
    ("broken arguments", [{"type": "tool_fault", "kind": "malformed_arguments"}], "text", (), 6),
    ("an unknown tool", [{"type": "tool_fault", "kind": "unknown_tool"}], "text", (), 6),
]


class Server:
    """One llmock, ready to answer."""

    def __init__(self, *options):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [os.path.join(os.path.dirname(sys.executable), "llmock"), "serve", "--port", str(port)]
        command += ["--log-level", "error", "--response-style", "static", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while True:
            try:
                self.admin("/_llmock/requests")
                return
            except OSError as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("llmock does not start") from error
                time.sleep(0.05)

    def admin(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"})
        with OPEN(request, timeout=20) as answer:
            return json.load(answer)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def config(url, api_mode, extra):
    path, model = FORMATS[api_mode]
    lines = [
        f'model = "judge/{model}"',
        'mode = "plan"',
        "[providers.judge]",
        f'api_mode = "{api_mode}"',
        f'base_url = "{url}{path}"',
        f'api_key = "{KEY}"',
        "retry_base_seconds = 0.15",
        "first_event_timeout_seconds = 3",
        "stream_idle_timeout_seconds = 2",
        "max_output_tokens = 500",
        "quirks = { reasoning_effort = false }",
        *extra,
    ]
    return "\n".join(lines) + "\n"


def run(turnd, url, api_mode, extra=()):
    """One turn. Its answer, or the error's text with a leading `error: `."""
    with tempfile.TemporaryDirectory() as folder:
        home, work = os.path.join(folder, "home"), os.path.join(folder, "work")
        os.mkdir(home, 0o700)
        os.mkdir(work)
        for name in ("a.txt", "b.txt"):
            with open(os.path.join(work, name), "w", encoding="utf-8") as file:
                file.write(name)
        with open(os.path.join(home, "config.toml"), "w", encoding="utf-8") as file:
            file.write(config(url, api_mode, extra))
        environment = {"PATH": os.environ["PATH"], "TURND_HOME": home, "HOME": home}
        done = subprocess.run([turnd, "run", "what is in these files?"], cwd=work, env=environment, timeout=90,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if KEY in done.stdout + done.stderr:
            return "error: the key was printed"
        return done.stdout if done.returncode == 0 else f"error: {done.stderr.strip()}"


def judge(server, wanted, allowed, at_most, said):
    """What is wrong, in words; empty when nothing is."""
    verdict = server.admin("/_llmock/verdict")
    problems = [f"{f['severity']} {f['code']}: {f['title']}" for f in verdict["findings"] if f["code"] not in allowed]
    is_error = said.startswith("error: ")
    if wanted == "any":
        pass
    elif wanted == "text":
        if is_error or not said.strip():
            problems.append(f"wanted an answer, got {said[:300]!r}")
    elif not is_error or not any(part in said for part in wanted.split("|")):
        problems.append(f"wanted an error with {wanted!r}, got {said[:300]!r}")
    if verdict["attempts"] > at_most:
        problems.append(f"{verdict['attempts']} requests, at most {at_most} wanted")
    verdict_word = "true" if verdict["passed"] else "false"
    return problems, f"passed: {verdict_word}, {verdict['attempts']} requests, {verdict['faults_injected']} faults"


class Tally:
    def __init__(self):
        self.lock, self.passed, self.failed = threading.Lock(), 0, 0

    def note(self, name, problems, summary):
        with self.lock:
            self.passed += not problems
            self.failed += bool(problems)
            print(f"{'FAIL' if problems else 'ok  '} {name}: {summary}", *problems, sep="\n     " if problems else "",
                  flush=True)


def faults(turnd, api_mode, tally):
    server = Server("--stream-chunk-delay-ms", "15")
    try:
        for name, behaviours, wanted, allowed, at_most in SCENARIOS:
            server.admin("/_llmock/reset", {})
            if behaviours:
                server.admin("/_llmock/scenario", {"behaviors": behaviours})
            said = run(turnd, server.url, api_mode)
            tally.note(f"{api_mode} {name}", *judge(server, wanted, allowed, at_most, said))
    finally:
        server.stop()


def spend(server, api_mode, requests, max_tokens):
    """Uses up the account's allowance with requests of our own."""
    path, model = FORMATS[api_mode]
    tail = {"chat_completions": "/chat/completions", "codex_responses": "/responses"}.get(api_mode, "/v1/messages")
    limit = "max_output_tokens" if api_mode == "codex_responses" else "max_tokens"
    asked = "input" if api_mode == "codex_responses" else "messages"
    body = {"model": model, limit: max_tokens, asked: [{"role": "user", "content": "hi"}]}
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}", "x-api-key": KEY}
    for _ in range(requests):
        request = urllib.request.Request(server.url + path + tail, json.dumps(body).encode(), headers)
        try:
            OPEN(request, timeout=20).read()
        except urllib.error.HTTPError as error:
            if error.code == 429:
                return
            raise


def quotas(turnd, tally):
    requests = Server("--rpm", "60")
    tokens = Server("--tpm", "60000")
    tight = Server("--context-window", "10")
    try:
        for api_mode in FORMATS:
            spend(requests, api_mode, 70, 10)
            requests.admin("/_llmock/reset", {})
            said = run(turnd, requests.url, api_mode)
            tally.note(f"{api_mode} requests per minute used up", *judge(requests, "text", (), 8, said))

            spend(tokens, api_mode, 70, 1200)
            tokens.admin("/_llmock/reset", {})
            said = run(turnd, tokens.url, api_mode)
            tally.note(f"{api_mode} tokens per minute used up", *judge(tokens, "text", (), 8, said))

            tight.admin("/_llmock/reset", {})
            said = run(turnd, tight.url, api_mode)
            # An error, or an answer where a shortened history got through: the verdict is what counts.
            tally.note(f"{api_mode} a window too small for any request", *judge(tight, "any", (), 4, said))
    finally:
        for server in (requests, tokens, tight):
            server.stop()


def main():
    turnd = os.path.abspath(sys.argv[1])
    tally = Tally()
    threads = [threading.Thread(target=faults, args=(turnd, api_mode, tally)) for api_mode in FORMATS]
    threads.append(threading.Thread(target=quotas, args=(turnd, tally)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{tally.passed} passed, {tally.failed} failed")
    # A scenario that never ended has no verdict, which is a failure too.
    return 1 if tally.failed or tally.passed != 3 * (len(SCENARIOS) + 3) else 0


if __name__ == "__main__":
    sys.exit(main())

"""What the checks stand on: the options, the register of checks, and an agent process with the client's end of the wire."""

import argparse
import json
import subprocess
import threading
import time

# What the command line said, and the folder that agents start in; filled in by conformance.py.
OPTIONS = argparse.Namespace()

STOP_REASONS = {"end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"}
EOF = object()

# (id, tier, what must hold, function), in the order of their files.
CHECKS = []


class Fail(Exception):
    """The check found something."""


class Skip(Exception):
    """The check does not apply."""


def need(holds, why):
    if not holds:
        raise Fail(why)


def check(ident, tier, text):
    """Registers a check. It passes when it returns; what it returns is printed as a note."""

    def register(function):
        CHECKS.append((ident, tier, text, function))
        return function

    return register


def text_block(text):
    return {"type": "text", "text": text}


def is_update(message, kind=None):
    if not isinstance(message, dict) or message.get("method") != "session/update":
        return False
    return kind is None or message["params"]["update"]["sessionUpdate"] == kind


def is_answer(message, request_id):
    if not isinstance(message, dict) or "method" in message:
        return False
    # 7 and "7" are different ids.
    return message.get("id") == request_id and type(message.get("id")) is type(request_id)


class Agent:
    """One agent process and the client's side of the wire.

    `perm` is the kind of option that answers every permission request, or a function from the request to the answer's
    body (None: no answer).
    """

    def __init__(self, caps=None, init=True, perm="allow_once", version=1):
        self.perm = perm
        self.raw, self.msgs, self.answers = [], [], {}
        self.asked, self.sent, self.last_id = [], {}, 0
        self.stderr, self.changed = b"", threading.Condition()
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(OPTIONS.agent, stdin=pipe, stdout=pipe, stderr=pipe, cwd=OPTIONS.folder)
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._read_stderr, daemon=True).start()
        self.init = None
        if init:
            info = {"name": "conformance", "version": "1"}
            params = {"protocolVersion": version, "clientCapabilities": caps or {}, "clientInfo": info}
            self.init = self.result("initialize", params)
            if OPTIONS.auth:
                self.result("authenticate", {"methodId": OPTIONS.auth})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.process.stdin.close()
        except OSError:
            pass
        for end in (lambda: None, self.process.terminate, self.process.kill):
            end()
            try:
                self.process.wait(2)
                return
            except subprocess.TimeoutExpired:
                pass

    def _read_stderr(self):
        for piece in iter(lambda: self.process.stderr.read(4096), b""):
            self.stderr = (self.stderr + piece)[-20000:]

    def _read(self):
        for line in self.process.stdout:
            self.raw.append(line)
            try:
                message = json.loads(line)
            except ValueError:
                message = None
            with self.changed:
                self.msgs.append((time.time(), message))
                if (
                    isinstance(message, dict)
                    and "method" not in message
                    and ("result" in message or "error" in message)
                ):
                    self.answers.setdefault(json.dumps(message.get("id")), []).append((len(self.msgs) - 1, message))
                self.changed.notify_all()
            if isinstance(message, dict) and "method" in message and "id" in message:
                self._serve(message)
        with self.changed:
            self.msgs.append((time.time(), EOF))
            self.changed.notify_all()

    def _serve(self, request):
        self.asked.append(request)
        if request["method"] != "session/request_permission":
            return self.send({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})
        if callable(self.perm):
            body = self.perm(request)
            return self.send({"id": request["id"], **body}) if body is not None else None
        option = next((o for o in request["params"]["options"] if o["kind"] == self.perm), None)
        outcome = {"outcome": "selected", "optionId": option["optionId"]} if option else {"outcome": "cancelled"}
        return self.send({"id": request["id"], "result": {"outcome": outcome}})

    # Sending.

    def line(self, line):
        try:
            self.process.stdin.write(line if line.endswith(b"\n") else line + b"\n")
            self.process.stdin.flush()
        except (OSError, ValueError) as error:
            raise Fail("the agent closed its stdin") from error

    def send(self, message):
        self.line(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def note(self, method, params):
        self.send({"method": method, "params": params})

    def start(self, method, params, rid=None):
        """Sends a request and gives its id."""
        if rid is None:
            self.last_id += 1
            rid = self.last_id
        self.sent[json.dumps(rid)] = method
        self.send({"id": rid, "method": method, "params": params})
        return rid

    # Waiting.

    def wait(self, holds, timeout=None, what="a message"):
        """The position of the first message for which it holds."""
        limit = timeout or OPTIONS.timeout
        end, at = time.time() + limit, 0
        with self.changed:
            while True:
                for at in range(at, len(self.msgs)):
                    message = self.msgs[at][1]
                    if message is EOF:
                        raise Fail(f"the agent ended while waiting for {what}; stderr: {self.stderr[-300:]!r}")
                    if holds(message):
                        return at
                at = len(self.msgs)
                left = end - time.time()
                if left <= 0:
                    raise Fail(f"no {what} within {limit:g}s")
                self.changed.wait(left)

    def answer(self, rid, timeout=None):
        what = f"answer to {self.sent.get(json.dumps(rid), rid)}"
        return self.msgs[self.wait(lambda message: is_answer(message, rid), timeout, what)][1]

    def call(self, method, params, rid=None, timeout=None):
        return self.answer(self.start(method, params, rid), timeout)

    def result(self, method, params, timeout=None):
        message = self.call(method, params, timeout=timeout)
        need("result" in message, f"{method} failed: {json.dumps(message.get('error'))[:300]}")
        return message["result"]

    def quiet(self, seconds=0.7):
        """Gives the agent time to say something that it should not say."""
        time.sleep(seconds)

    # Sessions and turns.

    def new(self, **more):
        made = self.result("session/new", {"cwd": OPTIONS.folder, "mcpServers": [], **more})
        is_session = isinstance(made, dict) and isinstance(made.get("sessionId"), str) and made["sessionId"]
        need(is_session, f"session/new gave no sessionId: {made!r}")
        return made

    def start_prompt(self, sid, text=None):
        return self.start("session/prompt", {"sessionId": sid, "prompt": [text_block(text or OPTIONS.prompt)]})

    def prompt(self, sid, text=None, blocks=None, timeout=None):
        """A whole turn; gives its stop reason."""
        params = {"sessionId": sid, "prompt": blocks or [text_block(text or OPTIONS.prompt)]}
        stop = self.result("session/prompt", params, timeout).get("stopReason")
        need(stop in STOP_REASONS, f"stopReason {stop!r}")
        return stop

    def running(self, sid, text=None):
        """Starts the long prompt and gives its id once it streams."""
        rid = self.start_prompt(sid, text or OPTIONS.cancel_prompt)
        streams = lambda message: is_update(message, "agent_message_chunk") or is_answer(message, rid)  # noqa: E731
        self.wait(streams, what="the first chunk")
        if json.dumps(rid) in self.answers:
            raise Skip("the long prompt ended at once: give --cancel-prompt")
        return rid

    def updates(self, sid=None, since=0):
        """(position, params) of the session's updates."""
        seen = [
            (at, message["params"]) for at, (_, message) in enumerate(self.msgs) if at >= since and is_update(message)
        ]
        return [(at, params) for at, params in seen if sid is None or params.get("sessionId") == sid]

    # Capabilities.

    def cap(self, *path):
        found = (self.init or {}).get("agentCapabilities") or {}
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        return found is not None and found is not False

    def need_cap(self, *path):
        if not self.cap(*path):
            raise Skip("not advertised: " + ".".join(path))

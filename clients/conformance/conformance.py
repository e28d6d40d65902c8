#!/usr/bin/env python3
"""Black-box ACP v1 conformance for an agent command. Stdlib only; with PyPI jsonschema and --schema every
message is also checked against ACP's own schema.

usage: conformance.py [options] -- AGENT [ARGS..]      (file names in ARGS: absolute, the agent starts in a folder of its own)
  --schema FILE        schema/v1/schema.json out of npm @agentclientprotocol/sdk
  --timeout S          for one answer (20)
  --prompt TEXT        a prompt that ends by itself               (hello)
  --cancel-prompt TEXT a prompt that streams for 10 s or more     (slow)
  --perm-prompt TEXT   a prompt that asks one permission          (perm; "" skips)
  --big-prompt TEXT    a prompt with much output                  ("" skips)
  --auth METHOD        authenticate with it before session/new
  --only SUBSTR        run the checks whose id has it
  --json FILE          the result as JSON
Each check starts a fresh agent process. Tiers: M the spec's MUST, C advertised so it must work, B our own bar (what
real clients send or need), A advice, I told and never judged. Exit 0 when no M, C or B check failed.
Ids ACP-* name the rule as the public acp-tck does; X-* are ours.
"""

import argparse, json, os, queue, signal, subprocess, sys, tempfile, threading, time, traceback

ap = argparse.ArgumentParser(usage=__doc__)
for k, d in (
    ("schema", None),
    ("timeout", 20.0),
    ("prompt", "hello"),
    ("cancel-prompt", "slow"),
    ("perm-prompt", "perm"),
    ("big-prompt", ""),
    ("auth", None),
    ("only", ""),
    ("json", None),
):
    ap.add_argument("--" + k, default=d, type=type(d) if isinstance(d, float) else str)
ap.add_argument("agent", nargs=argparse.REMAINDER)
O = ap.parse_args()
CMD = O.agent[1:] if O.agent[:1] == ["--"] else O.agent
if not CMD:
    ap.error("no agent command")
if os.sep in CMD[0]:
    CMD[0] = os.path.abspath(CMD[0])
STOPS = {"end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"}
PERSIST = tempfile.mkdtemp(prefix="acp-conf-")
CHECKS, RESULTS = [], []


class Fail(Exception):
    pass


class Skip(Exception):
    pass


def need(cond, why):
    if not cond:
        raise Fail(why)


def check(ident, tier, text):
    def deco(f):
        CHECKS.append((ident, tier, text, f))
        return f

    return deco


class Agent:
    """One agent process and the client's side of the wire."""

    def __init__(self, caps=None, init=True, perm="allow_once", version=1):
        self.p = subprocess.Popen(
            CMD, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=PERSIST
        )
        self.q, self.answers, self.raw, self.msgs = queue.Queue(), {}, [], []
        self.cond, self.n, self.perm, self.asked, self.stderr = threading.Condition(), 0, perm, [], b""
        self.sent = {}
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._err, daemon=True).start()
        self.init = None
        if init:
            self.init = self.result(
                "initialize",
                {
                    "protocolVersion": version,
                    "clientCapabilities": caps or {},
                    "clientInfo": {"name": "conformance", "version": "1"},
                },
            )
            if O.auth:
                self.result("authenticate", {"methodId": O.auth})

    def __enter__(self):
        return self

    def __exit__(self, *a):
        try:
            self.p.stdin.close()
        except OSError:
            pass
        try:
            self.p.wait(2)
        except subprocess.TimeoutExpired:
            self.p.terminate()
            try:
                self.p.wait(2)
            except subprocess.TimeoutExpired:
                self.p.kill()

    def _err(self):
        for b in iter(lambda: self.p.stderr.read(4096), b""):
            self.stderr = (self.stderr + b)[-20000:]

    def _read(self):
        for line in self.p.stdout:
            self.raw.append(line)
            try:
                m = json.loads(line)
            except ValueError:
                m = None
            with self.cond:
                self.msgs.append((time.time(), m))
                if isinstance(m, dict) and "method" not in m and ("result" in m or "error" in m):
                    self.answers.setdefault(json.dumps(m.get("id")), []).append((len(self.msgs) - 1, m))
                self.cond.notify_all()
            if isinstance(m, dict) and "method" in m and "id" in m:
                self._serve(m)
        with self.cond:
            self.msgs.append((time.time(), EOF))
            self.cond.notify_all()

    def _serve(self, m):
        self.asked.append(m)
        if m["method"] != "session/request_permission":
            return self.send({"id": m["id"], "error": {"code": -32601, "message": "Method not found"}})
        if callable(self.perm):
            r = self.perm(m)
            if r is not None:
                self.send({"id": m["id"], **r})
            return
        o = next((o for o in m["params"]["options"] if o["kind"] == self.perm), None)
        self.send(
            {
                "id": m["id"],
                "result": {
                    "outcome": {"outcome": "selected", "optionId": o["optionId"]} if o else {"outcome": "cancelled"}
                },
            }
        )

    def line(self, b):
        try:
            self.p.stdin.write(b if b.endswith(b"\n") else b + b"\n")
            self.p.stdin.flush()
        except (OSError, ValueError):
            raise Fail("the agent closed its stdin")

    def send(self, m):
        self.line(json.dumps({"jsonrpc": "2.0", **m}).encode())

    def note(self, method, params):
        self.send({"method": method, "params": params})

    def start(self, method, params, rid=None):
        if rid is None:
            self.n += 1
            rid = self.n
        self.sent[json.dumps(rid)] = method
        self.send({"id": rid, "method": method, "params": params})
        return rid

    def wait(self, pred, timeout=None, what="a message"):
        end, i = time.time() + (timeout or O.timeout), 0
        with self.cond:
            while True:
                while i < len(self.msgs):
                    if pred(self.msgs[i][1]):
                        return i
                    if self.msgs[i][1] is EOF:
                        raise Fail("the agent ended while waiting for %s; stderr: %r" % (what, self.stderr[-300:]))
                    i += 1
                left = end - time.time()
                if left <= 0:
                    raise Fail("no %s within %gs" % (what, timeout or O.timeout))
                self.cond.wait(left)

    def answer(self, rid, timeout=None):
        i = self.wait(
            lambda m: (
                isinstance(m, dict) and "method" not in m and m.get("id") == rid and type(m.get("id")) is type(rid)
            ),
            timeout,
            "answer to %s" % self.sent.get(json.dumps(rid), rid),
        )
        return self.msgs[i][1]

    def call(self, method, params, rid=None, timeout=None):
        return self.answer(self.start(method, params, rid), timeout)

    def result(self, method, params, timeout=None):
        m = self.call(method, params, timeout=timeout)
        need("result" in m, "%s failed: %s" % (method, json.dumps(m.get("error"))[:300]))
        return m["result"]

    def new(self, **kw):
        r = self.result("session/new", {"cwd": PERSIST, "mcpServers": [], **kw})
        need(
            isinstance(r, dict) and isinstance(r.get("sessionId"), str) and r["sessionId"],
            "session/new gave no sessionId: %r" % r,
        )
        return r

    def prompt(self, sid, text=None, blocks=None, timeout=None):
        r = self.result(
            "session/prompt",
            {"sessionId": sid, "prompt": blocks or [{"type": "text", "text": text or O.prompt}]},
            timeout,
        )
        need(r.get("stopReason") in STOPS, "stopReason %r" % r.get("stopReason"))
        return r["stopReason"]

    def updates(self, sid=None, since=0):
        return [
            (i, m["params"])
            for i, (_, m) in enumerate(self.msgs)
            if i >= since
            and isinstance(m, dict)
            and m.get("method") == "session/update"
            and (sid is None or m["params"].get("sessionId") == sid)
        ]

    def running(self, sid, text=None):
        """Start the long prompt and return its id once it streams."""
        rid = self.start(
            "session/prompt", {"sessionId": sid, "prompt": [{"type": "text", "text": text or O.cancel_prompt}]}
        )
        self.wait(
            lambda m: (
                isinstance(m, dict)
                and m.get("method") == "session/update"
                and m["params"]["update"]["sessionUpdate"] == "agent_message_chunk"
                or isinstance(m, dict)
                and m.get("id") == rid
                and "method" not in m
            ),
            what="the first chunk",
        )
        if json.dumps(rid) in self.answers:
            raise Skip("the long prompt ended at once: give --cancel-prompt")
        return rid

    def quiet(self, s=0.7):
        time.sleep(s)

    def cap(self, *path):
        x = (self.init or {}).get("agentCapabilities") or {}
        for p in path:
            x = x.get(p) if isinstance(x, dict) else None
        return x is not None and x is not False

    def need_cap(self, *path):
        if not self.cap(*path):
            raise Skip("not advertised: " + ".".join(path))


EOF = object()


def all_json(a):
    for l in a.raw:
        try:
            m = json.loads(l.decode("utf-8"))
        except UnicodeDecodeError:
            raise Fail("not UTF-8: %r" % l[:80])
        except ValueError:
            raise Fail("not JSON: %r" % l[:80])
        need(isinstance(m, dict) and m.get("jsonrpc") == "2.0", "not a JSON-RPC object: %r" % l[:80])


@check("ACP-TRANSPORT-001", "M", "stdout carries only JSON-RPC objects in UTF-8, one a line")
def _():
    with Agent() as a:
        a.prompt(a.new()["sessionId"], "hello é中文 \U0001f600")
    time.sleep(0.2)
    need(a.raw, "nothing on stdout")
    all_json(a)


@check("ACP-JSONRPC-001", "M", "an id comes back as it was sent: 0, large and string ids")
def _():
    with Agent(init=False) as a:
        for rid in (0, 2**53, "abc", "7"):
            m = a.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}}, rid)
            need("result" in m, "initialize with id %r failed" % rid)


@check("X-ID-NEGATIVE", "A", "a negative id is served, or refused with -32600, and the connection lives on")
def _():
    with Agent() as a:
        rid = a.start("session/new", {"cwd": PERSIST, "mcpServers": []}, -3)
        a.wait(
            lambda m: isinstance(m, dict) and "method" not in m and m.get("id") in (-3, None), 5, "any answer to id -3"
        )
        a.new()


@check("ACP-JSONRPC-002", "M", "an answer has one of result and error; an error has an integer code and a text")
def _():
    with Agent() as a:
        for m in (
            a.call("session/new", {"cwd": PERSIST, "mcpServers": []}),
            a.call("session/nope", {}),
            a.call("session/new", {"cwd": None, "mcpServers": []}),
            a.call("session/prompt", {"sessionId": "no-such-session", "prompt": [{"type": "text", "text": "x"}]}),
        ):
            need(("result" in m) != ("error" in m), "both or neither: %r" % m)
            if "error" in m:
                need(
                    isinstance(m["error"].get("code"), int)
                    and isinstance(m["error"].get("message"), str)
                    and m["error"]["message"].strip()
                    and "\n" not in m["error"]["message"],
                    "error shape: %r" % m,
                )


@check("ACP-JSONRPC-003", "M", "a notification is never answered")
def _():
    with Agent() as a:
        s = a.new()["sessionId"]
        n = len(a.answers)
        a.note("session/cancel", {"sessionId": s})
        a.note("_x/y", {})
        a.note("$/nope", {})
        a.note("session/nope", {})
        a.quiet()
        need(len(a.answers) == n, "answered a notification: %r" % list(a.answers)[n:])
        a.prompt(s)


@check("ACP-JSONRPC-004", "A", "an unknown method gets -32601")
def _():
    with Agent() as a:
        for k in ("session/nope", "_x/nope"):
            m = a.call(k, {})
            need(m.get("error", {}).get("code") == -32601, "%s: %r" % (k, m))


@check("ACP-EXT-001", "M", "an unknown method that starts with _ is answered")
def _():
    with Agent() as a:
        a.call("_x/nope", {})


@check("X-PARSE", "B", "a line that is not JSON gets -32700 with id null, or nothing, and the connection lives on")
def _():
    with Agent() as a:
        a.line(b"{nonsense")
        a.line(b"")
        a.line(b"\xff\xfe\xfa")
        a.new()
        codes = [
            m["error"]["code"] for _, m in a.msgs if isinstance(m, dict) and m.get("id", 0) is None and "error" in m
        ]
        return "answered " + str(codes)


@check("X-INVALIDREQ", "B", "JSON that is no request gets -32600 with id null, or nothing, and the connection lives on")
def _():
    with Agent() as a:
        for l in (
            b'{"foo":"bar"}',
            b"7",
            b'"x"',
            b"[]",
            b'{"jsonrpc":"1.0","id":90,"method":"initialize"}',
            b'{"jsonrpc":"2.0","id":91,"result":{}}',
            b'{"jsonrpc":"2.0","id":{"a":1},"method":"session/new","params":{}}',
        ):
            a.line(l)
        a.new()
        codes = [m["error"]["code"] for _, m in a.msgs if isinstance(m, dict) and "error" in m]
        need(all(c in (-32600, -32700, -32602) for c in codes), "codes %r" % codes)
        return "answered " + str(codes)


@check("X-BATCH", "A", "a JSON array gets one -32600 with id null (v1 has no batches)")
def _():
    with Agent() as a:
        a.line(
            json.dumps(
                [{"jsonrpc": "2.0", "id": 77, "method": "session/new", "params": {"cwd": PERSIST, "mcpServers": []}}]
            ).encode()
        )
        a.quiet()
        got = [m for _, m in a.msgs if isinstance(m, dict) and m.get("id", 0) is None]
        need([m["error"]["code"] for m in got] == [-32600] and "77" not in a.answers, "%r" % got)
        a.new()


@check("ACP-JSONRPC-005", "M", "the connection is usable after an error")
def _():
    with Agent() as a:
        for p in ({}, {"cwd": 7}, {"cwd": None, "mcpServers": []}, {"cwd": PERSIST, "mcpServers": "x"}, []):
            m = a.call("session/new", p)
            need("error" in m and m["error"]["code"] == -32602 or "result" in m, "session/new %r: %r" % (p, m))
        a.prompt(a.new()["sessionId"])


@check("ACP-INIT-001", "M", "initialize answers with an integer protocolVersion")
def _():
    with Agent() as a:
        need(type(a.init.get("protocolVersion")) is int, "%r" % a.init)


@check("ACP-INIT-002", "M", "version 1 asked, version 1 answered")
def _():
    with Agent() as a:
        need(a.init["protocolVersion"] == 1, "%r" % a.init["protocolVersion"])


@check("ACP-INIT-003", "M", "an unknown version gets the agent's own newest, not an echo and not an error")
def _():
    for v in (65535, 0, 3):
        with Agent(init=False) as a:
            m = a.call(
                "initialize",
                {
                    "protocolVersion": v,
                    "clientCapabilities": {},
                    "info": {"name": "x", "version": "1"},
                    "capabilities": {},
                },
            )
            need(
                "result" in m
                and type(m["result"].get("protocolVersion")) is int
                and m["result"]["protocolVersion"] != v
                and m["result"]["protocolVersion"] >= 1,
                "asked %d: %r" % (v, m),
            )


@check("ACP-INIT-004", "A", "agentInfo has a name and a version")
def _():
    with Agent() as a:
        i = a.init.get("agentInfo") or {}
        need(i.get("name") and i.get("version"), "%r" % i)


@check("X-INIT-FIRST", "A", "session/new before initialize is refused, and initialize still works after it")
def _():
    with Agent(init=False) as a:
        m = a.call("session/new", {"cwd": PERSIST, "mcpServers": []})
        a.result("initialize", {"protocolVersion": 1})
        need("error" in m, "session/new worked before initialize")


@check("ACP-SESSION-001", "M", "session/new gives a sessionId; two give two")
def _():
    with Agent() as a:
        need(a.new()["sessionId"] != a.new()["sessionId"], "the same id twice")


@check("X-CWD", "A", "a relative cwd gets -32602")
def _():
    with Agent() as a:
        m = a.call("session/new", {"cwd": "x/y", "mcpServers": []})
        need(m.get("error", {}).get("code") == -32602, "%r" % m)


@check("ACP-PROMPT-001", "M", "a text prompt ends with a defined stopReason")
def _():
    with Agent() as a:
        a.prompt(a.new()["sessionId"])


@check("ACP-PROMPT-002", "M", "updates carry the session's id and come before the answer")
def _():
    with Agent() as a:
        s = a.new()["sessionId"]
        a.quiet(0.3)
        n = len(a.msgs)
        a.prompt(s)
        i = len(a.msgs)
        a.quiet()
        ups = a.updates(since=n)
        need(ups and all(u["sessionId"] == s for _, u in ups), "no update, or one for another session")
        late = [u["update"]["sessionUpdate"] for j, u in ups if j >= i]
        need(
            not [k for k in late if k.endswith("_chunk") or k.startswith("tool_call") or k == "plan"],
            "after the answer: %r" % late,
        )


@check("ACP-PROMPT-003", "M", "a resource_link in the prompt is taken")
def _():
    with Agent() as a:
        a.prompt(
            a.new()["sessionId"],
            blocks=[
                {"type": "text", "text": O.prompt},
                {"type": "resource_link", "uri": "file:///etc/hostname", "name": "hostname"},
            ],
        )


@check("ACP-PROMPTCAP", "C", "image, audio and embedded context are taken where advertised")
def _():
    with Agent() as a:
        done = []
        for c, b in (
            (
                "image",
                {
                    "type": "image",
                    "mimeType": "image/png",
                    "data": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
                },
            ),
            (
                "audio",
                {
                    "type": "audio",
                    "mimeType": "audio/wav",
                    "data": "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=",
                },
            ),
            (
                "embeddedContext",
                {
                    "type": "resource",
                    "resource": {"uri": "file:///x.py", "mimeType": "text/x-python", "text": "x = 1\n"},
                },
            ),
        ):
            if a.cap("promptCapabilities", c):
                a.prompt(a.new()["sessionId"], blocks=[{"type": "text", "text": O.prompt}, b])
                done.append(c)
        if not done:
            raise Skip("none advertised")
        return ",".join(done)


@check("X-PROMPTCAP-NOT", "A", "a block that was not advertised gets -32602, not a crash")
def _():
    with Agent() as a:
        s = a.new()["sessionId"]
        m = a.call("session/prompt", {"sessionId": s, "prompt": [{"type": "video", "x": 1}]})
        need(m.get("error", {}).get("code") == -32602, "%r" % m)
        a.prompt(s)


@check("ACP-UNKNOWNSESSION", "A", "an unknown sessionId gets -32002 with the id in data")
def _():
    with Agent() as a:
        m = a.call("session/prompt", {"sessionId": "no-such", "prompt": [{"type": "text", "text": "x"}]})
        need("error" in m, "no error: %r" % m)
        need(m["error"]["code"] == -32002, "code %r" % m["error"]["code"])


@check("ACP-META-001", "A", "_meta is ignored")
def _():
    with Agent() as a:
        s = a.new(_meta={"x": 1})["sessionId"]
        a.result(
            "session/prompt",
            {
                "sessionId": s,
                "prompt": [{"type": "text", "text": O.prompt, "_meta": {"a": 1}}],
                "_meta": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
            },
        )


@check("ACP-CANCEL-001", "M", "session/cancel ends the prompt with cancelled, soon, and nothing follows")
def _():
    with Agent() as a:
        s = a.new()["sessionId"]
        rid = a.running(s)
        t = time.time()
        a.note("session/cancel", {"sessionId": s})
        m = a.answer(rid, 10)
        took = time.time() - t
        i = len(a.msgs)
        need(m.get("result", {}).get("stopReason") == "cancelled", "%r" % m)
        a.quiet(1.2)
        late = [u["update"]["sessionUpdate"] for _, u in a.updates(s, i)]
        need(not late, "after the answer: %r" % late)
        a.prompt(s)
        return "%.0f ms" % (took * 1000)


@check("X-CANCEL-AT-ONCE", "M", "session/cancel right behind session/prompt is not lost")
def _():
    with Agent() as a:
        s = a.new()["sessionId"]
        rid = a.start("session/prompt", {"sessionId": s, "prompt": [{"type": "text", "text": O.cancel_prompt}]})
        a.note("session/cancel", {"sessionId": s})
        m = a.answer(rid, 8)
        need(m.get("result", {}).get("stopReason") == "cancelled", "%r" % m)


@check("X-CANCEL-TWICE", "B", "a second cancel, and one while idle, do nothing to the next prompt")
def _():
    with Agent() as a:
        s = a.new()["sessionId"]
        a.note("session/cancel", {"sessionId": s})
        rid = a.running(s)
        a.note("session/cancel", {"sessionId": s})
        a.note("session/cancel", {"sessionId": s})
        a.answer(rid, 10)
        a.note("session/cancel", {"sessionId": "no-such"})
        need(a.prompt(s) == "end_turn", "the next prompt did not end by itself")


@check("X-CANCEL-REQUEST", "B", "$/cancel_request on a prompt gives cancelled or -32800; on an unknown id nothing")
def _():
    with Agent() as a:
        s = a.new()["sessionId"]
        a.note("$/cancel_request", {"requestId": 4711})
        rid = a.running(s)
        a.note("$/cancel_request", {"requestId": rid})
        m = a.answer(rid, 10)
        need(m.get("result", {}).get("stopReason") == "cancelled" or m.get("error", {}).get("code") == -32800, "%r" % m)
        a.prompt(s)
        return "result" if "result" in m else "-32800"


@check("X-BUSY", "B", "a prompt sent the moment the answer arrives is taken (20 times)")
def _():
    with Agent() as a:
        s = a.new()["sessionId"]
        for _ in range(20):
            a.prompt(s)


@check("X-SECOND-PROMPT", "B", "a second prompt on a busy session waits, or is refused; the first is not harmed")
def _():
    with Agent() as a:
        s = a.new()["sessionId"]
        rid = a.running(s)
        r2 = a.start("session/prompt", {"sessionId": s, "prompt": [{"type": "text", "text": O.prompt}]})
        time.sleep(0.5)
        need(json.dumps(rid) not in a.answers, "the first prompt ended")
        early = a.answers.get(json.dumps(r2))
        a.note("session/cancel", {"sessionId": s})
        a.answer(rid, 10)
        m = a.answer(r2, 10)
        return (
            "refused %s" % early[0][1].get("error", {}).get("code")
            if early
            else "queued, then " + str(m.get("result", {}).get("stopReason") or m.get("error"))
        )


@check("X-NO-BLOCKING", "B", "other requests are answered while a prompt runs (session/new under 1 s)")
def _():
    with Agent() as a:
        s = a.new()["sessionId"]
        rid = a.running(s)
        t = time.time()
        s2 = a.new()["sessionId"]
        took = time.time() - t
        a.prompt(s2)
        need(json.dumps(rid) not in a.answers, "the first prompt ended")
        a.note("session/cancel", {"sessionId": s})
        a.answer(rid, 10)
        need(took < 1, "%.2f s" % took)
        return "%.0f ms" % (took * 1000)


@check("X-SESSIONS", "B", "eight sessions prompted at once all end, each update under its own session")
def _():
    with Agent() as a:
        ids = [a.new()["sessionId"] for _ in range(8)]
        rids = [
            a.start("session/prompt", {"sessionId": s, "prompt": [{"type": "text", "text": O.prompt}]}) for s in ids
        ]
        for r in rids:
            need(a.answer(r).get("result", {}).get("stopReason") in STOPS, "one failed")
        need({u["sessionId"] for _, u in a.updates()} >= set(ids), "a session had no update")


def perm_turn(a):
    if not O.perm_prompt:
        raise Skip("no --perm-prompt")
    s = a.new()["sessionId"]
    r = a.prompt(s, O.perm_prompt)
    if not [m for m in a.asked if m["method"] == "session/request_permission"]:
        raise Skip("the prompt asked no permission: give --perm-prompt")
    return s, r


def tool_states(a, s):
    st = {}
    for _, u in a.updates(s):
        u = u["update"]
        if u["sessionUpdate"] in ("tool_call", "tool_call_update"):
            if u["sessionUpdate"] == "tool_call_update":
                need(u["toolCallId"] in st, "tool_call_update before tool_call")
            st.setdefault(u["toolCallId"], []).append(
                u.get("status") or ("pending" if u["sessionUpdate"] == "tool_call" else None)
            )
    return {k: [x for x in v if x] for k, v in st.items()}


@check("X-PERM-ASK", "B", "a permission request names a tool call already told, and has an allow and a reject option")
def _():
    with Agent() as a:
        s, r = perm_turn(a)
        m = next(m for m in a.asked if m["method"] == "session/request_permission")
        told = {u["update"].get("toolCallId") for _, u in a.updates(s)}
        need(m["params"]["toolCall"]["toolCallId"] in told, "the tool call was not told")
        kinds = [o["kind"] for o in m["params"]["options"]]
        need(len({o["optionId"] for o in m["params"]["options"]}) == len(kinds), "optionIds not unique")
        need("allow_once" in kinds and any(k.startswith("reject") for k in kinds), "%r" % kinds)
        need(r == "end_turn", r)
        for t, st in tool_states(a, s).items():
            need(st[-1] in ("completed", "failed"), "tool call %s was left %s" % (t, st))
        return ",".join(kinds)


@check("X-PERM-REJECT", "B", "a reject leaves the tool call failed and the turn goes on to its end")
def _():
    with Agent(perm="reject_once") as a:
        s, r = perm_turn(a)
        need(r == "end_turn", r)
        need(
            any(st[-1] == "failed" for st in tool_states(a, s).values()),
            "no tool call is failed: %r" % tool_states(a, s),
        )


@check("X-PERM-BAD", "B", "a malformed or failed permission answer is a no, never a yes and never a crash")
def _():
    for r in (
        {"result": {"outcome": "allow_once"}},
        {"result": {}},
        {"result": None},
        {"result": {"outcome": {"outcome": "selected", "optionId": "no-such-option"}}},
        {"result": {"outcome": {"outcome": "later"}}},
        {"error": {"code": -32603, "message": "x"}},
        {"error": {"code": -32601, "message": "x"}},
    ):
        with Agent(perm=lambda m, r=r: r) as a:
            s, _ = perm_turn(a)
            need(
                not any("completed" in st and st[-1] == "completed" for st in tool_states(a, s).values()),
                "%r ran the tool" % r,
            )


@check("X-PERM-CANCEL", "B", "cancel while a permission is open ends the turn with cancelled")
def _():
    for late in (False, True):
        got = threading.Event()
        with Agent(perm=lambda m: got.set()) as a:
            if not O.perm_prompt:
                raise Skip("no --perm-prompt")
            s = a.new()["sessionId"]
            rid = a.start("session/prompt", {"sessionId": s, "prompt": [{"type": "text", "text": O.perm_prompt}]})
            if not got.wait(O.timeout):
                raise Skip("the prompt asked no permission: give --perm-prompt")
            a.note("session/cancel", {"sessionId": s})
            if not late:  # a client that keeps the rule answers cancelled; one that forgets must not hang the turn
                a.send({"id": a.asked[-1]["id"], "result": {"outcome": {"outcome": "cancelled"}}})
            m = a.answer(rid, 10)
            need(m.get("result", {}).get("stopReason") == "cancelled", "%r" % m)
            if late:  # the answer that comes too late must be ignored
                a.send(
                    {
                        "id": a.asked[-1]["id"],
                        "result": {
                            "outcome": {
                                "outcome": "selected",
                                "optionId": a.asked[-1]["params"]["options"][0]["optionId"],
                            }
                        },
                    }
                )
                a.quiet(0.3)
            for t, st in tool_states(a, s).items():
                need(st[-1] != "completed", "a tool ran after the cancel")
            a.perm = "allow_once"
            a.prompt(s)


@check("ACP-CLIENTCAP", "M", "no fs/*, terminal/* or elicitation/* when the client advertised none")
def _():
    with Agent() as a:
        s = a.new()["sessionId"]
        for t in (O.prompt, O.perm_prompt):
            if t:
                a.prompt(s, t)
        bad = [m["method"] for m in a.asked if m["method"] != "session/request_permission"]
        need(not bad, "%r" % bad)


@check("ACP-LIST-001", "C", "session/list lists; a cwd no session has gives []")
def _():
    with Agent() as a:
        a.need_cap("sessionCapabilities", "list")
        s = a.new()["sessionId"]
        a.prompt(s)
        r = a.result("session/list", {})
        need(isinstance(r.get("sessions"), list), "%r" % r)
        mine = [x for x in a.result("session/list", {"cwd": PERSIST})["sessions"] if x["sessionId"] == s]
        need(mine and mine[0]["cwd"] == PERSIST, "the session is not in its own list")
        need(a.result("session/list", {"cwd": "/no/such/dir"})["sessions"] == [], "not []")
        return "title %r" % mine[0].get("title")


@check("ACP-LOAD-001", "C", "session/load replays the talk before it answers, and nothing of it after")
def _():
    with Agent() as a:
        a.need_cap("loadSession")
        s = a.new()["sessionId"]
        a.prompt(s)
        n = len(a.msgs)
        r = a.call("session/load", {"sessionId": s, "cwd": PERSIST, "mcpServers": []})
        i = len(a.msgs)
        need("result" in r, "%r" % r)
        a.quiet()
        kinds = [u["update"]["sessionUpdate"] for j, u in a.updates(s, n) if j < i]
        need("user_message_chunk" in kinds and "agent_message_chunk" in kinds, "replayed %r" % kinds)
        late = [u["update"]["sessionUpdate"] for j, u in a.updates(s, i)]
        need(not [k for k in late if k.endswith("_chunk") or k.startswith("tool_call")], "after the answer: %r" % late)
        a.prompt(s)


@check("X-RESTART", "B", "a session survives the process: a new one lists it and loads or resumes it")
def _():
    with Agent() as a:
        if not (a.cap("loadSession") or a.cap("sessionCapabilities", "resume")):
            raise Skip("neither load nor resume")
        s = a.new()["sessionId"]
        a.prompt(s)
    with Agent() as a:
        if a.cap("sessionCapabilities", "list"):
            need(
                s in [x["sessionId"] for x in a.result("session/list", {"cwd": PERSIST})["sessions"]],
                "not listed by the new process",
            )
        a.result(
            *(
                ("session/resume", {"sessionId": s, "cwd": PERSIST})
                if a.cap("sessionCapabilities", "resume")
                else ("session/load", {"sessionId": s, "cwd": PERSIST, "mcpServers": []})
            )
        )
        a.prompt(s)


@check("ACP-RESUME-001", "C", "session/resume without mcpServers works and does not replay the talk before it answers")
def _():
    with Agent() as a:
        a.need_cap("sessionCapabilities", "resume")
        s = a.new()["sessionId"]
        a.prompt(s)
        n = len(a.msgs)
        a.result("session/resume", {"sessionId": s, "cwd": PERSIST})
        need(
            not [u for _, u in a.updates(s, n) if u["update"]["sessionUpdate"].endswith("message_chunk")],
            "resume replayed history",
        )
        a.prompt(s)


@check("X-KILL", "B", "after kill -9 in a turn the session still loads, with whole messages")
def _():
    with Agent() as a:
        a.need_cap("loadSession")
        s = a.new()["sessionId"]
        a.prompt(s)
        a.running(s)
        os.kill(a.p.pid, signal.SIGKILL)
        a.p.wait(5)
    with Agent() as a:
        a.result("session/load", {"sessionId": s, "cwd": PERSIST, "mcpServers": []})
        a.prompt(s)


@check("ACP-CLOSE-001", "C", "session/close answers {} and cancels a running prompt; it can be resumed")
def _():
    with Agent() as a:
        a.need_cap("sessionCapabilities", "close")
        s = a.new()["sessionId"]
        a.result("session/close", {"sessionId": s})
        s = a.new()["sessionId"]
        rid = a.running(s)
        a.result("session/close", {"sessionId": s})
        m = a.answer(rid, 10)
        need(m.get("result", {}).get("stopReason") == "cancelled", "%r" % m)


@check("ACP-DELETE-001", "C", "session/delete deletes: it is off the list")
def _():
    with Agent() as a:
        a.need_cap("sessionCapabilities", "delete")
        s = a.new()["sessionId"]
        a.prompt(s)
        a.result("session/delete", {"sessionId": s})
        if a.cap("sessionCapabilities", "list"):
            need(
                s not in [x["sessionId"] for x in a.result("session/list", {"cwd": PERSIST})["sessions"]],
                "still listed",
            )


@check("ACP-DELETE-002", "A", "deleting twice, or what never was, is no error")
def _():
    with Agent() as a:
        a.need_cap("sessionCapabilities", "delete")
        s = a.new()["sessionId"]
        for x in (s, s, "no-such-session"):
            need("result" in a.call("session/delete", {"sessionId": x}), "delete of %r failed" % x)


@check("ACP-ADDDIRS-001", "C", "additionalDirectories are taken")
def _():
    with Agent() as a:
        a.need_cap("sessionCapabilities", "additionalDirectories")
        a.new(additionalDirectories=["/tmp"])


@check("ACP-MODES-001", "C", "the current mode is one of the modes; set_mode sets each")
def _():
    with Agent() as a:
        r = a.new()
        if not r.get("modes"):
            raise Skip("no modes")
        ids = [m["id"] for m in r["modes"]["availableModes"]]
        need(r["modes"]["currentModeId"] in ids, "%r" % r["modes"])
        for i in ids:
            a.result("session/set_mode", {"sessionId": r["sessionId"], "modeId": i})


@check("X-UNKNOWN-CHOICE", "B", "an unknown mode, option, option value or list cursor gets -32602, not a silent yes")
def _():
    with Agent() as a:
        r = a.new()
        tried = []
        if r.get("modes"):
            tried.append(("session/set_mode", {"modeId": "no-such-mode"}))
        if r.get("configOptions"):
            tried += [
                ("session/set_config_option", {"configId": "no-such", "value": "x"}),
                ("session/set_config_option", {"configId": r["configOptions"][0]["id"], "value": "no-such-value"}),
            ]
        if a.cap("sessionCapabilities", "list"):
            tried.append(("session/list", {"cursor": "not-a-cursor"}))
        if not tried:
            raise Skip("nothing to choose")
        for k, p in tried:
            m = a.call(k, {"sessionId": r["sessionId"], **p} if k != "session/list" else p)
            need(m.get("error", {}).get("code") == -32602, "%s %r: %s" % (k, p, json.dumps(m)[:120]))


def option_ok(o):
    if o["type"] == "boolean":
        return isinstance(o["currentValue"], bool)
    flat = [v["value"] for g in o["options"] for v in (g["options"] if "options" in g else [g])]
    return o["currentValue"] in flat


@check("ACP-CONFIG-001", "C", "options hold one of their values; set_config_option answers with all of them")
def _():
    with Agent() as a:
        r = a.new()
        if not r.get("configOptions"):
            raise Skip("no configOptions")
        need(all(option_ok(o) for o in r["configOptions"]), "a current value is not one of the values")
        need(
            not [o for o in r["configOptions"] if o["type"] == "boolean"],
            "a boolean option for a client that did not ask for them",
        )
        for o in r["configOptions"]:
            v = [v["value"] for g in o["options"] for v in (g["options"] if "options" in g else [g])][-1]
            x = a.result("session/set_config_option", {"sessionId": r["sessionId"], "configId": o["id"], "value": v})[
                "configOptions"
            ]
            need({y["id"] for y in x} >= {y["id"] for y in r["configOptions"]}, "not all options")
            need([y for y in x if y["id"] == o["id"]][0]["currentValue"] == v, "not applied")


@check("ACP-AUTH-002", "M", "no terminal auth method for a client that cannot run one; ids are unique")
def _():
    with Agent() as a:
        ms = a.init.get("authMethods") or []
        need(not [m for m in ms if m.get("type") == "terminal"], "%r" % ms)
        need(len({m["id"] for m in ms}) == len(ms), "ids not unique")


@check("X-LINE", "A", "no line is over 64 KiB (older Python clients die of one)")
def _():
    if not O.big_prompt:
        raise Skip("no --big-prompt")
    with Agent() as a:
        a.prompt(a.new()["sessionId"], O.big_prompt)
    m = max(map(len, a.raw))
    need(m <= 65536, "a line of %d bytes" % m)
    return "longest %d" % m


@check("X-BIG-IN", "B", "a prompt line of 8 MiB is taken or refused with an error, and the connection lives on")
def _():
    with Agent() as a:
        s = a.new()["sessionId"]
        m = a.call(
            "session/prompt",
            {
                "sessionId": s,
                "prompt": [
                    {"type": "text", "text": O.prompt},
                    {"type": "resource_link", "uri": "file:///x", "name": "n" * (8 << 20)},
                ],
            },
            timeout=60,
        )
        a.prompt(a.new()["sessionId"])
        return "taken" if "result" in m else str(m["error"]["code"])


@check("X-EOF", "B", "at the end of stdin the agent ends by itself in 2 s with status 0, idle or in a turn")
def _():
    for busy in (False, True):
        with Agent() as a:
            s = a.new()["sessionId"]
            if busy:
                a.running(s)
            t = time.time()
            a.p.stdin.close()
            try:
                rc = a.p.wait(2)
            except subprocess.TimeoutExpired:
                raise Fail("still running 2 s after EOF (%s)" % ("in a turn" if busy else "idle"))
            need(rc == 0, "status %d" % rc)
    return "%.0f ms in a turn" % ((time.time() - t) * 1000)


@check("X-TERM", "A", "SIGTERM ends it in 2 s")
def _():
    with Agent() as a:
        s = a.new()["sessionId"]
        a.running(s)
        a.p.terminate()
        try:
            return "status %d" % a.p.wait(2)
        except subprocess.TimeoutExpired:
            raise Fail("still running")


@check("X-START", "I", "time from start to the answer to initialize, and to session/new")
def _():
    t = time.time()
    with Agent() as a:
        t1 = time.time()
        a.new()
        return "%.0f ms, then %.0f ms" % ((t1 - t) * 1000, (time.time() - t1) * 1000)


@check("ACP-STDERR-001", "I", "bytes on stderr in one prompt")
def _():
    with Agent() as a:
        a.prompt(a.new()["sessionId"])
    return "%d" % len(a.stderr)


EXTRA = []


@check("ACP-SCHEMA-001", "M", "every message of a whole session is of the schema")
def _():
    if not O.schema:
        raise Skip("no --schema")
    import jsonschema

    sch = json.load(open(O.schema))
    D = sch["$defs"]
    by = {}
    for name, d in D.items():
        if "x-method" in d:
            by.setdefault((d["x-side"], d["x-method"]), {})[
                "in" if name.endswith(("Request", "Notification")) else "out"
            ] = name

    def ok(name, v, where):
        es = sorted(
            jsonschema.Draft202012Validator({"$ref": "#/$defs/" + name, "$defs": D}).iter_errors(v),
            key=lambda e: len(e.absolute_path),
        )
        need(not es, "%s: %s" % (where, es and es[0].message[:200]))
        extra = (
            set(v) - set(D[name].get("properties", {})) - {"_meta"}
            if isinstance(v, dict) and "properties" in D[name] and "anyOf" not in D[name] and "oneOf" not in D[name]
            else set()
        )
        EXTRA.extend("%s: %s" % (where, k) for k in extra)

    with Agent() as a:
        s = a.new()["sessionId"]
        for t in (O.prompt, O.perm_prompt):
            if t:
                a.prompt(s, t)
        rid = a.running(s)
        a.note("session/cancel", {"sessionId": s})
        a.answer(rid, 10)
        for c, k, p in (
            (("sessionCapabilities", "list"), "session/list", {}),
            (("loadSession",), "session/load", {"sessionId": s, "cwd": PERSIST, "mcpServers": []}),
            (("sessionCapabilities", "close"), "session/close", {"sessionId": s}),
        ):
            if a.cap(*c):
                a.call(k, p)
        n = 0
        for _, m in a.msgs:
            if not isinstance(m, dict):
                continue
            n += 1
            if "method" in m:
                if not m["method"].startswith(("_", "$/")):
                    need(("client", m["method"]) in by, "unknown method " + m["method"])
                    ok(by[("client", m["method"])]["in"], m["params"], m["method"])
            elif "result" in m:
                k = a.sent.get(json.dumps(m["id"]))
                name = by.get(("agent", k), {}).get("out")
                if name:
                    ok(name, m["result"], k)
            else:
                ok("Error", m["error"], "error")
    return "%d messages" % n


@check("ACP-SCHEMA-002", "A", "no root key that the schema does not know (own data goes under _meta)")
def _():
    if not O.schema:
        raise Skip("no --schema")
    need(not EXTRA, ", ".join(sorted(set(EXTRA))))


bad = 0
for ident, tier, text, f in CHECKS:
    if O.only and O.only not in ident:
        continue
    t = time.time()
    try:
        note, st = f() or "", "pass"
    except Skip as e:
        note, st = str(e), "skip"
    except Fail as e:
        note, st = str(e), "FAIL"
    except Exception as e:  # noqa: BLE001
        note, st = repr(e) + " " + traceback.format_exc().splitlines()[-2].strip(), "FAIL"
    if st == "FAIL" and tier in "MCB":
        bad += 1
    RESULTS.append(
        {"id": ident, "tier": tier, "status": st, "note": note, "text": text, "s": round(time.time() - t, 2)}
    )
    print("%-4s %s %-20s %s%s" % (st, tier, ident, text, "  [%s]" % note[:260] if note else ""), flush=True)
n = {k: sum(r["status"] == k for r in RESULTS) for k in ("pass", "FAIL", "skip")}
print("%d passed, %d failed, %d skipped" % (n["pass"], n["FAIL"], n["skip"]))
spec = sum(r["status"] == "FAIL" and r["tier"] in "MC" for r in RESULTS)
print(
    "%s; %d of our own bar failed"
    % ("CONFORMANT" if not spec else "NOT CONFORMANT: %d mandatory or advertised checks failed" % spec, bad - spec)
)
if O.json:
    json.dump(RESULTS, open(O.json, "w"), indent=1)
sys.exit(1 if bad else 0)

"""How lines, ids and errors travel, and initialize."""

import json
import time

from kit import Agent, Fail, OPTIONS, check, need, text_block


def all_json(agent):
    for l in agent.raw:
        try:
            m = json.loads(l.decode("utf-8"))
        except UnicodeDecodeError:
            raise Fail("not UTF-8: %r" % l[:80])
        except ValueError:
            raise Fail("not JSON: %r" % l[:80])
        need(isinstance(m, dict) and m.get("jsonrpc") == "2.0", "not a JSON-RPC object: %r" % l[:80])


@check("ACP-TRANSPORT-001", "M", "stdout carries only JSON-RPC objects in UTF-8, one a line")
def _():
    with Agent() as agent:
        agent.prompt(agent.new()["sessionId"], "hello é中文 \U0001f600")
    time.sleep(0.2)
    need(agent.raw, "nothing on stdout")
    all_json(agent)


@check("ACP-JSONRPC-001", "M", "an id comes back as it was sent: 0, large and string ids")
def _():
    with Agent(init=False) as agent:
        for rid in (0, 2**53, "abc", "7"):
            m = agent.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}}, rid)
            need("result" in m, "initialize with id %r failed" % rid)


@check("X-ID-NEGATIVE", "A", "a negative id is served, or refused with -32600, and the connection lives on")
def _():
    with Agent() as agent:
        agent.start("session/new", {"cwd": OPTIONS.folder, "mcpServers": []}, -3)
        agent.wait(
            lambda m: isinstance(m, dict) and "method" not in m and m.get("id") in (-3, None), 5, "any answer to id -3"
        )
        agent.new()


@check("ACP-JSONRPC-002", "M", "an answer has one of result and error; an error has an integer code and a text")
def _():
    with Agent() as agent:
        for m in (
            agent.call("session/new", {"cwd": OPTIONS.folder, "mcpServers": []}),
            agent.call("session/nope", {}),
            agent.call("session/new", {"cwd": None, "mcpServers": []}),
            agent.call("session/prompt", {"sessionId": "no-such-session", "prompt": [text_block("x")]}),
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
    with Agent() as agent:
        s = agent.new()["sessionId"]
        n = len(agent.answers)
        agent.note("session/cancel", {"sessionId": s})
        agent.note("_x/y", {})
        agent.note("$/nope", {})
        agent.note("session/nope", {})
        agent.quiet()
        need(len(agent.answers) == n, "answered a notification: %r" % list(agent.answers)[n:])
        agent.prompt(s)


@check("ACP-JSONRPC-004", "A", "an unknown method gets -32601")
def _():
    with Agent() as agent:
        for k in ("session/nope", "_x/nope"):
            m = agent.call(k, {})
            need(m.get("error", {}).get("code") == -32601, "%s: %r" % (k, m))


@check("ACP-EXT-001", "M", "an unknown method that starts with _ is answered")
def _():
    with Agent() as agent:
        agent.call("_x/nope", {})


@check("X-PARSE", "B", "a line that is not JSON gets -32700 with id null, or nothing, and the connection lives on")
def _():
    with Agent() as agent:
        agent.line(b"{nonsense")
        agent.line(b"")
        agent.line(b"\xff\xfe\xfa")
        agent.new()
        codes = [
            m["error"]["code"] for _, m in agent.msgs if isinstance(m, dict) and m.get("id", 0) is None and "error" in m
        ]
        return "answered " + str(codes)


@check("X-INVALIDREQ", "B", "JSON that is no request gets -32600 with id null, or nothing, and the connection lives on")
def _():
    with Agent() as agent:
        for l in (
            b'{"foo":"bar"}',
            b"7",
            b'"x"',
            b"[]",
            b'{"jsonrpc":"1.0","id":90,"method":"initialize"}',
            b'{"jsonrpc":"2.0","id":91,"result":{}}',
            b'{"jsonrpc":"2.0","id":{"a":1},"method":"session/new","params":{}}',
        ):
            agent.line(l)
        agent.new()
        codes = [m["error"]["code"] for _, m in agent.msgs if isinstance(m, dict) and "error" in m]
        need(all(c in (-32600, -32700, -32602) for c in codes), "codes %r" % codes)
        return "answered " + str(codes)


@check("X-BATCH", "A", "a JSON array gets one -32600 with id null (v1 has no batches)")
def _():
    with Agent() as agent:
        agent.line(
            json.dumps(
                [
                    {
                        "jsonrpc": "2.0",
                        "id": 77,
                        "method": "session/new",
                        "params": {"cwd": OPTIONS.folder, "mcpServers": []},
                    }
                ]
            ).encode()
        )
        agent.quiet()
        got = [m for _, m in agent.msgs if isinstance(m, dict) and m.get("id", 0) is None]
        need([m["error"]["code"] for m in got] == [-32600] and "77" not in agent.answers, "%r" % got)
        agent.new()


@check("ACP-JSONRPC-005", "M", "the connection is usable after an error")
def _():
    with Agent() as agent:
        for p in ({}, {"cwd": 7}, {"cwd": None, "mcpServers": []}, {"cwd": OPTIONS.folder, "mcpServers": "x"}, []):
            m = agent.call("session/new", p)
            need("error" in m and m["error"]["code"] == -32602 or "result" in m, "session/new %r: %r" % (p, m))
        agent.prompt(agent.new()["sessionId"])


@check("ACP-INIT-001", "M", "initialize answers with an integer protocolVersion")
def _():
    with Agent() as agent:
        need(type(agent.init.get("protocolVersion")) is int, "%r" % agent.init)


@check("ACP-INIT-002", "M", "version 1 asked, version 1 answered")
def _():
    with Agent() as agent:
        need(agent.init["protocolVersion"] == 1, "%r" % agent.init["protocolVersion"])


@check("ACP-INIT-003", "M", "an unknown version gets the agent's own newest, not an echo and not an error")
def _():
    for v in (65535, 0, 3):
        with Agent(init=False) as agent:
            m = agent.call(
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
    with Agent() as agent:
        i = agent.init.get("agentInfo") or {}
        need(i.get("name") and i.get("version"), "%r" % i)


@check("X-INIT-FIRST", "A", "session/new before initialize is refused, and initialize still works after it")
def _():
    with Agent(init=False) as agent:
        m = agent.call("session/new", {"cwd": OPTIONS.folder, "mcpServers": []})
        agent.result("initialize", {"protocolVersion": 1})
        need("error" in m, "session/new worked before initialize")

"""Sessions, prompts, cancel, and many at once."""

import json
import time

from kit import Agent, OPTIONS, STOP_REASONS, Skip, check, need, text_block


@check("ACP-SESSION-001", "M", "session/new gives a sessionId; two give two")
def _():
    with Agent() as agent:
        need(agent.new()["sessionId"] != agent.new()["sessionId"], "the same id twice")


@check("X-CWD", "A", "a relative cwd gets -32602")
def _():
    with Agent() as agent:
        m = agent.call("session/new", {"cwd": "x/y", "mcpServers": []})
        need(m.get("error", {}).get("code") == -32602, "%r" % m)


@check("ACP-PROMPT-001", "M", "a text prompt ends with a defined stopReason")
def _():
    with Agent() as agent:
        agent.prompt(agent.new()["sessionId"])


@check("ACP-PROMPT-002", "M", "updates carry the session's id and come before the answer")
def _():
    with Agent() as agent:
        s = agent.new()["sessionId"]
        agent.quiet(0.3)
        n = len(agent.msgs)
        agent.prompt(s)
        i = len(agent.msgs)
        agent.quiet()
        ups = agent.updates(since=n)
        need(ups and all(u["sessionId"] == s for _, u in ups), "no update, or one for another session")
        late = [u["update"]["sessionUpdate"] for j, u in ups if j >= i]
        need(
            not [k for k in late if k.endswith("_chunk") or k.startswith("tool_call") or k == "plan"],
            "after the answer: %r" % late,
        )


@check("ACP-PROMPT-003", "M", "a resource_link in the prompt is taken")
def _():
    with Agent() as agent:
        agent.prompt(
            agent.new()["sessionId"],
            blocks=[
                text_block(OPTIONS.prompt),
                {"type": "resource_link", "uri": "file:///etc/hostname", "name": "hostname"},
            ],
        )


@check("ACP-PROMPTCAP", "C", "image, audio and embedded context are taken where advertised")
def _():
    with Agent() as agent:
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
            if agent.cap("promptCapabilities", c):
                agent.prompt(agent.new()["sessionId"], blocks=[text_block(OPTIONS.prompt), b])
                done.append(c)
        if not done:
            raise Skip("none advertised")
        return ",".join(done)


@check("X-PROMPTCAP-NOT", "A", "a block that was not advertised gets -32602, not a crash")
def _():
    with Agent() as agent:
        s = agent.new()["sessionId"]
        m = agent.call("session/prompt", {"sessionId": s, "prompt": [{"type": "video", "x": 1}]})
        need(m.get("error", {}).get("code") == -32602, "%r" % m)
        agent.prompt(s)


@check("ACP-UNKNOWNSESSION", "A", "an unknown sessionId gets -32002 with the id in data")
def _():
    with Agent() as agent:
        m = agent.call("session/prompt", {"sessionId": "no-such", "prompt": [text_block("x")]})
        need("error" in m, "no error: %r" % m)
        need(m["error"]["code"] == -32002, "code %r" % m["error"]["code"])


@check("ACP-META-001", "A", "_meta is ignored")
def _():
    with Agent() as agent:
        s = agent.new(_meta={"x": 1})["sessionId"]
        agent.result(
            "session/prompt",
            {
                "sessionId": s,
                "prompt": [{"type": "text", "text": OPTIONS.prompt, "_meta": {"a": 1}}],
                "_meta": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
            },
        )


@check("ACP-CANCEL-001", "M", "session/cancel ends the prompt with cancelled, soon, and nothing follows")
def _():
    with Agent() as agent:
        s = agent.new()["sessionId"]
        rid = agent.running(s)
        t = time.time()
        agent.note("session/cancel", {"sessionId": s})
        m = agent.answer(rid, 10)
        took = time.time() - t
        i = len(agent.msgs)
        need(m.get("result", {}).get("stopReason") == "cancelled", "%r" % m)
        agent.quiet(1.2)
        late = [u["update"]["sessionUpdate"] for _, u in agent.updates(s, i)]
        need(not late, "after the answer: %r" % late)
        agent.prompt(s)
        return "%.0f ms" % (took * 1000)


@check("X-CANCEL-AT-ONCE", "M", "session/cancel right behind session/prompt is not lost")
def _():
    with Agent() as agent:
        s = agent.new()["sessionId"]
        rid = agent.start_prompt(s, OPTIONS.cancel_prompt)
        agent.note("session/cancel", {"sessionId": s})
        m = agent.answer(rid, 8)
        need(m.get("result", {}).get("stopReason") == "cancelled", "%r" % m)


@check("X-CANCEL-TWICE", "B", "a second cancel, and one while idle, do nothing to the next prompt")
def _():
    with Agent() as agent:
        s = agent.new()["sessionId"]
        agent.note("session/cancel", {"sessionId": s})
        rid = agent.running(s)
        agent.note("session/cancel", {"sessionId": s})
        agent.note("session/cancel", {"sessionId": s})
        agent.answer(rid, 10)
        agent.note("session/cancel", {"sessionId": "no-such"})
        need(agent.prompt(s) == "end_turn", "the next prompt did not end by itself")


@check("X-CANCEL-REQUEST", "B", "$/cancel_request on a prompt gives cancelled or -32800; on an unknown id nothing")
def _():
    with Agent() as agent:
        s = agent.new()["sessionId"]
        agent.note("$/cancel_request", {"requestId": 4711})
        rid = agent.running(s)
        agent.note("$/cancel_request", {"requestId": rid})
        m = agent.answer(rid, 10)
        need(m.get("result", {}).get("stopReason") == "cancelled" or m.get("error", {}).get("code") == -32800, "%r" % m)
        agent.prompt(s)
        return "result" if "result" in m else "-32800"


@check("X-BUSY", "B", "a prompt sent the moment the answer arrives is taken (20 times)")
def _():
    with Agent() as agent:
        s = agent.new()["sessionId"]
        for _ in range(20):
            agent.prompt(s)


@check("X-SECOND-PROMPT", "B", "a second prompt on a busy session waits, or is refused; the first is not harmed")
def _():
    with Agent() as agent:
        s = agent.new()["sessionId"]
        rid = agent.running(s)
        r2 = agent.start_prompt(s)
        time.sleep(0.5)
        need(json.dumps(rid) not in agent.answers, "the first prompt ended")
        early = agent.answers.get(json.dumps(r2))
        agent.note("session/cancel", {"sessionId": s})
        agent.answer(rid, 10)
        m = agent.answer(r2, 10)
        return (
            "refused %s" % early[0][1].get("error", {}).get("code")
            if early
            else "queued, then " + str(m.get("result", {}).get("stopReason") or m.get("error"))
        )


@check("X-NO-BLOCKING", "B", "other requests are answered while a prompt runs (session/new under 1 s)")
def _():
    with Agent() as agent:
        s = agent.new()["sessionId"]
        rid = agent.running(s)
        t = time.time()
        s2 = agent.new()["sessionId"]
        took = time.time() - t
        agent.prompt(s2)
        need(json.dumps(rid) not in agent.answers, "the first prompt ended")
        agent.note("session/cancel", {"sessionId": s})
        agent.answer(rid, 10)
        need(took < 1, "%.2f s" % took)
        return "%.0f ms" % (took * 1000)


@check("X-SESSIONS", "B", "eight sessions prompted at once all end, each update under its own session")
def _():
    with Agent() as agent:
        ids = [agent.new()["sessionId"] for _ in range(8)]
        rids = [agent.start_prompt(s) for s in ids]
        for r in rids:
            need(agent.answer(r).get("result", {}).get("stopReason") in STOP_REASONS, "one failed")
        need({u["sessionId"] for _, u in agent.updates()} >= set(ids), "a session had no update")

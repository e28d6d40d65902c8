"""Long lines, the end of stdin, signals."""

import subprocess
import time

from kit import Agent, Fail, OPTIONS, Skip, check, need, text_block


@check("X-LINE", "A", "no line is over 64 KiB (older Python clients die of one)")
def _():
    if not OPTIONS.big_prompt:
        raise Skip("no --big-prompt")
    with Agent() as agent:
        agent.prompt(agent.new()["sessionId"], OPTIONS.big_prompt)
    m = max(map(len, agent.raw))
    need(m <= 65536, "a line of %d bytes" % m)
    return "longest %d" % m


@check("X-BIG-IN", "B", "a prompt line of 8 MiB is taken or refused with an error, and the connection lives on")
def _():
    with Agent() as agent:
        s = agent.new()["sessionId"]
        m = agent.call(
            "session/prompt",
            {
                "sessionId": s,
                "prompt": [
                    text_block(OPTIONS.prompt),
                    {"type": "resource_link", "uri": "file:///x", "name": "n" * (8 << 20)},
                ],
            },
            timeout=60,
        )
        agent.prompt(agent.new()["sessionId"])
        return "taken" if "result" in m else str(m["error"]["code"])


@check("X-EOF", "B", "at the end of stdin the agent ends by itself in 2 s with status 0, idle or in a turn")
def _():
    for busy in (False, True):
        with Agent() as agent:
            s = agent.new()["sessionId"]
            if busy:
                agent.running(s)
            t = time.time()
            agent.process.stdin.close()
            try:
                rc = agent.process.wait(2)
            except subprocess.TimeoutExpired:
                raise Fail("still running 2 s after EOF (%s)" % ("in a turn" if busy else "idle"))
            need(rc == 0, "status %d" % rc)
    return "%.0f ms in a turn" % ((time.time() - t) * 1000)


@check("X-TERM", "A", "SIGTERM ends it in 2 s")
def _():
    with Agent() as agent:
        s = agent.new()["sessionId"]
        agent.running(s)
        agent.process.terminate()
        try:
            return "status %d" % agent.process.wait(2)
        except subprocess.TimeoutExpired:
            raise Fail("still running")


@check("X-START", "I", "time from start to the answer to initialize, and to session/new")
def _():
    t = time.time()
    with Agent() as agent:
        t1 = time.time()
        agent.new()
        return "%.0f ms, then %.0f ms" % ((t1 - t) * 1000, (time.time() - t1) * 1000)


@check("ACP-STDERR-001", "I", "bytes on stderr in one prompt")
def _():
    with Agent() as agent:
        agent.prompt(agent.new()["sessionId"])
    return "%d" % len(agent.stderr)

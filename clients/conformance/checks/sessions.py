"""What is advertised must work: list, load, resume, close, delete, modes, options, authentication."""

import json
import os
import signal

from kit import Agent, OPTIONS, Skip, check, need


@check("ACP-LIST-001", "C", "session/list lists; a cwd no session has gives []")
def _():
    with Agent() as agent:
        agent.need_cap("sessionCapabilities", "list")
        s = agent.new()["sessionId"]
        agent.prompt(s)
        r = agent.result("session/list", {})
        need(isinstance(r.get("sessions"), list), "%r" % r)
        mine = [x for x in agent.result("session/list", {"cwd": OPTIONS.folder})["sessions"] if x["sessionId"] == s]
        need(mine and mine[0]["cwd"] == OPTIONS.folder, "the session is not in its own list")
        need(agent.result("session/list", {"cwd": "/no/such/dir"})["sessions"] == [], "not []")
        return "title %r" % mine[0].get("title")


@check("ACP-LOAD-001", "C", "session/load replays the talk before it answers, and nothing of it after")
def _():
    with Agent() as agent:
        agent.need_cap("loadSession")
        s = agent.new()["sessionId"]
        agent.prompt(s)
        n = len(agent.msgs)
        r = agent.call("session/load", {"sessionId": s, "cwd": OPTIONS.folder, "mcpServers": []})
        i = len(agent.msgs)
        need("result" in r, "%r" % r)
        agent.quiet()
        kinds = [u["update"]["sessionUpdate"] for j, u in agent.updates(s, n) if j < i]
        need("user_message_chunk" in kinds and "agent_message_chunk" in kinds, "replayed %r" % kinds)
        late = [u["update"]["sessionUpdate"] for j, u in agent.updates(s, i)]
        need(not [k for k in late if k.endswith("_chunk") or k.startswith("tool_call")], "after the answer: %r" % late)
        agent.prompt(s)


@check("X-RESTART", "B", "a session survives the process: a new one lists it and loads or resumes it")
def _():
    with Agent() as agent:
        if not (agent.cap("loadSession") or agent.cap("sessionCapabilities", "resume")):
            raise Skip("neither load nor resume")
        s = agent.new()["sessionId"]
        agent.prompt(s)
    with Agent() as agent:
        if agent.cap("sessionCapabilities", "list"):
            need(
                s in [x["sessionId"] for x in agent.result("session/list", {"cwd": OPTIONS.folder})["sessions"]],
                "not listed by the new process",
            )
        agent.result(
            *(
                ("session/resume", {"sessionId": s, "cwd": OPTIONS.folder})
                if agent.cap("sessionCapabilities", "resume")
                else ("session/load", {"sessionId": s, "cwd": OPTIONS.folder, "mcpServers": []})
            )
        )
        agent.prompt(s)


@check("ACP-RESUME-001", "C", "session/resume without mcpServers works and does not replay the talk before it answers")
def _():
    with Agent() as agent:
        agent.need_cap("sessionCapabilities", "resume")
        s = agent.new()["sessionId"]
        agent.prompt(s)
        n = len(agent.msgs)
        agent.result("session/resume", {"sessionId": s, "cwd": OPTIONS.folder})
        need(
            not [u for _, u in agent.updates(s, n) if u["update"]["sessionUpdate"].endswith("message_chunk")],
            "resume replayed history",
        )
        agent.prompt(s)


@check("X-KILL", "B", "after kill -9 in a turn the session still loads, with whole messages")
def _():
    with Agent() as agent:
        agent.need_cap("loadSession")
        s = agent.new()["sessionId"]
        agent.prompt(s)
        agent.running(s)
        os.kill(agent.process.pid, signal.SIGKILL)
        agent.process.wait(5)
    with Agent() as agent:
        agent.result("session/load", {"sessionId": s, "cwd": OPTIONS.folder, "mcpServers": []})
        agent.prompt(s)


@check("ACP-CLOSE-001", "C", "session/close answers {} and cancels a running prompt; it can be resumed")
def _():
    with Agent() as agent:
        agent.need_cap("sessionCapabilities", "close")
        s = agent.new()["sessionId"]
        agent.result("session/close", {"sessionId": s})
        s = agent.new()["sessionId"]
        rid = agent.running(s)
        agent.result("session/close", {"sessionId": s})
        m = agent.answer(rid, 10)
        need(m.get("result", {}).get("stopReason") == "cancelled", "%r" % m)


@check("ACP-DELETE-001", "C", "session/delete deletes: it is off the list")
def _():
    with Agent() as agent:
        agent.need_cap("sessionCapabilities", "delete")
        s = agent.new()["sessionId"]
        agent.prompt(s)
        agent.result("session/delete", {"sessionId": s})
        if agent.cap("sessionCapabilities", "list"):
            need(
                s not in [x["sessionId"] for x in agent.result("session/list", {"cwd": OPTIONS.folder})["sessions"]],
                "still listed",
            )


@check("ACP-DELETE-002", "A", "deleting twice, or what never was, is no error")
def _():
    with Agent() as agent:
        agent.need_cap("sessionCapabilities", "delete")
        s = agent.new()["sessionId"]
        for x in (s, s, "no-such-session"):
            need("result" in agent.call("session/delete", {"sessionId": x}), "delete of %r failed" % x)


@check("ACP-ADDDIRS-001", "C", "additionalDirectories are taken")
def _():
    with Agent() as agent:
        agent.need_cap("sessionCapabilities", "additionalDirectories")
        agent.new(additionalDirectories=["/tmp"])


@check("ACP-MODES-001", "C", "the current mode is one of the modes; set_mode sets each")
def _():
    with Agent() as agent:
        r = agent.new()
        if not r.get("modes"):
            raise Skip("no modes")
        ids = [m["id"] for m in r["modes"]["availableModes"]]
        need(r["modes"]["currentModeId"] in ids, "%r" % r["modes"])
        for i in ids:
            agent.result("session/set_mode", {"sessionId": r["sessionId"], "modeId": i})


@check("X-UNKNOWN-CHOICE", "B", "an unknown mode, option, option value or list cursor gets -32602, not a silent yes")
def _():
    with Agent() as agent:
        r = agent.new()
        tried = []
        if r.get("modes"):
            tried.append(("session/set_mode", {"modeId": "no-such-mode"}))
        if r.get("configOptions"):
            tried += [
                ("session/set_config_option", {"configId": "no-such", "value": "x"}),
                ("session/set_config_option", {"configId": r["configOptions"][0]["id"], "value": "no-such-value"}),
            ]
        if agent.cap("sessionCapabilities", "list"):
            tried.append(("session/list", {"cursor": "not-a-cursor"}))
        if not tried:
            raise Skip("nothing to choose")
        for k, p in tried:
            m = agent.call(k, {"sessionId": r["sessionId"], **p} if k != "session/list" else p)
            need(m.get("error", {}).get("code") == -32602, "%s %r: %s" % (k, p, json.dumps(m)[:120]))


def option_ok(o):
    if o["type"] == "boolean":
        return isinstance(o["currentValue"], bool)
    flat = [v["value"] for g in o["options"] for v in (g["options"] if "options" in g else [g])]
    return o["currentValue"] in flat


@check("ACP-CONFIG-001", "C", "options hold one of their values; set_config_option answers with all of them")
def _():
    with Agent() as agent:
        r = agent.new()
        if not r.get("configOptions"):
            raise Skip("no configOptions")
        need(all(option_ok(o) for o in r["configOptions"]), "a current value is not one of the values")
        need(
            not [o for o in r["configOptions"] if o["type"] == "boolean"],
            "a boolean option for a client that did not ask for them",
        )
        for o in r["configOptions"]:
            v = [v["value"] for g in o["options"] for v in (g["options"] if "options" in g else [g])][-1]
            x = agent.result(
                "session/set_config_option", {"sessionId": r["sessionId"], "configId": o["id"], "value": v}
            )["configOptions"]
            need({y["id"] for y in x} >= {y["id"] for y in r["configOptions"]}, "not all options")
            need([y for y in x if y["id"] == o["id"]][0]["currentValue"] == v, "not applied")


@check("ACP-AUTH-002", "M", "no terminal auth method for a client that cannot run one; ids are unique")
def _():
    with Agent() as agent:
        ms = agent.init.get("authMethods") or []
        need(not [m for m in ms if m.get("type") == "terminal"], "%r" % ms)
        need(len({m["id"] for m in ms}) == len(ms), "ids not unique")

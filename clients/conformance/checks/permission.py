"""Asking for permission, and never calling what the client did not offer."""

import threading

from kit import Agent, OPTIONS, Skip, check, need


def perm_turn(agent):
    if not OPTIONS.perm_prompt:
        raise Skip("no --perm-prompt")
    s = agent.new()["sessionId"]
    r = agent.prompt(s, OPTIONS.perm_prompt)
    if not [m for m in agent.asked if m["method"] == "session/request_permission"]:
        raise Skip("the prompt asked no permission: give --perm-prompt")
    return s, r


def tool_states(agent, s):
    st = {}
    for _, u in agent.updates(s):
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
    with Agent() as agent:
        s, r = perm_turn(agent)
        m = next(m for m in agent.asked if m["method"] == "session/request_permission")
        told = {u["update"].get("toolCallId") for _, u in agent.updates(s)}
        need(m["params"]["toolCall"]["toolCallId"] in told, "the tool call was not told")
        kinds = [o["kind"] for o in m["params"]["options"]]
        need(len({o["optionId"] for o in m["params"]["options"]}) == len(kinds), "optionIds not unique")
        need("allow_once" in kinds and any(k.startswith("reject") for k in kinds), "%r" % kinds)
        need(r == "end_turn", r)
        for t, st in tool_states(agent, s).items():
            need(st[-1] in ("completed", "failed"), "tool call %s was left %s" % (t, st))
        return ",".join(kinds)


@check("X-PERM-REJECT", "B", "a reject leaves the tool call failed and the turn goes on to its end")
def _():
    with Agent(perm="reject_once") as agent:
        s, r = perm_turn(agent)
        need(r == "end_turn", r)
        need(
            any(st[-1] == "failed" for st in tool_states(agent, s).values()),
            "no tool call is failed: %r" % tool_states(agent, s),
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
        with Agent(perm=lambda m, r=r: r) as agent:
            s, _ = perm_turn(agent)
            need(
                not any("completed" in st and st[-1] == "completed" for st in tool_states(agent, s).values()),
                "%r ran the tool" % r,
            )


@check("X-PERM-CANCEL", "B", "cancel while a permission is open ends the turn with cancelled")
def _():
    for late in (False, True):
        got = threading.Event()
        with Agent(perm=lambda m: got.set()) as agent:
            if not OPTIONS.perm_prompt:
                raise Skip("no --perm-prompt")
            s = agent.new()["sessionId"]
            rid = agent.start_prompt(s, OPTIONS.perm_prompt)
            if not got.wait(OPTIONS.timeout):
                raise Skip("the prompt asked no permission: give --perm-prompt")
            agent.note("session/cancel", {"sessionId": s})
            if not late:  # a client that keeps the rule answers cancelled; one that forgets must not hang the turn
                agent.send({"id": agent.asked[-1]["id"], "result": {"outcome": {"outcome": "cancelled"}}})
            m = agent.answer(rid, 10)
            need(m.get("result", {}).get("stopReason") == "cancelled", "%r" % m)
            if late:  # the answer that comes too late must be ignored
                agent.send(
                    {
                        "id": agent.asked[-1]["id"],
                        "result": {
                            "outcome": {
                                "outcome": "selected",
                                "optionId": agent.asked[-1]["params"]["options"][0]["optionId"],
                            }
                        },
                    }
                )
                agent.quiet(0.3)
            for t, st in tool_states(agent, s).items():
                need(st[-1] != "completed", "a tool ran after the cancel")
            agent.perm = "allow_once"
            agent.prompt(s)


@check("ACP-CLIENTCAP", "M", "no fs/*, terminal/* or elicitation/* when the client advertised none")
def _():
    with Agent() as agent:
        s = agent.new()["sessionId"]
        for t in (OPTIONS.prompt, OPTIONS.perm_prompt):
            if t:
                agent.prompt(s, t)
        bad = [m["method"] for m in agent.asked if m["method"] != "session/request_permission"]
        need(not bad, "%r" % bad)

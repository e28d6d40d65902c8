"""Every message against the protocol's own JSON Schema."""

import json

from kit import Agent, OPTIONS, Skip, check, need

EXTRA = []


@check("ACP-SCHEMA-001", "M", "every message of a whole session is of the schema")
def _():
    if not OPTIONS.schema:
        raise Skip("no --schema")
    import jsonschema

    sch = json.load(open(OPTIONS.schema))
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

    with Agent() as agent:
        s = agent.new()["sessionId"]
        for t in (OPTIONS.prompt, OPTIONS.perm_prompt):
            if t:
                agent.prompt(s, t)
        rid = agent.running(s)
        agent.note("session/cancel", {"sessionId": s})
        agent.answer(rid, 10)
        for c, k, p in (
            (("sessionCapabilities", "list"), "session/list", {}),
            (("loadSession",), "session/load", {"sessionId": s, "cwd": OPTIONS.folder, "mcpServers": []}),
            (("sessionCapabilities", "close"), "session/close", {"sessionId": s}),
        ):
            if agent.cap(*c):
                agent.call(k, p)
        n = 0
        for _, m in agent.msgs:
            if not isinstance(m, dict):
                continue
            n += 1
            if "method" in m:
                if not m["method"].startswith(("_", "$/")):
                    need(("client", m["method"]) in by, "unknown method " + m["method"])
                    ok(by[("client", m["method"])]["in"], m["params"], m["method"])
            elif "result" in m:
                k = agent.sent.get(json.dumps(m["id"]))
                name = by.get(("agent", k), {}).get("out")
                if name:
                    ok(name, m["result"], k)
            else:
                ok("Error", m["error"], "error")
    return "%d messages" % n


@check("ACP-SCHEMA-002", "A", "no root key that the schema does not know (own data goes under _meta)")
def _():
    if not OPTIONS.schema:
        raise Skip("no --schema")
    need(not EXTRA, ", ".join(sorted(set(EXTRA))))

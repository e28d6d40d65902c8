#!/usr/bin/env python3
"""Black-box ACP v1 conformance for an agent command.

usage: conformance.py [options] -- AGENT [ARGS..]      (file names in ARGS: absolute, the agent starts in a folder of its own)
  --schema FILE        schema/v1/schema.json out of npm @agentclientprotocol/sdk; needs PyPI jsonschema
  --timeout S          for one answer (20)
  --prompt TEXT        a prompt that ends by itself               (hello)
  --cancel-prompt TEXT a prompt that streams for 10 s or more     (slow)
  --perm-prompt TEXT   a prompt that asks one permission          (perm; "" skips)
  --big-prompt TEXT    a prompt with much output                  ("" skips)
  --auth METHOD        authenticate with it before session/new
  --only SUBSTR        run the checks whose id has it
  --json FILE          the result as JSON

Each check starts a fresh agent process. Tiers: M the protocol's MUST, C advertised so it must work, B our own bar (what
real clients send or need), A advice, I told and never judged. Exit 0 when no M, C or B check failed.
Ids ACP-* name the rule as the public acp-tck does; X-* are ours.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import traceback

import kit
from checks import wire, turn, permission, sessions, process, schema  # noqa: F401  (importing registers them)

JUDGED = "MCB"


def options():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--schema")
    parser.add_argument("--timeout", default=20.0, type=float)
    parser.add_argument("--prompt", default="hello")
    parser.add_argument("--cancel-prompt", default="slow")
    parser.add_argument("--perm-prompt", default="perm")
    parser.add_argument("--big-prompt", default="")
    parser.add_argument("--auth")
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    parser.add_argument("agent", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    given.agent = given.agent[1:] if given.agent[:1] == ["--"] else given.agent
    if not given.agent:
        parser.error("no agent command")
    if os.sep in given.agent[0]:
        given.agent[0] = os.path.abspath(given.agent[0])
    return given


def run(ident, tier, text, function):
    began = time.time()
    try:
        note, status = function() or "", "pass"
    except kit.Skip as skip:
        note, status = str(skip), "skip"
    except kit.Fail as fail:
        note, status = str(fail), "FAIL"
    except Exception as error:  # noqa: BLE001  (a check that trips over an odd answer has found something)
        note, status = f"{error!r} {traceback.format_exc().splitlines()[-2].strip()}", "FAIL"
    print(f"{status:4} {tier} {ident:20} {text}" + (f"  [{note[:260]}]" if note else ""), flush=True)
    return {"id": ident, "tier": tier, "status": status, "note": note, "text": text, "s": round(time.time() - began, 2)}


def main():
    given = options()
    with tempfile.TemporaryDirectory(prefix="acp-conformance-") as folder:
        vars(kit.OPTIONS).update(vars(given), folder=os.path.realpath(folder))
        results = [run(*check) for check in kit.CHECKS if given.only in check[0]]
    if given.json:
        with open(given.json, "w") as out:
            json.dump(results, out, indent=1)
    count = {status: sum(r["status"] == status for r in results) for status in ("pass", "FAIL", "skip")}
    failed = {tier: sum(r["status"] == "FAIL" and r["tier"] == tier for r in results) for tier in JUDGED}
    protocol = failed["M"] + failed["C"]
    verdict = f"NOT CONFORMANT: {protocol} mandatory or advertised checks failed" if protocol else "CONFORMANT"
    print(f"{verdict}; {failed['B']} of our own bar failed")
    print(f"{count['pass']} passed, {count['FAIL']} failed, {count['skip']} skipped")
    return 1 if sum(failed.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

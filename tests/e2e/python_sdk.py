#!/usr/bin/env python3
"""Drives an agent with the official Python SDK (PyPI agent-client-protocol), as an editor would.

usage: python_sdk.py -- AGENT [ARGS..]

The agent plays tests/e2e/model.jsonl. Prints one line per thing that held; the first that does not ends the run
with exit code 1. Wire order is judged on the raw messages, everything else on what the SDK's own types accepted.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import acp
from acp import schema

ANSWER_SECONDS = 30
CANCEL_SECONDS = 2
GREETING = "hello from turnd\n"


class Deviation(Exception):
    """The agent did something that a client cannot rely on."""


def check(holds, promise, seen=""):
    if not holds:
        raise Deviation(f"{promise}; seen: {seen!r}" if seen != "" else promise)
    print(f"ok   {promise}", flush=True)


class Editor:
    """The client side: answers permission questions as told and keeps what it was shown."""

    def __init__(self):
        self.permission = "allow_once"
        self.questions = []
        self.updates = []
        self.wire = []

    def on_connect(self, connection):
        pass

    def observe(self, event):
        if event.direction == acp.connection.StreamDirection.INCOMING:
            self.wire.append(event.message)

    async def session_update(self, session_id, update, **_):
        self.updates.append(update)

    async def request_permission(self, session_id, tool_call, options, **_):
        self.questions.append((tool_call, options))
        for option in options:
            if option.kind == self.permission:
                outcome = schema.AllowedOutcome(outcome="selected", option_id=option.option_id)
                return schema.RequestPermissionResponse(outcome=outcome)
        return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))

    async def ext_method(self, method, params):
        raise acp.RequestError.method_not_found(method)

    async def ext_notification(self, method, params):
        pass

    def wire_updates(self, since=0):
        """The raw `session/update` bodies from that wire position on."""
        return [m["params"]["update"] for m in self.wire[since:] if m.get("method") == "session/update"]

    def said(self, kind, since=0):
        """All text of one kind of chunk, joined."""
        chunks = [u["content"]["text"] for u in self.wire_updates(since) if u["sessionUpdate"] == kind]
        return "".join(chunks)

    def tool_states(self, since=0):
        """tool call id -> its states in wire order; a call that was first reported without one is pending."""
        states = {}
        for update in self.wire_updates(since):
            if update["sessionUpdate"] == "tool_call":
                states[update["toolCallId"]] = [update.get("status", "pending")]
            elif update["sessionUpdate"] == "tool_call_update" and update.get("status"):
                states[update["toolCallId"]].append(update["status"])
        return {call: [s for i, s in enumerate(seen) if i == 0 or s != seen[i - 1]] for call, seen in states.items()}


class Drive:
    """One connection and the turns that every real client must be able to have."""

    def __init__(self, connection, editor, folder, answer_seconds=ANSWER_SECONDS):
        self.connection, self.editor, self.folder = connection, editor, folder
        self.answer_seconds = answer_seconds
        self.session = None

    async def prompt(self, text):
        call = self.connection.prompt(session_id=self.session, prompt=[acp.text_block(text)])
        return (await asyncio.wait_for(call, self.answer_seconds)).stop_reason

    async def start(self):
        agent = await self.connection.initialize(
            protocol_version=acp.PROTOCOL_VERSION,
            client_capabilities=schema.ClientCapabilities(),
            client_info=schema.Implementation(name="python_sdk.py", version="1"),
        )
        check(agent.protocol_version == 1, "initialize settles on protocol version 1", agent.protocol_version)
        check(
            agent.agent_info is not None and agent.agent_info.name == "turnd",
            "the agent says its name",
            agent.agent_info,
        )
        check(agent.agent_capabilities.load_session, "sessions can be loaded")
        created = await self.connection.new_session(cwd=str(self.folder), mcp_servers=[])
        self.session = created.session_id
        check(self.session, "session/new gives a session")

    async def tool_call(self):
        since = len(self.editor.wire)
        stop = await self.prompt("look at the notes")
        check(stop == "end_turn", "a turn with a tool call ends with end_turn", stop)
        states = list(self.editor.tool_states(since).values())
        check(
            states == [["pending", "in_progress", "completed"]], "the call goes pending, in_progress, completed", states
        )
        check(not self.editor.questions, "reading asks nothing")
        check(self.editor.said("agent_thought_chunk", since), "the reasoning is shown")
        check(self.editor.said("agent_message_chunk", since), "the answer is shown")

    async def approval(self):
        since = len(self.editor.wire)
        stop = await self.prompt("write greeting")
        check(stop == "end_turn", "a turn with an approved write ends with end_turn", stop)
        check(len(self.editor.questions) == 1, "the write asked once", len(self.editor.questions))
        tool_call, options = self.editor.questions[0]
        kinds = {option.kind for option in options}
        check({"allow_once", "reject_once"} <= kinds, "it offered allow_once and reject_once", kinds)
        states = self.editor.tool_states(since)
        check(tool_call.tool_call_id in states, "it asked with the id of the announced call", tool_call.tool_call_id)
        seen = states[tool_call.tool_call_id]
        check(seen == ["pending", "in_progress", "completed"], "the approved call ran to completed", seen)
        self.check_asked_before_running(since, tool_call.tool_call_id)
        diffs = [c for u in self.editor.wire_updates(since) for c in u.get("content") or [] if "newText" in c]
        check(any(d["newText"] == GREETING for d in diffs), "the change was shown as a diff", diffs)
        written = (self.folder / "greeting.txt").read_text()
        check(written == GREETING, "the approved file is on disk", written)

    def check_asked_before_running(self, since, call):
        order = []
        for message in self.editor.wire[since:]:
            update = message.get("params", {}).get("update", {}) if "method" in message else {}
            if message.get("method") == "session/request_permission":
                order.append("asked")
            elif update.get("toolCallId") == call and update.get("status") == "in_progress":
                order.append("running")
        check(order[:2] == ["asked", "running"], "it did not run before it was approved", order)

    async def rejection(self):
        since, asked = len(self.editor.wire), len(self.editor.questions)
        self.editor.permission = "reject_once"
        stop = await self.prompt("write farewell")
        self.editor.permission = "allow_once"
        check(stop == "end_turn", "a turn with a rejected write still ends with end_turn", stop)
        check(len(self.editor.questions) == asked + 1, "the write asked once")
        states = list(self.editor.tool_states(since).values())
        check(states == [["pending", "failed"]], "the rejected call never ran", states)
        check(not (self.folder / "farewell.txt").exists(), "the rejected file is not on disk")
        check(self.editor.said("agent_message_chunk", since), "the model answered the rejection")

    async def cancel(self):
        since = len(self.editor.wire)
        turn = asyncio.create_task(self.prompt("slow"))
        await self.until(lambda: self.editor.said("agent_message_chunk", since), "the first words of a long answer")
        await self.connection.cancel(session_id=self.session)
        stop = await asyncio.wait_for(turn, CANCEL_SECONDS)
        check(stop == "cancelled", "session/cancel ends the turn with cancelled", stop)
        stop = await self.prompt("hello")
        check(stop == "end_turn", "the session takes the next prompt", stop)

    async def until(self, condition, what):
        async with asyncio.timeout(ANSWER_SECONDS):
            while not condition():
                await asyncio.sleep(0.01)
        check(True, f"{what} arrive while the turn runs")

    async def load(self):
        since = len(self.editor.wire)
        await self.connection.load_session(cwd=str(self.folder), session_id=self.session, mcp_servers=[])
        replayed = self.editor.said("user_message_chunk", since)
        check("look at the notes" in replayed, "a new process replays the talk", replayed)
        check(self.editor.tool_states(since), "and its tool calls")
        stop = await self.prompt("hello")
        check(stop == "end_turn", "and goes on with it", stop)


async def connected(command, folder, turns):
    editor = Editor()
    agent = acp.spawn_agent_process(editor, *command, env=dict(os.environ), cwd=folder, observers=[editor.observe])
    async with agent as (connection, process):
        await turns(Drive(connection, editor, folder))
    check(process.returncode == 0, "the agent leaves with exit code 0", process.returncode)
    typed, raw = len(editor.updates), len(editor.wire_updates())
    check(typed == raw, "the SDK's types accepted every update", (typed, raw))


async def main(command):
    with tempfile.TemporaryDirectory(prefix="turnd-e2e-") as name:
        folder = Path(name).resolve()
        (folder / "notes.txt").write_text("the meeting is at ten\n")
        session = None

        async def first(drive):
            nonlocal session
            await drive.start()
            for turn in (drive.tool_call, drive.approval, drive.rejection, drive.cancel):
                await turn()
            session = drive.session

        async def second(drive):
            await drive.start()
            drive.session = session
            await drive.load()

        await connected(command, folder, first)
        await connected(command, folder, second)


if __name__ == "__main__":
    if sys.argv[1:2] != ["--"] or len(sys.argv) < 3:
        sys.exit(__doc__)
    try:
        asyncio.run(main(sys.argv[2:]))
    except (Deviation, acp.RequestError, TimeoutError) as deviation:
        print(f"FAIL {type(deviation).__name__}: {deviation}", flush=True)
        sys.exit(1)

#!/usr/bin/env python3
"""Has whole turns with a real model server behind turnd, from the shell and from an ACP client.

usage: drive.py MODEL.gguf -- TURND

Starts llama.cpp's server with the model and the template beside this file. `#tool` in a prompt makes the model call
read_file, `#think` makes it think first; what it says is its own. Prints one line per thing that held; the first that
does not ends the run with exit code 1. Where the server does not run (its builds need AVX2) the exit code is 3.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import acp  # noqa: E402
from python_sdk import Deviation, Drive, Editor, check  # noqa: E402

# One thread: with as many threads as cores the workers spin on each other as soon as anything else runs.
SERVER_THREADS = "1"
CONTEXT_TOKENS = 8192
TURN_SECONDS = 300
# What so small a model does depends on every byte of its prompt, the folder's name among them: now and then it only
# talks. It is asked again then, as turnd cannot make it act.
ATTEMPTS = 4

NO_SERVER = 3
NOTES = "The meeting is at ten.\n"
API_MODES = {"chat_completions": "/v1", "codex_responses": "/v1", "anthropic_messages": ""}


@contextlib.contextmanager
def model_server(model):
    """A server on a free port of the loopback interface; gives its base URL."""
    command = [sys.executable, str(HERE / "serve.py"), "--model", model, "--template", str(HERE / "agent.jinja")]
    command += ["--alias", "smollm2", "--ctx", str(CONTEXT_TOKENS), "--threads", SERVER_THREADS]
    command += ["--reasoning-budget", "24"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        ready = next((line.split()[1] for line in server.stdout if line.startswith("READY")), None)
        if not ready:
            print(f"skipped: the model server ended with {server.wait()} on this machine", flush=True)
            sys.exit(NO_SERVER)
        yield ready
    finally:
        server.kill()
        server.wait()


def write_config(home, url, api_mode):
    (home / "config.toml").write_text(
        f"""model = "local/smollm2"
mode = "ask"

[providers.local]
api_mode = "{api_mode}"
base_url = "{url}{API_MODES[api_mode]}"
api_key = "none"
context_window = {CONTEXT_TOKENS}
max_output_tokens = 96
first_event_timeout_seconds = {TURN_SECONDS}

[compression]
threshold = 0.9
"""
    )


def from_the_shell(turnd, folder, environment):
    """`turnd run`: the answer on stdout, what happens on stderr."""
    for attempt in range(ATTEMPTS):
        place = folder / f"attempt{attempt}"
        place.mkdir()
        (place / "notes.txt").write_text(NOTES)
        done = subprocess.run(
            [turnd, "run", "What do the notes say? #tool"],
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TURN_SECONDS,
        )
        check(done.returncode == 0, "turnd run ends with exit code 0", (done.returncode, done.stderr[-2000:]))
        check(done.stdout.strip(), "turnd run prints an answer", done.stderr[-2000:])
        if "notes.txt" in done.stderr:
            break
    check("notes.txt" in done.stderr, "turnd run shows the tool call", (done.stdout[-2000:], done.stderr[-2000:]))


async def from_a_client(turnd, folder, environment, api_mode, prompts):
    """The same turns over ACP with the official Python SDK."""
    editor = Editor()
    agent = acp.spawn_agent_process(editor, turnd, env=environment, cwd=folder, observers=[editor.observe])
    async with agent as (connection, _process):
        drive = Drive(connection, editor, folder, answer_seconds=TURN_SECONDS)
        await drive.start()
        for prompt, has_acted, judge in prompts:
            began = time.monotonic()
            for _ in range(ATTEMPTS):
                since = len(editor.wire)
                stop = await drive.prompt(prompt)
                check(stop in ("end_turn", "max_tokens"), f"{api_mode}: {prompt!r} ends by itself", stop)
                if has_acted(editor, since):
                    break
            judge(editor, since)
            print(f"     {time.monotonic() - began:.1f} s", flush=True)


def asked_for_a_tool(editor, since):
    return bool(editor.tool_states(since))


def has_thought(editor, since):
    return bool(editor.said("agent_thought_chunk", since))


def has_spoken(editor, since):
    return bool(editor.said("agent_message_chunk", since))


def called_a_tool(editor, since):
    states = list(editor.tool_states(since).values())
    check(states and states[0] == ["pending", "in_progress", "completed"], "the real tool call completed", states)
    check(editor.said("agent_message_chunk", since), "the model answered its result")


def thought(editor, since):
    check(editor.said("agent_thought_chunk", since), "the thought is shown")
    check(editor.said("agent_message_chunk", since), "and the answer after it")


def answered(editor, since):
    check(editor.said("agent_message_chunk", since), "the text is shown")


def main(model, turnd):
    prompts = [
        ("What do the notes say? #tool", asked_for_a_tool, called_a_tool),
        ("What is 2+2? #think", has_thought, thought),
        ("Say hello in one short sentence.", has_spoken, answered),
    ]
    with model_server(model) as url, tempfile.TemporaryDirectory(prefix="turnd-real-") as base:
        folder, home = Path(base).resolve() / "work", Path(base) / "home"
        folder.mkdir()
        home.mkdir(mode=0o700)
        (folder / "notes.txt").write_text(NOTES)
        environment = dict(os.environ, TURND_HOME=str(home))
        for api_mode in API_MODES:
            write_config(home, url, api_mode)
            if api_mode == "chat_completions":
                from_the_shell(turnd, folder, environment)
            asyncio.run(from_a_client(turnd, folder, environment, api_mode, prompts))


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[2] != "--":
        sys.exit(__doc__)
    try:
        main(sys.argv[1], os.path.abspath(sys.argv[3]))
    except (Deviation, acp.RequestError, TimeoutError, subprocess.TimeoutExpired) as deviation:
        print(f"FAIL {type(deviation).__name__}: {deviation}", flush=True)
        sys.exit(1)

#!/usr/bin/env python3
"""A whole ACP client in one file, standard library only: the least that drives turnd.

usage: turnd_client.py turn|approve|cancel [PROMPT] -- AGENT [ARGS..]

turn     sends one prompt and prints the answer as it comes
approve  the same, and asks on the terminal when the agent asks
cancel   cancels the turn as soon as the first words are there

    turnd_client.py turn "what does this project do?" -- turnd
"""

import json
import os
import queue
import subprocess
import sys
import threading


class Client:
    """Spawns an agent, speaks JSON-RPC over its stdin and stdout, one message a line."""

    def __init__(self, command, on_update, on_permission):
        self.on_update, self.on_permission = on_update, on_permission
        self.agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.answers = {}
        self.last_id = 0
        self.writing = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def call(self, method, params):
        """Sends a request and waits for its result; an error answer is raised."""
        return self.wait(self.start(method, params))

    def start(self, method, params):
        """Sends a request; `wait` gives its result."""
        self.last_id += 1
        self.answers[self.last_id] = queue.Queue()
        self._send({"id": self.last_id, "method": method, "params": params})
        return self.last_id

    def wait(self, request_id):
        answer = self.answers[request_id].get()
        if "error" in answer:
            raise RuntimeError(f"{answer['error']['message']}: {answer['error'].get('data')}")
        return answer["result"]

    def notify(self, method, params):
        self._send({"method": method, "params": params})

    def close(self):
        """The end of its stdin tells the agent to leave; returns its exit code."""
        self.agent.stdin.close()
        return self.agent.wait()

    def _send(self, message):
        line = json.dumps({"jsonrpc": "2.0", **message}) + "\n"
        with self.writing:
            self.agent.stdin.write(line.encode())
            self.agent.stdin.flush()

    def _read(self):
        for line in self.agent.stdout:
            message = json.loads(line)
            if message.get("method") == "session/update":
                self.on_update(message["params"]["update"])
            elif message.get("method") == "session/request_permission":
                # A question may wait for a person, so it must not hold up what else arrives.
                threading.Thread(target=self._answer, args=(message,), daemon=True).start()
            elif "method" in message and "id" in message:
                self._send({"id": message["id"], "error": {"code": -32601, "message": "method not found"}})
            elif message.get("id") in self.answers:
                self.answers[message["id"]].put(message)
        for waiting in list(self.answers.values()):
            waiting.put({"error": {"message": "the agent ended"}})

    def _answer(self, question):
        option = self.on_permission(question["params"])
        outcome = {"outcome": "selected", "optionId": option} if option else {"outcome": "cancelled"}
        self._send({"id": question["id"], "result": {"outcome": outcome}})


def show(update):
    """Prints what a person wants to see of a session/update."""
    kind = update["sessionUpdate"]
    if kind == "agent_message_chunk":
        print(update["content"].get("text", ""), end="", flush=True)
    elif kind == "tool_call":
        print(f"\n[{update['title']}]", flush=True)
    elif kind == "tool_call_update" and update.get("status") in ("completed", "failed"):
        print(f"[{update['status']}]", flush=True)


def ask(question):
    """Asks on the terminal which of the offered options to take; none of them cancels the turn."""
    print(f"\n{question['toolCall'].get('title')}")
    for number, option in enumerate(question["options"], 1):
        print(f"  {number}. {option['name']}")
    print("> ", end="", flush=True)
    chosen = sys.stdin.readline().strip()
    numbered = {str(number): option["optionId"] for number, option in enumerate(question["options"], 1)}
    return numbered.get(chosen)


def reject(question):
    """Says no."""
    return next((o["optionId"] for o in question["options"] if o["kind"] == "reject_once"), None)


def main():
    if "--" not in sys.argv or sys.argv[1:2] not in (["turn"], ["approve"], ["cancel"]):
        sys.exit(__doc__)
    separator = sys.argv.index("--")
    example, words, command = sys.argv[1], sys.argv[2:separator], sys.argv[separator + 1 :]
    first_words = threading.Event()

    def on_update(update):
        show(update)
        if update["sessionUpdate"] == "agent_message_chunk":
            first_words.set()

    client = Client(command, on_update, ask if example == "approve" else reject)
    client.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
    session = client.call("session/new", {"cwd": os.getcwd(), "mcpServers": []})["sessionId"]
    text = {"type": "text", "text": " ".join(words) or "hello"}
    turn = client.start("session/prompt", {"sessionId": session, "prompt": [text]})
    if example == "cancel":
        first_words.wait()
        client.notify("session/cancel", {"sessionId": session})
    print(f"\n({client.wait(turn)['stopReason']})")
    sys.exit(client.close())


if __name__ == "__main__":
    main()

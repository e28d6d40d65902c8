// Drives an agent with the headless client acpx (npm acpx), each of whose commands here starts a new agent process.
//
// usage: node acpx.mjs -- AGENT [ARGS..]
//
// TURND_TEST_NODE_MODULES names the node_modules folder that holds acpx and, where the machine's own node is too old
// for it, one of the node-linux-* packages. The agent plays tests/e2e/model.jsonl.
// Prints one line per thing that held; the first that does not ends the run with exit code 1.

import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";

const ANSWER_MS = 60_000;
const ALL_DENIED = 5; // acpx's exit code for a turn in which every question was refused
const modules = path.resolve(process.env.TURND_TEST_NODE_MODULES ?? "node_modules");

function check(holds, promise, seen) {
  if (!holds) throw new Error(`${promise}; seen: ${JSON.stringify(seen)}`);
  console.log(`ok   ${promise}`);
}

function same(actual, expected, promise) {
  check(JSON.stringify(actual) === JSON.stringify(expected), promise, actual);
}

/** The node that the packages bring, else the machine's own. */
function node() {
  const shipped = path.join(modules, `node-linux-${process.arch}`, "bin");
  return fs.existsSync(shipped) ? shipped : path.dirname(process.execPath);
}

/** The raw messages of one prompt, as `--format json` prints them. */
class Talk {
  constructor(lines, code) {
    this.messages = lines.map((line) => JSON.parse(line));
    this.code = code;
  }

  requests(method) {
    return this.messages.filter((message) => message.method === method && "id" in message);
  }

  /** What the turn showed; before it a new process may have replayed the session. */
  updates() {
    const turn = this.messages.slice(this.messages.findIndex((message) => message.method === "session/prompt") + 1);
    return turn.filter((message) => message.method === "session/update").map(({ params }) => params.update);
  }

  said(kind) {
    return this.updates().filter((update) => update.sessionUpdate === kind).map((update) => update.content.text).join("");
  }

  stopReason() {
    return this.messages.findLast((message) => message.result?.stopReason)?.result.stopReason;
  }

  /** The states of every tool call in wire order, repetitions left out. */
  toolStates() {
    const states = new Map();
    for (const update of this.updates()) {
      if (update.sessionUpdate === "tool_call") states.set(update.toolCallId, [update.status ?? "pending"]);
      const seen = states.get(update.toolCallId);
      if (seen && update.status && seen.at(-1) !== update.status) seen.push(update.status);
    }
    return [...states.values()];
  }
}

/** acpx with a home of its own, in one work folder, told to run one agent. */
class Acpx {
  constructor(command, folder, home) {
    this.folder = folder;
    this.env = { ...process.env, HOME: home, PATH: `${node()}:${process.env.PATH}` };
    this.agent = command.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(" ");
  }

  /** Runs one command; `onLine` sees each line of its output as it comes. */
  run(words, onLine = () => {}) {
    const args = [path.join(modules, ".bin", "acpx"), "--agent", this.agent, "--format", "json", "--ttl", "1", ...words];
    const child = spawn(path.join(node(), "node"), args, { cwd: this.folder, env: this.env, stdio: ["ignore", "pipe", "pipe"] });
    const lines = [];
    let rest = "";
    let errors = "";
    child.stderr.on("data", (bytes) => (errors += bytes));
    child.stdout.setEncoding("utf8").on("data", (text) => {
      const parts = (rest + text).split("\n");
      rest = parts.pop();
      for (const line of parts.filter(Boolean)) {
        lines.push(line);
        onLine(line);
      }
    });
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => child.kill("SIGKILL"), ANSWER_MS);
      child.on("error", reject);
      child.on("close", (code) => {
        clearTimeout(timer);
        if (code === 0 || code === ALL_DENIED) resolve(new Talk(lines, code));
        else reject(new Error(`acpx ${words.join(" ")} ended with ${code}: ${errors}${lines.at(-1) ?? ""}`));
      });
    });
  }

  /** Runs a prompt in a new agent process. */
  async prompt(text, options = [], onLine = undefined) {
    await this.rest();
    return this.run([...options, "prompt", text], onLine);
  }

  /** Waits until no agent process is left; a prompt that arrives while acpx ends one is refused. */
  async rest() {
    for (let left = 100; left > 0; left -= 1) {
      const talk = await this.run(["status"]);
      if (talk.messages[0].status === "idle") return talk.messages[0];
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    throw new Error("the agent process did not end after a second without work");
  }
}

async function toolCall(acpx) {
  const talk = await acpx.prompt("look at the notes");
  same(talk.stopReason(), "end_turn", "a turn with a tool call ends with end_turn");
  same(talk.toolStates(), [["pending", "in_progress", "completed"]], "the call goes pending, in_progress, completed");
  check(talk.said("agent_thought_chunk"), "the reasoning is shown");
  check(talk.said("agent_message_chunk"), "the answer is shown");
}

async function approval(acpx) {
  const talk = await acpx.prompt("write greeting", ["--approve-all"]);
  same(talk.stopReason(), "end_turn", "a turn with an approved write ends with end_turn");
  same(talk.requests("session/request_permission").length, 1, "the write asked once");
  same(talk.toolStates(), [["pending", "in_progress", "completed"]], "the approved call ran to completed");
  const written = fs.readFileSync(path.join(acpx.folder, "greeting.txt"), "utf8");
  same(written, "hello from turnd\n", "the approved file is on disk");
}

async function rejection(acpx) {
  const talk = await acpx.prompt("write farewell", ["--deny-all"]);
  same(talk.code, ALL_DENIED, "acpx says that all was denied");
  const [question] = talk.requests("session/request_permission");
  // Both sides number their own requests, so the id alone does not tell an answer to the agent.
  const answer = talk.messages.find((message) => message.id === question?.id && message.result?.outcome);
  const chosen = answer?.result.outcome.optionId;
  const option = question?.params.options.find((offered) => offered.optionId === chosen);
  same(option?.kind, "reject_once", "acpx found an option to reject once");
  same(talk.stopReason(), "end_turn", "a turn with a rejected write still ends with end_turn");
  same(talk.toolStates(), [["pending", "failed"]], "the rejected call never ran");
  check(!fs.existsSync(path.join(acpx.folder, "farewell.txt")), "the rejected file is not on disk");
}

async function cancel(acpx) {
  let started;
  const streaming = new Promise((resolve) => (started = resolve));
  const turn = acpx.prompt("slow", [], (line) => line.includes("agent_message_chunk") && started());
  await Promise.race([streaming, turn]);
  const answer = await acpx.run(["cancel"]);
  same(answer.messages[0].cancelled, true, "acpx cancel reaches the running turn");
  same((await turn).stopReason(), "cancelled", "the cancelled turn ends with cancelled");
}

async function nextProcess(acpx, sessionId) {
  const { acpxSessionId } = await acpx.rest();
  same(acpxSessionId, sessionId, "one session served every command");
  const talk = await acpx.prompt("hello");
  same(talk.requests("initialize").length, 1, "a new agent process serves the next command");
  same(talk.requests("session/new").length, 0, "it goes on with the stored session");
  same(talk.stopReason(), "end_turn", "and answers in it");
  await acpx.run(["sessions", "close"]);
  check(true, "the session is closed");
}

async function main(command) {
  const base = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "turnd-acpx-")));
  const [folder, home] = ["work", "home"].map((name) => path.join(base, name));
  fs.mkdirSync(folder);
  fs.mkdirSync(home);
  fs.writeFileSync(path.join(folder, "notes.txt"), "the meeting is at ten\n");
  try {
    const acpx = new Acpx(command, folder, home);
    const created = (await acpx.run(["sessions", "new"])).messages[0];
    check(created.created && created.acpxSessionId, "acpx makes a session", created);
    await toolCall(acpx);
    await approval(acpx);
    await rejection(acpx);
    await cancel(acpx);
    await nextProcess(acpx, created.acpxSessionId);
  } finally {
    fs.rmSync(base, { recursive: true, force: true });
  }
}

const [separator, ...command] = process.argv.slice(2);
if (separator !== "--" || command.length === 0) {
  console.error("usage: node acpx.mjs -- AGENT [ARGS..]");
  process.exit(2);
}
main(command).then(
  () => process.exit(0),
  (deviation) => {
    console.log(`FAIL ${deviation.message}`);
    process.exit(1);
  },
);

// Drives an agent with the official TypeScript SDK (npm @agentclientprotocol/sdk), as an editor would.
//
// usage: node typescript_sdk.mjs -- AGENT [ARGS..]
//
// TURND_TEST_NODE_MODULES names the node_modules folder that holds the SDK.
// The agent plays tests/e2e/model.jsonl. Prints one line per thing that held; the first that does not ends the run
// with exit code 1. Wire order is judged on the raw messages, the rest on what the SDK handed over.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const ANSWER_MS = 30_000;
const CANCEL_MS = 2_000;
const GREETING = "hello from turnd\n";

const modules = process.env.TURND_TEST_NODE_MODULES ?? "node_modules";
const entry = createRequire(path.resolve(modules, "here.js")).resolve("@agentclientprotocol/sdk");
const acp = await import(pathToFileURL(entry).href);
const { agent: AGENT, client: CLIENT } = acp.methods;

function check(holds, promise, seen) {
  if (!holds) throw new assert.AssertionError({ message: `${promise}; seen: ${JSON.stringify(seen)}` });
  console.log(`ok   ${promise}`);
}

function same(actual, expected, promise) {
  check(JSON.stringify(actual) === JSON.stringify(expected), promise, actual);
}

function within(ms, promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} took more than ${ms} ms`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** The client side: answers permission questions as told and keeps what it was shown. */
class Editor {
  permission = "allow_once";
  questions = [];
  typedUpdates = 0;
  wire = [];
  waiting = [];

  /** The SDK's application with this editor's handlers. */
  application() {
    return acp
      .client({ name: "typescript_sdk.mjs" })
      .onNotification(CLIENT.session.update, () => {
        this.typedUpdates += 1;
      })
      .onRequest(CLIENT.session.requestPermission, async ({ params }) => {
        this.questions.push(params);
        const option = params.options.find((offered) => offered.kind === this.permission);
        return { outcome: option ? { outcome: "selected", optionId: option.optionId } : { outcome: "cancelled" } };
      });
  }

  /** Passes every incoming message on and keeps a copy in wire order. */
  tap(readable) {
    const keep = new TransformStream({
      transform: (message, controller) => {
        this.wire.push(structuredClone(message));
        this.waiting = this.waiting.filter(({ condition, resolve }) => !(condition() && (resolve(), true)));
        controller.enqueue(message);
      },
    });
    return readable.pipeThrough(keep);
  }

  /** Settles when a message has made the condition true. */
  until(condition) {
    return condition() ? Promise.resolve() : new Promise((resolve) => this.waiting.push({ condition, resolve }));
  }

  updates(since) {
    return this.wire.slice(since).filter((m) => m.method === "session/update").map((m) => m.params.update);
  }

  said(kind, since) {
    return this.updates(since).filter((u) => u.sessionUpdate === kind).map((u) => u.content.text).join("");
  }

  /** Tool call id to its states in wire order, repetitions left out. */
  toolStates(since) {
    const states = new Map();
    for (const update of this.updates(since)) {
      if (update.sessionUpdate === "tool_call") states.set(update.toolCallId, [update.status ?? "pending"]);
      if (update.sessionUpdate !== "tool_call_update" || !update.status) continue;
      const seen = states.get(update.toolCallId);
      if (seen.at(-1) !== update.status) seen.push(update.status);
    }
    return states;
  }
}

/** One connection and the turns that every real client must be able to have. */
class Drive {
  constructor(agent, editor, folder) {
    Object.assign(this, { agent, editor, folder, sessionId: undefined });
  }

  async prompt(text, options) {
    const params = { sessionId: this.sessionId, prompt: [{ type: "text", text }] };
    const { stopReason } = await within(ANSWER_MS, this.agent.request(AGENT.session.prompt, params, options), text);
    return stopReason;
  }

  async start() {
    const agent = await this.agent.request(AGENT.initialize, {
      protocolVersion: acp.PROTOCOL_VERSION,
      clientInfo: { name: "typescript_sdk.mjs", version: "1" },
      clientCapabilities: {},
    });
    same(agent.protocolVersion, 1, "initialize settles on protocol version 1");
    same(agent.agentInfo?.name, "turnd", "the agent says its name");
    same(agent.agentCapabilities?.loadSession, true, "sessions can be loaded");
    const created = await this.agent.request(AGENT.session.new, { cwd: this.folder, mcpServers: [] });
    this.sessionId = created.sessionId;
    check(this.sessionId, "session/new gives a session", created);
  }

  async toolCall() {
    const since = this.editor.wire.length;
    same(await this.prompt("look at the notes"), "end_turn", "a turn with a tool call ends with end_turn");
    const states = [...this.editor.toolStates(since).values()];
    same(states, [["pending", "in_progress", "completed"]], "the call goes pending, in_progress, completed");
    same(this.editor.questions.length, 0, "reading asks nothing");
    check(this.editor.said("agent_thought_chunk", since), "the reasoning is shown");
    check(this.editor.said("agent_message_chunk", since), "the answer is shown");
  }

  async approval() {
    const since = this.editor.wire.length;
    same(await this.prompt("write greeting"), "end_turn", "a turn with an approved write ends with end_turn");
    same(this.editor.questions.length, 1, "the write asked once");
    const [{ toolCall, options }] = this.editor.questions;
    const kinds = options.map((option) => option.kind);
    check(kinds.includes("allow_once") && kinds.includes("reject_once"), "it offered allow_once and reject_once", kinds);
    const states = this.editor.toolStates(since).get(toolCall.toolCallId);
    same(states, ["pending", "in_progress", "completed"], "it asked with the announced id, and the call ran to completed");
    const diffs = this.editor.updates(since).flatMap((u) => u.content ?? []).filter((c) => c.type === "diff");
    check(diffs.some((diff) => diff.newText === GREETING), "the change was shown as a diff", diffs);
    same(fs.readFileSync(path.join(this.folder, "greeting.txt"), "utf8"), GREETING, "the approved file is on disk");
  }

  async rejection() {
    const since = this.editor.wire.length;
    const asked = this.editor.questions.length;
    this.editor.permission = "reject_once";
    same(await this.prompt("write farewell"), "end_turn", "a turn with a rejected write still ends with end_turn");
    this.editor.permission = "allow_once";
    same(this.editor.questions.length, asked + 1, "the write asked once");
    same([...this.editor.toolStates(since).values()], [["pending", "failed"]], "the rejected call never ran");
    check(!fs.existsSync(path.join(this.folder, "farewell.txt")), "the rejected file is not on disk");
    check(this.editor.said("agent_message_chunk", since), "the model answered the rejection");
  }

  async cancel() {
    const { turn } = await this.running();
    await this.agent.notify(AGENT.session.cancel, { sessionId: this.sessionId });
    same(await within(CANCEL_MS, turn, "the cancelled turn"), "cancelled", "session/cancel ends the turn with cancelled");
    same(await this.prompt("hello"), "end_turn", "the session takes the next prompt");
  }

  async cancelRequest() {
    const abort = new AbortController();
    const { turn } = await this.running({ cancellationSignal: abort.signal });
    abort.abort();
    same(await within(CANCEL_MS, turn, "the aborted turn"), "cancelled", "$/cancel_request ends the turn with cancelled");
  }

  /** Starts the long answer and comes back when its first words are there. */
  async running(options) {
    const since = this.editor.wire.length;
    const turn = this.prompt("slow", options);
    turn.catch(() => {});
    await within(ANSWER_MS, this.editor.until(() => this.editor.said("agent_message_chunk", since)), "the first words");
    return { turn };
  }

  async load() {
    const since = this.editor.wire.length;
    const params = { sessionId: this.sessionId, cwd: this.folder, mcpServers: [] };
    await within(ANSWER_MS, this.agent.request(AGENT.session.load, params), "session/load");
    const replayed = this.editor.said("user_message_chunk", since);
    check(replayed.includes("look at the notes"), "a new process replays the talk", replayed);
    check(this.editor.toolStates(since).size > 0, "and its tool calls");
    same(await this.prompt("hello"), "end_turn", "and goes on with it");
  }
}

async function connected(command, folder, turns) {
  const child = spawn(command[0], command.slice(1), { cwd: folder, stdio: ["pipe", "pipe", "inherit"] });
  const left = new Promise((resolve) => child.on("close", resolve));
  const editor = new Editor();
  const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  try {
    await editor.application().connectWith({ ...stream, readable: editor.tap(stream.readable) }, (agent) =>
      turns(new Drive(agent, editor, folder)),
    );
    child.stdin.end();
    same(await within(CANCEL_MS, left, "leaving at the end of stdin"), 0, "the agent leaves with exit code 0");
    same(editor.typedUpdates, editor.updates(0).length, "the SDK's types accepted every update");
  } finally {
    child.kill();
  }
}

async function main(command) {
  const folder = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "turnd-e2e-")));
  fs.writeFileSync(path.join(folder, "notes.txt"), "the meeting is at ten\n");
  try {
    let sessionId;
    await connected(command, folder, async (drive) => {
      await drive.start();
      await drive.toolCall();
      await drive.approval();
      await drive.rejection();
      await drive.cancel();
      await drive.cancelRequest();
      sessionId = drive.sessionId;
    });
    await connected(command, folder, async (drive) => {
      await drive.start();
      drive.sessionId = sessionId;
      await drive.load();
    });
  } finally {
    fs.rmSync(folder, { recursive: true, force: true });
  }
}

const [separator, ...command] = process.argv.slice(2);
if (separator !== "--" || command.length === 0) {
  console.error("usage: node typescript_sdk.mjs -- AGENT [ARGS..]");
  process.exit(2);
}
main(command).then(
  () => process.exit(0),
  (deviation) => {
    console.log(`FAIL ${deviation.name}: ${deviation.message} ${JSON.stringify(deviation.data ?? "")}`);
    process.exit(1);
  },
);

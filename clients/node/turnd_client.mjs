// A whole ACP client in one file, standard library only: the least that drives turnd.
//
// usage: node turnd_client.mjs turn|approve|cancel [PROMPT] -- AGENT [ARGS..]
//
// turn     sends one prompt and prints the answer as it comes
// approve  the same, and asks on the terminal when the agent asks
// cancel   cancels the turn as soon as the first words are there
//
//     node turnd_client.mjs turn "what does this project do?" -- turnd

import { spawn } from "node:child_process";
import readline from "node:readline";

/** Spawns an agent, speaks JSON-RPC over its stdin and stdout, one message a line. */
class Client {
  constructor(command, onUpdate, onPermission) {
    Object.assign(this, { onUpdate, onPermission, answers: new Map(), lastId: 0 });
    this.agent = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
    this.left = new Promise((resolve) => this.agent.on("close", resolve));
    readline.createInterface({ input: this.agent.stdout }).on("line", (line) => this.read(JSON.parse(line)));
    this.left.then(() => this.answers.forEach(({ reject }) => reject(new Error("the agent ended"))));
  }

  /** Sends a request; settles with its result, or fails with its error. */
  call(method, params) {
    const id = (this.lastId += 1);
    const answer = new Promise((resolve, reject) => this.answers.set(id, { resolve, reject }));
    this.send({ id, method, params });
    return answer;
  }

  notify(method, params) {
    this.send({ method, params });
  }

  /** The end of its stdin tells the agent to leave; settles with its exit code. */
  close() {
    this.agent.stdin.end();
    return this.left;
  }

  send(message) {
    this.agent.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  }

  async read(message) {
    if (message.method === "session/update") {
      this.onUpdate(message.params.update);
    } else if (message.method === "session/request_permission") {
      const optionId = await this.onPermission(message.params);
      const outcome = optionId ? { outcome: "selected", optionId } : { outcome: "cancelled" };
      this.send({ id: message.id, result: { outcome } });
    } else if (message.method && "id" in message) {
      this.send({ id: message.id, error: { code: -32601, message: "method not found" } });
    } else if (this.answers.has(message.id)) {
      const { resolve, reject } = this.answers.get(message.id);
      if (message.error) reject(new Error(`${message.error.message}: ${JSON.stringify(message.error.data)}`));
      else resolve(message.result);
    }
  }
}

/** Prints what a person wants to see of a session/update. */
function show(update) {
  if (update.sessionUpdate === "agent_message_chunk") process.stdout.write(update.content.text ?? "");
  if (update.sessionUpdate === "tool_call") console.log(`\n[${update.title}]`);
  if (["completed", "failed"].includes(update.status)) console.log(`[${update.status}]`);
}

/** Asks on the terminal which of the offered options to take; none of them cancels the turn. */
function ask({ toolCall, options }) {
  console.log(`\n${toolCall.title}`);
  options.forEach((option, index) => console.log(`  ${index + 1}. ${option.name}`));
  const terminal = readline.createInterface({ input: process.stdin, output: process.stdout });
  return new Promise((resolve) => {
    terminal.on("close", () => resolve(undefined));
    terminal.question("> ", (chosen) => {
      resolve(options[Number(chosen) - 1]?.optionId);
      terminal.close();
    });
  });
}

/** Says no. */
function reject({ options }) {
  return options.find((option) => option.kind === "reject_once")?.optionId;
}

const separator = process.argv.indexOf("--");
const [example, ...words] = process.argv.slice(2, separator < 0 ? undefined : separator);
if (separator < 0 || !["turn", "approve", "cancel"].includes(example)) {
  console.error("usage: node turnd_client.mjs turn|approve|cancel [PROMPT] -- AGENT [ARGS..]");
  process.exit(2);
}

let sawFirstWords;
const firstWords = new Promise((resolve) => (sawFirstWords = resolve));
const onUpdate = (update) => {
  show(update);
  if (update.sessionUpdate === "agent_message_chunk") sawFirstWords();
};

const client = new Client(process.argv.slice(separator + 1), onUpdate, example === "approve" ? ask : reject);
await client.call("initialize", { protocolVersion: 1, clientCapabilities: {} });
const { sessionId } = await client.call("session/new", { cwd: process.cwd(), mcpServers: [] });
const turn = client.call("session/prompt", { sessionId, prompt: [{ type: "text", text: words.join(" ") || "hello" }] });
if (example === "cancel") {
  await firstWords;
  client.notify("session/cancel", { sessionId });
}
console.log(`\n(${(await turn).stopReason})`);
process.exit(await client.close());

// Plays the conversations of a script through the official TypeScript client and
// prints what it saw as JSON, for test_session.py to judge.
//
//     node typescript_client.mjs MODE SCRIPT SERVER [ARGUMENT...]
//
// MODE is auto, legacy or a protocol revision. A script of "cancel" cancels a
// call instead. One of "answer" runs the code in SALLYPORT_TEST_CODE, and answers
// what the server asks with SALLYPORT_TEST_ANSWERS, an object by method.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.SALLYPORT_TEST_NPM + "/");
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { Client } = await load("@modelcontextprotocol/client");
const { StdioClientTransport } = await load("@modelcontextprotocol/client/stdio");

const [mode, script, command, ...args] = process.argv.slice(2);
const negotiation = mode === "auto" || mode === "legacy" ? { mode } : { mode: { pin: mode } };

const connect = async (answers = {}, asked = []) => {
  const capabilities = Object.keys(answers).length ? { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} } : {};
  const client = new Client({ name: "sallyport-test", version: "1" }, { versionNegotiation: negotiation, capabilities });
  for (const [method, answer] of Object.entries(answers)) {
    client.setRequestHandler(method, async (request) => {
      asked.push({ method, params: request.params });
      return answer;
    });
  }
  await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" }));
  return client;
};

const call = (client, code, options) =>
  client.callTool({ name: "run_python", arguments: typeof code === "string" ? { code } : code }, options);

const play = (client, step) => {
  if (step.list === "tools") return client.listTools();
  if (step.list === "resources") return client.listResources();
  if (step.read) return client.readResource({ uri: step.read });
  return call(client, step.call);
};

const cancel = async () => {
  const client = await connect();
  const seen = { before: await call(client, "value = 42") };
  const stop = new AbortController();
  setTimeout(() => stop.abort(), 1000);
  try {
    await call(client, "import time\ntime.sleep(60)", { signal: stop.signal });
    seen.cancelled = false;
  } catch {
    seen.cancelled = true;
  }
  const begin = Date.now();
  seen.after = await call(client, "print('after', value)");
  seen.afterMs = Date.now() - begin;
  await client.close();
  return seen;
};

const answer = async () => {
  const asked = [];
  const client = await connect(JSON.parse(process.env.SALLYPORT_TEST_ANSWERS), asked);
  const result = await call(client, process.env.SALLYPORT_TEST_CODE);
  await client.close();
  return { result, asked };
};

const converse = async (steps) => {
  const client = await connect();
  const answers = [];
  for (const step of steps) answers.push(await play(client, step));
  await client.close();
  return answers;
};

let seen;
if (script === "cancel") {
  seen = await cancel();
} else if (script === "answer") {
  seen = await answer();
} else {
  seen = [];
  for (const steps of JSON.parse(readFileSync(script, "utf8")).conversations) seen.push(await converse(steps));
}
console.log(JSON.stringify(seen));

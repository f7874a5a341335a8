// Plays one scenario through the official TypeScript client and prints what it
// saw as one JSON object. Arguments: the mode, then the server's command line.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.SALLYPORT_TEST_NPM + "/");
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { Client } = await load("@modelcontextprotocol/client");
const { StdioClientTransport } = await load("@modelcontextprotocol/client/stdio");

const [mode, command, ...args] = process.argv.slice(2);
const negotiation = mode === "auto" || mode === "legacy" ? { mode } : { mode: { pin: mode } };
const client = new Client({ name: "sallyport-test", version: "1" }, { versionNegotiation: negotiation });
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" }));

const python = (code, more = {}, options) =>
  client.callTool({ name: "run_python", arguments: { code, ...more } }, options);

const seen = {};
seen.tools = (await client.listTools()).tools.map((t) => t.name);
seen.success = await python("value = 6 * 7\nprint(value)");
seen.state = await python("print(value + 1)");
seen.exception = await python("[][1]");
seen.timeout = await python("while True: pass", { timeout: 1 });
seen.server = await python("print(await mcp_everything.echo(message='hello'))", { servers: ["everything"] });

const stop = new AbortController();
setTimeout(() => stop.abort(), 1000);
try {
  await python("import time\ntime.sleep(60)", {}, { signal: stop.signal });
  seen.cancelled = false;
} catch {
  seen.cancelled = true;
}
const begin = Date.now();
seen.after = await python("print('after', value)");
seen.afterMs = Date.now() - begin;
await client.close();
console.log(JSON.stringify(seen));

// A host of MCP Apps: a client of `sallyport serve` whose page shows ui://sallyport/result
// by AppBridge (npm @modelcontextprotocol/ext-apps) in Chromium. It prints what it saw
// as JSON, for test_result_page.py to judge.
//
//     node result_page_host.mjs CHROMIUM HOSTILE SERVER [ARGUMENT...]
//
// HOSTILE is a file with a page whose script tries to reach the address in place of
// EVIL, and the host and the page of results by messages.
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.SALLYPORT_TEST_NPM + "/");
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { Client } = await load("@modelcontextprotocol/client");
const { StdioClientTransport } = await load("@modelcontextprotocol/client/stdio");
const { rolldown } = await load("rolldown");
const { chromium } = (await load("playwright-core")).default;

// A frame that is not seen paints nothing: what waits for its paints would wait forever.
const often = { polling: 50 };
const [browserPath, hostilePath, command, ...args] = process.argv.slice(2);

const bundle = async () => {
  const made = await rolldown({ input: require.resolve("@modelcontextprotocol/ext-apps/app-bridge"), platform: "browser" });
  const { output } = await made.generate({ format: "iife", name: "ext" });
  return output[0].code;
};

// serve answers each path with a page, or with nothing; it notes all of them.
const serve = async (pages) => {
  const seen = [];
  const server = createServer((request, response) => {
    seen.push(request.url);
    server.emit("seen");
    const [type, text] = pages[request.url.split("?")[0]] ?? ["text/plain", ""];
    response.setHeader("content-type", type + ";charset=utf-8").end(text);
  });
  server.on("upgrade", (request, socket) => {
    seen.push(request.url);
    server.emit("seen");
    socket.destroy();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const until = async (path) => {
    while (!seen.includes(path)) await once(server, "seen");
  };
  return { url: `http://127.0.0.1:${server.address().port}`, seen, until };
};

// HOST is the host's page. The page of results comes from another origin, as the
// reference host has it, with more rights than it needs.
const HOST = `<!doctype html><script src="/bridge.js"></script><body><script>
window.asked = [];
window.start = async (app, result) => {
  const { AppBridge, PostMessageTransport } = ext;
  const frame = document.createElement("iframe");
  frame.sandbox = "allow-scripts allow-same-origin allow-forms";
  const bridge = new AppBridge(null, { name: "sallyport-test", version: "1" }, { serverResources: {}, serverTools: {}, openLinks: {}, message: {}, updateModelContext: {}, logging: {} });
  bridge.onreadresource = (params) => { asked.push("read " + params.uri); return readResource(params); };
  for (const name of ["oncalltool", "onmessage", "onopenlink", "onupdatemodelcontext", "onlistresources", "ondownloadfile", "onrequestdisplaymode", "onloggingmessage"])
    bridge[name] = (params) => { asked.push(name + " " + JSON.stringify(params)); return {}; };
  const ready = new Promise((resolve) => bridge.oninitialized = resolve);
  document.body.append(frame);
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  frame.src = app;
  await ready;
  await bridge.sendToolInput({ arguments: {} });
  await bridge.sendToolResult(result);
  window.bridge = bridge;
};
</script>`;

const client = new Client(
  { name: "sallyport-test", version: "1" },
  { capabilities: { extensions: { "io.modelcontextprotocol/ui": { mimeTypes: ["text/html;profile=mcp-app"] } } }, versionNegotiation: { mode: "auto" } },
);
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" }));
const tool = (await client.listTools()).tools[0];
const page = (await client.readResource({ uri: tool._meta.ui.resourceUri })).contents[0];

const evil = await serve({});
const hostile = readFileSync(hostilePath, "utf8").replaceAll("EVIL", evil.url);
const names = [...hostile.matchAll(/^  try_(\w+)/gm)].map((m) => m[1]);
const frame = (name) => `<iframe srcdoc="${hostile.replace("ONLY", name).replaceAll("&", "&amp;").replaceAll('"', "&quot;")}"></iframe>`;
const sites = await serve({
  "/": ["text/html", HOST],
  "/bridge.js": ["text/javascript", await bundle()],
  "/control": ["text/html", names.filter((name) => name !== "top").map(frame).join("")],
  "/control/top": ["text/html", frame("top")],
});
const apps = await serve({ "/": [page.mimeType.split(";")[0], page.text] });

const result = await client.callTool({
  name: "run_python",
  arguments: {
    code: `
with open("1.html", "w") as f:
    f.write(${JSON.stringify(hostile)})
with open("2.html", "w") as f:
    f.write("<p id=begin>begin</p><pre id=middle>" + "\\u017e" * 2_500_000 + "</pre><p id=end>end</p>")
`,
  },
});

const browser = await chromium.launch({ executablePath: browserPath });
try {
  const seen = { result: result.content, type: page.mimeType };

  // The page of results waits for the second part of the large page until it has
  // had all messages of the hostile one.
  const view = await browser.newPage();
  let release;
  const released = new Promise((resolve) => (release = resolve));
  await view.exposeFunction("readResource", async (params) => {
    if (params.uri.includes("offset=")) await released;
    return client.readResource(params);
  });
  await view.goto(sites.url);
  await view.evaluate(([app, result]) => start(app, result), [apps.url, result]);
  const app = view.frames()[1];
  await app.waitForFunction(() => document.querySelector("iframe")?.style.height === "777px", null, often);
  const first = await (await app.$("iframe")).contentFrame();
  await first.waitForFunction(() => window.done, null, often);
  seen.tried = await first.evaluate(() => window.done);
  release();
  await app.waitForFunction(() => document.querySelectorAll("iframe").length === 2, null, often);
  const second = await (await app.$$("iframe"))[1].contentFrame();
  await second.waitForSelector("#end");
  seen.large = await second.evaluate(() => [begin.textContent, middle.textContent.length, new Set(middle.textContent).size, end.textContent]);
  seen.titles = await app.$$eval("iframe", (all) => all.map((f) => f.title));
  // Its own frame goes nowhere, either: Chromium puts a page of an error there.
  const left = view.waitForEvent("framenavigated", (f) => f === first);
  await first.evaluate((url) => { setTimeout(() => (location = url)); }, evil.url + "/own");
  seen.own = (await left).url();
  seen.teardown = await view.evaluate(() => bridge.teardownResource({}));
  seen.address = view.url() === sites.url + "/";
  seen.asked = await view.evaluate(() => asked);
  await view.evaluate((url) => fetch(url, { mode: "no-cors" }), evil.url + "/last");
  await evil.until("/last");
  seen.requests = [...evil.seen];

  // The control: the same attempts in frames without all that. One of them ends the page.
  for (const path of ["/control", "/control/top"]) {
    await view.goto(sites.url + path, { waitUntil: "commit" });
    for (const name of names) if ((name === "top") === (path === "/control/top")) await evil.until("/" + name);
  }
  seen.controls = names;
  console.log(JSON.stringify(seen));
} finally {
  await browser.close();
  await client.close();
}
process.exit(0);

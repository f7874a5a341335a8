// Starts an authorization server, an MCP server that it protects and an open one, on
// free ports of the loopback address; prints their addresses as one line of JSON, and
// ends when its standard input does.
//
//     node server.mjs [OPTIONS]
//
// OPTIONS is JSON: ttl, the seconds that access tokens are good for (3600); tokens,
// "jwt" (the default) or "opaque", which are checked by introspection; scopes, those of
// the resource ("mcp:read mcp:write"); dpop, whether tokens can be bound to a key; metadata,
// whether clients can be known by a document (that of `document` in the line).
//
// The line has clients that are registered by hand, too.
//
// GET on the address `admin` answers what was seen since the start. POST changes it:
// ttl as above; hold, "before" or "after", holds the requests to the token endpoint up
// before or after the provider's work, until hold is null; refuse lets the MCP server
// refuse all tokens that it has accepted.
import { createServer } from "node:http";
import { generateKeyPairSync, randomUUID } from "node:crypto";
import { DOCUMENT, grants, provider } from "./provider.mjs";
import { openServer, protectedServer } from "./resource.mjs";

const pair = generateKeyPairSync("ec", { namedCurve: "P-256" });
const client = (id, more) => [id, { id, ...more }];
const clients = Object.fromEntries([
  client("by-hand", { secret: randomUUID() }),
  client("machine", { secret: randomUUID() }),
  client("signing", { key: pair.privateKey.export({ type: "pkcs8", format: "pem" }) }),
]);

const state = {
  ttl: 3600,
  tokens: "jwt",
  scopes: "mcp:read mcp:write",
  dpop: false,
  metadata: false,
  ...JSON.parse(process.argv[2] ?? "{}"),
  introspection: { id: "resource", secret: randomUUID() },
  clients,
  key: pair.publicKey.export({ format: "jwk" }),
  hold: null,
  holding: 0,
  released: [],
  requests: {},
  errors: [],
  secrets: [],
  calls: {},
  accepted: new Set(),
  refused: new Set(),
  proofs: new Set(),
  other: { requests: 0, authorized: 0 },
};

const listen = (handler) =>
  new Promise((resolve) => {
    const server = createServer(handler).listen(0, "127.0.0.1", () => resolve([server, `http://127.0.0.1:${server.address().port}`]));
  });

const change = ({ refuse, ...options }) => {
  Object.assign(state, options);
  if (refuse) state.refused = new Set(state.accepted);
  if (!state.hold) for (const release of state.released.splice(0)) release();
};

const admin = async (request, response) => {
  try {
    let body = "";
    for await (const part of request) body += part;
    if (request.method === "POST") change(JSON.parse(body));
    const { holding, requests, errors, secrets, calls, other, proofs } = state;
    response.end(JSON.stringify({ holding, requests, errors, secrets, calls, other, proofs: proofs.size, grants: grants() }));
  } catch (error) {
    response.writeHead(500).end(error.stack);
  }
};

const [as, issuer] = await listen();
const [rs, origin] = await listen();
const [, other] = await listen(openServer(state));
const [, control] = await listen(admin);
const resource = `${origin}/mcp`;
as.on("request", (await provider(issuer, resource, state)).callback());
rs.on("request", protectedServer(issuer, resource, state));
console.log(JSON.stringify({ issuer, resource, other: `${other}/mcp`, admin: control, introspection: state.introspection, clients, document: DOCUMENT }));
process.stdin.resume().on("end", () => process.exit());

// Signs in at the servers of server.mjs with the official TypeScript client, so that
// they are known to be right before Sallyport meets them. Prints what it saw as JSON.
//
//     node peer.mjs ADDRESSES
//
// ADDRESSES is the line that server.mjs prints.
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { load } from "./load.mjs";

const { Client, registerClient, StreamableHTTPClientTransport, UnauthorizedError } = await load("@modelcontextprotocol/client");

const { issuer, resource, admin } = JSON.parse(process.argv[2]);
const set = async (options) => {
  await fetch(admin, { method: "POST", body: JSON.stringify(options) });
};

const kept = {};
let visit, consent;
const provider = {
  redirectUrl: "http://127.0.0.1:45678/callback",
  clientMetadata: {
    client_name: "the official client",
    redirect_uris: ["http://127.0.0.1/callback"],
    application_type: "native",
    grant_types: ["authorization_code", "refresh_token"],
    token_endpoint_auth_method: "none",
  },
  state: () => "a state",
  redirectToAuthorization: (url) => void (visit = url),
};
for (const [get, save] of [
  ["clientInformation", "saveClientInformation"],
  ["tokens", "saveTokens"],
  ["codeVerifier", "saveCodeVerifier"],
  ["discoveryState", "saveDiscoveryState"],
]) {
  provider[get] = () => kept[get];
  provider[save] = (value) => void (kept[get] = value);
}

// It would register itself for the scopes of the first challenge, and then no others
// could be asked for.
kept.clientInformation = {
  issuer,
  ...(await registerClient(issuer, {
    clientMetadata: provider.clientMetadata,
    metadata: await (await fetch(`${issuer}/.well-known/openid-configuration`)).json(),
  })),
};

const refused = async (what) => {
  try {
    await what();
  } catch (error) {
    if (error instanceof UnauthorizedError) return true;
    throw error;
  }
  return false;
};

const signIn = async (transport) => {
  const out = execFileSync(process.execPath, [fileURLToPath(new URL("browser.mjs", import.meta.url)), `{"alone": true}`, visit.href]);
  const seen = JSON.parse(out);
  consent = seen.consent;
  await transport.finishAuth(new URL(seen.url).searchParams);
};

const connect = async () => {
  const client = new Client({ name: "peer", version: "1" });
  const transport = new StreamableHTTPClientTransport(new URL(resource), { authProvider: provider });
  await client.connect(transport);
  return [client, transport];
};

const call = async (client, name, args = {}) => (await client.callTool({ name, arguments: args })).content[0].text;

const seen = {};
const first = new StreamableHTTPClientTransport(new URL(resource), { authProvider: provider });
seen.refusedAtFirst = await refused(() => new Client({ name: "peer", version: "1" }).connect(first));
seen.prompt = visit.searchParams.get("prompt");
await signIn(first);
const [client, transport] = await connect();
seen.who = JSON.parse(await call(client, "whoami"));
const old = kept.tokens;
await set({ refuse: true });
seen.whoAfterRefusal = JSON.parse(await call(client, "whoami"));
seen.rotated = kept.tokens.refresh_token !== old.refresh_token && kept.tokens.access_token !== old.access_token;
seen.refusedMore = await refused(() => call(client, "get-sum", { a: 1, b: 2 }));
seen.consent = consent;
await signIn(transport);
seen.consentAfterStepUp = consent;
seen.sum = await call(client, "get-sum", { a: 1, b: 2 });
await client.close();
console.log(JSON.stringify(seen));

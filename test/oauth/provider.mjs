// The authorization server: npm `oidc-provider` as it comes, with accounts of any
// name and no password, pages to sign in and to consent, and what tests need to see
// and to hold up.
import { load } from "./load.mjs";

const { default: Provider, errors } = await load("oidc-provider");
const { exportJWK, generateKeyPair } = await load("jose");

// DOCUMENT is where clients that have no other address describe themselves. Nothing is
// there: the provider gets the document from this program.
export const DOCUMENT = "https://client.example.com/sallyport.json";

const described = {
  client_id: DOCUMENT,
  client_name: "described by a document",
  application_type: "native",
  redirect_uris: ["http://127.0.0.1/callback"],
  grant_types: ["authorization_code", "refresh_token"],
  response_types: ["code"],
  token_endpoint_auth_method: "none",
};

const get = async (url) => {
  if (String(url) !== DOCUMENT) throw new Error(`nothing is at ${url}`);
  return Response.json(described);
};

// records keeps the provider's records where tests can list them.
class Records {
  static all = new Map();

  constructor(model) {
    this.model = model;
  }

  get mine() {
    if (!Records.all.has(this.model)) Records.all.set(this.model, new Map());
    return Records.all.get(this.model);
  }

  async upsert(id, payload) {
    this.mine.set(id, payload);
  }

  async find(id) {
    return this.mine.get(id);
  }

  async findByUid(uid) {
    return [...this.mine.values()].find((payload) => payload.uid === uid);
  }

  async findByUserCode() {}

  async consume(id) {
    this.mine.get(id).consumed = Math.floor(Date.now() / 1000);
  }

  async destroy(id) {
    this.mine.delete(id);
  }

  async revokeByGrantId(grant) {
    for (const [id, payload] of this.mine) if (payload.grantId === grant) this.mine.delete(id);
  }
}

export const grants = () =>
  [...(Records.all.get("Grant")?.entries() ?? [])].map(([id, grant]) => ({
    id,
    account: grant.accountId,
    client: grant.clientId,
    scopes: Object.values(grant.resources ?? {}).concat(grant.openid?.scope ?? []).join(" "),
    refresh: [...(Records.all.get("RefreshToken")?.values() ?? [])].filter((t) => t.grantId === id && !t.consumed).length,
  }));

const escape = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

const page = (title, uid, action, fields, button) => `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>${title}</title></head><body><h1>${title}</h1>
<form id="${action}" method="post" action="/interaction/${uid}/${action}">${fields}<button type="submit">${button}</button></form>
<form id="abort" method="post" action="/interaction/${uid}/abort"><button type="submit">Cancel</button></form>
</body></html>`;

const form = async (request) => {
  let body = "";
  for await (const part of request) body += part;
  return new URLSearchParams(body);
};

const consented = async (provider, { prompt: { details }, params, session, grantId }) => {
  const grant = (grantId && (await provider.Grant.find(grantId))) || new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  if (details.missingOIDCScope) grant.addOIDCScope(details.missingOIDCScope.join(" "));
  if (details.missingOIDCClaims) grant.addOIDCClaims(details.missingOIDCClaims);
  for (const [resource, scopes] of Object.entries(details.missingResourceScopes ?? {})) grant.addResourceScope(resource, scopes.join(" "));
  return grant.save();
};

// interact answers a request for a page where the user signs in or consents.
const interact = async (provider, ctx, uid, action) => {
  const interaction = await provider.interactionDetails(ctx.req, ctx.res);
  const finish = (result, more) => {
    ctx.respond = false;
    return provider.interactionFinished(ctx.req, ctx.res, result, more);
  };
  if (ctx.method === "GET") {
    const { prompt, params } = interaction;
    ctx.type = "html";
    if (prompt.name === "login") {
      ctx.body = page("Sign in", uid, "login", `<input name="login" aria-label="Name" autofocus>`, "Sign in");
    } else {
      const client = await provider.Client.find(params.client_id);
      const asked = [params.scope, params.resource].flat().filter(Boolean).join(" ");
      ctx.body = page("Consent", uid, "consent", `<p>${escape(client.clientName ?? client.clientId)} wants: ${escape(asked)}</p>`, "Allow");
    }
  } else if (action === "login") {
    const name = (await form(ctx.req)).get("login");
    await finish({ login: { accountId: name } }, { mergeWithLastSubmission: false });
  } else if (action === "consent") {
    await finish({ consent: { grantId: await consented(provider, interaction) } }, { mergeWithLastSubmission: true });
  } else {
    await finish({ error: "access_denied", error_description: "The user said no." }, { mergeWithLastSubmission: false });
  }
};

// clients are those that are registered by hand: of a person, of a program with a
// secret, of one with a key, and the one of the resource.
const clients = ({ introspection, clients, key }) => {
  const program = { redirect_uris: [], response_types: [], grant_types: ["client_credentials"] };
  const client = ({ id, secret }, more) => ({ client_id: id, client_secret: secret, ...more });
  return [
    client(introspection, { ...program, grant_types: [] }),
    client(clients["by-hand"], {
      client_name: "registered by hand",
      application_type: "native",
      redirect_uris: ["http://127.0.0.1/callback"],
      grant_types: ["authorization_code", "refresh_token"],
    }),
    client(clients.machine, program),
    client(clients.signing, { ...program, token_endpoint_auth_method: "private_key_jwt", jwks: { keys: [{ ...key, alg: "ES256", use: "sig" }] } }),
  ];
};

// provider returns the authorization server with an issuer. `state` is shared with
// server.mjs: options that tests change, and what the server has seen.
export const provider = async (issuer, resource, state) => {
  const keys = [];
  for (const alg of ["RS256", "ES256"]) {
    const { privateKey } = await generateKeyPair(alg, { extractable: true });
    keys.push({ ...(await exportJWK(privateKey)), alg, use: "sig", kid: alg });
  }
  const op = new Provider(issuer, {
    adapter: Records,
    jwks: { keys },
    cookies: { keys: ["of the tests"] },
    clients: clients(state),
    scopes: ["openid", "offline_access"],
    fetch: get,
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name"] },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, name: `${id} Example`, email: `${id}@example.com`, email_verified: true }) }),
    interactions: { url: (_, { uid }) => `/interaction/${uid}` },
    pkce: { required: () => true },
    rotateRefreshToken: true,
    ttl: { AccessToken: () => state.ttl, Grant: 86400, IdToken: 3600, Interaction: 3600, RefreshToken: 86400, Session: 86400, AuthorizationCode: 60 },
    features: {
      devInteractions: { enabled: false },
      ...(state.metadata && { clientIdMetadataDocument: { enabled: true, ack: "draft-02" } }),
      clientCredentials: { enabled: true },
      dPoP: { enabled: state.dpop },
      introspection: { enabled: true, allowedPolicy: (_, client) => client.clientId === state.introspection.id },
      registration: { enabled: true },
      revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_, indicator) => {
          if (indicator !== resource) throw new errors.InvalidTarget();
          return { scope: state.scopes, audience: resource, accessTokenTTL: state.ttl, accessTokenFormat: state.tokens, jwt: { sign: { alg: "ES256" } } };
        },
      },
    },
  });

  op.use(async (ctx, next) => {
    const token = ctx.method === "POST" && ctx.path === "/token";
    if (token) await held(state, "before");
    // Who asked is gone: the request never arrived.
    if (ctx.req.socket.destroyed) {
      ctx.respond = false;
      return;
    }
    const [, uid, action] = /^\/interaction\/([\w-]+)(?:\/(\w+))?$/.exec(ctx.path) ?? [];
    if (uid) {
      await interact(op, ctx, uid, action);
      return;
    }
    await next();
    see(state, ctx);
    if (token) await held(state, "after");
  });
  op.on("authorization.error", (_, error) => state.errors.push(`authorization: ${error.error}: ${error.error_description}`));
  op.on("server_error", (_, error) => console.error(error));
  return op;
};

// held waits while tests hold answers of the token endpoint up, before or after the
// provider does its work.
const held = async (state, when) => {
  if (state.hold !== when) return;
  state.holding++;
  await new Promise((resolve) => state.released.push(resolve));
  state.holding--;
};

// see counts a request, and keeps the secrets of its answer.
const see = (state, ctx) => {
  const { route, params } = ctx.oidc ?? {};
  if (!route) return;
  const name = [route, params?.grant_type, ctx.status].filter(Boolean).join(" ");
  state.requests[name] = (state.requests[name] ?? 0) + 1;
  const body = typeof ctx.body === "object" && ctx.body ? ctx.body : {};
  const names = ["access_token", "refresh_token", "id_token", "client_secret", "registration_access_token"];
  const secrets = names.map((n) => [n, body[n]]).concat([["code", new URL(ctx.response.get("location") || "/", ctx.href).searchParams.get("code")]]);
  for (const [kind, value] of secrets) if (value) state.secrets.push({ kind, value });
  if (ctx.status >= 400) state.errors.push(`${name}: ${body.error}: ${body.error_description}`);
};

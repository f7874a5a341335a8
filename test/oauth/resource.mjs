// The protected resource: the reference server `everything` over streamable HTTP
// behind the bearer check of the official SDK, with RFC 9728 metadata.
import { createHash, randomUUID } from "node:crypto";
import { load } from "./load.mjs";

const { default: express } = await load("express");
const { calculateJwkThumbprint, createRemoteJWKSet, decodeJwt, EmbeddedJWK, jwtVerify } = await load("jose");
const { createServer } = await load("@modelcontextprotocol/server-everything/dist/server/index.js");
const { InvalidTokenError } = await load("@modelcontextprotocol/sdk/server/auth/errors.js");
const { requireBearerAuth } = await load("@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js");
const { StreamableHTTPServerTransport } = await load("@modelcontextprotocol/sdk/server/streamableHttp.js");

// What a tool needs besides the scope of every request.
const NEEDED = { "get-sum": "mcp:write" };

// mcp answers requests to a path with `everything` and a tool that tells as whom it
// was called.
const mcp = (app, path) => {
  const sessions = new Map();
  app.all(path, async (request, response) => {
    const id = request.headers["mcp-session-id"];
    let transport = sessions.get(id);
    if (!transport) {
      if (id || request.method !== "POST") {
        response.status(id ? 404 : 400).json({ jsonrpc: "2.0", error: { code: -32000, message: "no such session" }, id: null });
        return;
      }
      const { server, cleanup } = createServer();
      server.registerTool("whoami", { description: "Tells as whom it was called" }, ({ authInfo }) => ({
        content: [{ type: "text", text: JSON.stringify({ user: authInfo?.extra?.sub, scopes: authInfo?.scopes, token: authInfo && digest(authInfo.token) }) }],
      }));
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (session) => sessions.set(session, transport),
      });
      server.server.onclose = () => {
        sessions.delete(transport.sessionId);
        cleanup(transport.sessionId);
      };
      await server.connect(transport);
    }
    await transport.handleRequest(request, response, request.body);
  });
};

const digest = (text) => createHash("sha256").update(text).digest("hex").slice(0, 12);

// verifier checks tokens as JWT, or asks the authorization server about them.
const verifier = (issuer, resource, state) => {
  const keys = createRemoteJWKSet(new URL(`${issuer}/jwks`));
  const claims = async (token) => {
    if (state.tokens === "jwt") {
      const { payload } = await jwtVerify(token, keys, { issuer, audience: resource, typ: "at+jwt" });
      return payload;
    }
    const { id, secret } = state.introspection;
    const response = await fetch(`${issuer}/token/introspection`, {
      method: "POST",
      headers: { authorization: `Basic ${btoa(`${id}:${secret}`)}` },
      body: new URLSearchParams({ token }),
    });
    const answer = await response.json();
    if (!answer.active) throw new Error("not active");
    return answer;
  };
  return {
    async verifyAccessToken(token) {
      if (state.refused.has(digest(token))) throw new InvalidTokenError("The token was refused by a test");
      let found;
      try {
        found = await claims(token);
      } catch (error) {
        throw new InvalidTokenError(`The token is not good: ${error.code ?? error.message}`);
      }
      state.accepted.add(digest(token));
      return {
        token,
        clientId: found.client_id,
        scopes: found.scope?.split(" ") ?? [],
        expiresAt: found.exp,
        resource: new URL([found.aud].flat()[0]),
        extra: { sub: found.sub },
      };
    },
  };
};

// proven checks that a request has a token of the type that it is, and if that is bound
// to a key a proof of possession (RFC 9449), each for one request. The check of the SDK
// knows bearers only.
const proven = (address, state) => async (request, response, next) => {
  const [type, token] = (request.headers.authorization ?? "").split(" ");
  try {
    const key = token?.includes(".") ? decodeJwt(token).cnf?.jkt : undefined;
    if (type === "DPoP" || key) {
      if (type !== "DPoP") throw new Error("the token needs a proof");
      const { payload, protectedHeader } = await jwtVerify(request.headers.dpop, EmbeddedJWK, { typ: "dpop+jwt", maxTokenAge: 60 });
      const want = { htm: request.method, htu: address, ath: createHash("sha256").update(token).digest("base64url") };
      for (const [name, value] of Object.entries(want)) if (payload[name] !== value) throw new Error(`${name} is ${payload[name]}`);
      if ((await calculateJwkThumbprint(protectedHeader.jwk)) !== key) throw new Error("the proof is of another key");
      if (state.proofs.has(payload.jti)) throw new Error("the proof was used before");
      state.proofs.add(payload.jti);
      request.headers.authorization = `Bearer ${token}`;
    }
  } catch (error) {
    response.set("WWW-Authenticate", `DPoP error="invalid_dpop_proof", error_description="${error.message.replaceAll('"', "'")}"`);
    response.status(401).end();
    return;
  }
  next();
};

// protectedServer serves /mcp to who has a token for it, and the metadata.
export const protectedServer = (issuer, resource, state) => {
  const app = express();
  app.use(express.json({ limit: "4mb" }));
  const metadata = "/.well-known/oauth-protected-resource/mcp";
  app.get(metadata, (_, response) => {
    response.json({
      resource,
      authorization_servers: [issuer],
      scopes_supported: state.scopes.split(" "),
      bearer_methods_supported: ["header"],
      resource_name: "The server of the tests",
    });
  });
  const check = verifier(issuer, resource, state);
  const require = (...scopes) =>
    requireBearerAuth({ verifier: check, requiredScopes: scopes, resourceMetadataUrl: new URL(metadata, resource).href, expectedResource: new URL(resource) });
  app.use("/mcp", (request, response, next) => {
    const { method, params } = request.body ?? {};
    state.calls[method] = (state.calls[method] ?? 0) + 1;
    const more = method === "tools/call" ? NEEDED[params?.name] : undefined;
    response.on("finish", () => {
      if (response.statusCode >= 400) state.calls[response.statusCode] = (state.calls[response.statusCode] ?? 0) + 1;
    });
    proven(resource, state)(request, response, () => require(...["mcp:read", more].filter(Boolean))(request, response, next));
  });
  mcp(app, "/mcp");
  return app;
};

// openServer serves /mcp to anyone, and notes who sends a token all the same.
export const openServer = (state) => {
  const app = express();
  app.use(express.json({ limit: "4mb" }));
  app.use((request, _, next) => {
    state.other.requests++;
    if (request.headers.authorization) state.other.authorized++;
    next();
  });
  mcp(app, "/mcp");
  return app;
};

"""The servers of these tests are right: the official TypeScript client signs in at them
with Chromium, and a strict client without a browser finds what the tests rely on."""

import base64
import hashlib
import json
import os
import pathlib
import subprocess
import urllib.parse

import httpx2
import pytest
from conftest import claims
from person import walk

HERE = pathlib.Path(__file__).resolve().parent
CALLBACK = "http://127.0.0.1:45678/callback"


@pytest.mark.parametrize("tokens", ["jwt", "opaque"])
def test_the_official_client_signs_in(serve, chromium, node22, npm, tokens):
    servers = serve(tokens=tokens)
    done = subprocess.run([node22, str(HERE / "peer.mjs"), json.dumps(servers.addresses)], capture_output=True, text=True, timeout=180,
                          env=os.environ | {"SALLYPORT_TEST_NPM": str(npm), "SALLYPORT_TEST_CHROMIUM": str(chromium)})
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout)
    assert seen["refusedAtFirst"] and seen["prompt"] == "consent"
    assert seen["who"] | {"token": ""} == {"user": "alice", "scopes": ["mcp:read"], "token": ""}
    assert seen["rotated"] and seen["whoAfterRefusal"]["token"] != seen["who"]["token"]
    assert seen["refusedMore"], "a tool that needs another scope"
    assert "mcp:write" not in seen["consent"] and "mcp:write" in seen["consentAfterStepUp"]
    assert seen["sum"] == "The sum of 1 and 2 is 3."
    assert servers.requests("token refresh_token 200") == 1
    (scopes,) = {s for grant in servers.seen()["grants"] for s in [grant["scopes"]] if "mcp:write" in s}
    assert "mcp:read" in scopes


class Client:
    """A client as the specifications have it, for one server."""

    def __init__(self, servers):
        self.servers, self.http = servers, httpx2.Client(trust_env=False, timeout=60)
        challenge = self.call(None).headers["www-authenticate"]
        metadata = challenge.partition('resource_metadata="')[2].partition('"')[0]
        self.resource = self.http.get(metadata).json()
        (issuer,) = self.resource["authorization_servers"]
        self.server = self.http.get(issuer + "/.well-known/openid-configuration").json()
        assert self.server["issuer"] == issuer == servers.issuer
        answer = self.http.post(self.server["registration_endpoint"], json={
            "redirect_uris": [CALLBACK], "application_type": "native", "token_endpoint_auth_method": "none",
            "grant_types": ["authorization_code", "refresh_token"]})
        assert answer.status_code == 201, answer.text
        self.id = answer.json()["client_id"]

    def call(self, token, tool="whoami"):
        headers = {"accept": "application/json, text/event-stream"} | ({"authorization": f"Bearer {token}"} if token else {})
        initialize = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "strict", "version": "1"}}
        return self.http.post(self.servers.resource, headers=headers, json={
            "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize} if tool == "whoami" else {
            "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool}})

    def authorize(self, **more):
        verifier = "v" * 43
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {"response_type": "code", "client_id": self.id, "redirect_uri": CALLBACK, "state": "s", "resource": self.resource["resource"],
                 "scope": "mcp:read offline_access", "prompt": "consent", "code_challenge": challenge, "code_challenge_method": "S256"} | more
        address = self.server["authorization_endpoint"] + "?" + urllib.parse.urlencode({k: v for k, v in query.items() if v})
        back = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(walk(address)).query))
        assert (back["state"], back["iss"]) == ("s", self.servers.issuer)
        if "error" in back:
            return back
        form = {"grant_type": "authorization_code", "code": back["code"], "redirect_uri": CALLBACK, "code_verifier": verifier}
        return self.token(**form | {k: query[k] for k in ("resource",) if query[k]}).json()

    def token(self, **form):
        return self.http.post(self.server["token_endpoint"], data={"client_id": self.id} | form)

    def refresh(self, token):
        return self.token(grant_type="refresh_token", refresh_token=token, resource=self.resource["resource"])

    def revoke(self, token):
        return self.http.post(self.server["revocation_endpoint"], data={"client_id": self.id, "token": token})


@pytest.fixture
def strict(serve):
    return lambda **options: Client(serve(**options))


def test_what_the_authorization_server_says(strict):
    server = strict().server
    assert server["code_challenge_methods_supported"] == ["S256"]
    assert server["authorization_response_iss_parameter_supported"] is True
    assert {"openid", "offline_access"} <= set(server["scopes_supported"])
    assert "none" in server["token_endpoint_auth_methods_supported"]


def test_tokens_are_for_the_resource(strict):
    client = strict(ttl=600)
    granted = client.authorize()
    said = claims(granted["access_token"])
    assert said["aud"] == client.servers.resource and said["exp"] - said["iat"] == granted["expires_in"] == 600
    assert client.call(granted["access_token"]).status_code == 200
    # One for userinfo, without a resource, is refused.
    other = client.authorize(resource=None, scope="openid")
    assert client.call(other["access_token"]).status_code == 401
    assert client.authorize(resource="https://other.example/mcp")["error"] == "invalid_target"


def test_pkce_is_required(strict):
    assert strict().authorize(code_challenge=None, code_challenge_method=None)["error"] == "invalid_request"


def test_a_refresh_token_needs_consent_to_offline_access(strict):
    client = strict()
    assert "refresh_token" not in client.authorize(prompt=None)
    assert "refresh_token" not in client.authorize(scope="mcp:read")


def test_a_refresh_token_used_twice_ends_the_grant(strict):
    client = strict()
    first = client.authorize()
    second = client.refresh(first["refresh_token"])
    assert second.status_code == 200 and second.json()["refresh_token"] != first["refresh_token"]
    assert client.refresh(first["refresh_token"]).json()["error"] == "invalid_grant"
    assert client.refresh(second.json()["refresh_token"]).json()["error"] == "invalid_grant"
    assert client.servers.seen()["grants"] == []


def test_revoking_the_refresh_token_ends_the_grant(strict):
    client = strict(tokens="opaque")
    granted = client.authorize()
    access, refresh = granted["access_token"], granted["refresh_token"]
    assert client.servers.active(access) and client.servers.active(refresh)
    assert client.revoke(refresh).status_code == 200
    assert not client.servers.active(access) and not client.servers.active(refresh)
    assert client.call(access).status_code == 401
    assert client.servers.seen()["grants"] == []


def test_a_jwt_cannot_be_revoked(strict):
    client = strict()
    answer = client.revoke(client.authorize()["access_token"])
    assert (answer.status_code, answer.json()["error"]) == (400, "unsupported_token_type")


def test_another_scope_is_asked_for(strict):
    client = strict()
    answer = client.call(client.authorize()["access_token"], tool="get-sum")
    assert answer.status_code == 403
    challenge = answer.headers["www-authenticate"]
    assert 'error="insufficient_scope"' in challenge and 'scope="mcp:read mcp:write"' in challenge

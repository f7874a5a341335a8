"""Tokens are obtained, renewed once, revoked, and seen by nobody."""

import asyncio
import base64
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess

import httpx2
import pytest
from conftest import LOGIN, wait_for
from mcp import Client, StdioServerParameters

MANY = """
import asyncio
answers = await asyncio.gather(*(mcp_guarded.echo(message=str(i)) for i in range(500)))
print(len(answers), sum(str(i) in str(a) for i, a in enumerate(answers)))
"""
RENEWED = "token refresh_token 200"


def test_a_call_names_the_command(product):
    sallyport = product()
    _, error = sallyport("tools", "call", "guarded", "whoami", status=1)
    assert LOGIN in error, error
    _, error = sallyport.run("await mcp_guarded.whoami()", status=125)
    assert LOGIN in error, error
    out, error = sallyport("servers")
    assert "signed out" in out


def test_an_agent_is_told_the_command(product):
    """Before a login, and after one has ended, in the answer of run_python."""
    sallyport = product()

    async def ask():
        async with Client(StdioServerParameters(command=sallyport.program, args=["serve"], env=sallyport.environment, cwd=str(sallyport.home))) as client:
            answers = []
            for more in ({"servers": ["guarded"]}, {}):
                answers.append(await client.call_tool("run_python", {"code": "print(await runtime.call_tool('guarded', 'whoami', {}))"} | more))
            await asyncio.to_thread(sallyport.login)
            answers.append(await client.call_tool("run_python", {"code": "print(await mcp_guarded.whoami())", "servers": ["guarded"]}))
            await asyncio.to_thread(sallyport, "servers", "logout", "guarded")
            answers.append(await client.call_tool("run_python", {"code": "print(await mcp_guarded.whoami())", "servers": ["guarded"]}))
            return ["\n".join(block.text for block in answer.content) for answer in answers]

    first, without, signed_in, after = asyncio.run(asyncio.wait_for(ask(), 300))
    assert "alice" in signed_in, signed_in
    for answer in (first, without, after):
        assert LOGIN in answer, answer


def test_tokens_are_renewed_with_rotation(product):
    sallyport = product(ttl=15)
    sallyport.login()
    seen = {sallyport.who()["token"]}
    for ttl in (15, 3600):
        sallyport.expire()
        sallyport.servers.set(ttl=ttl)
        before = sallyport.servers.requests(RENEWED)
        who = sallyport.who()
        assert who["user"] == "alice" and who["token"] not in seen
        assert sallyport.servers.requests(RENEWED) > before
        seen.add(who["token"])
    refresh = sallyport.servers.secrets("refresh_token")
    assert len(set(refresh)) == len(refresh) >= 3, "each is another one"
    assert [sallyport.servers.active(token) for token in refresh[-2:]] == [False, True]
    assert len(sallyport.servers.seen()["grants"]) == 1
    assert sallyport.servers.requests("token authorization_code 200") == 1
    assert sallyport.servers.seen()["errors"] == []


def test_a_login_is_bound_to_a_key(product):
    """Another program has no use for its token."""
    sallyport = product(ttl=2, dpop=True)
    sallyport.login()
    sallyport.expire()
    assert sallyport.who()["user"] == "alice"
    assert sallyport.servers.requests("token refresh_token 200") == 1
    assert sallyport.servers.seen()["proofs"] > 0 and sallyport.servers.seen()["errors"] == []
    token = sallyport.servers.secrets("access_token")[-1]
    for kind in ("Bearer", "DPoP"):
        answer = httpx2.post(sallyport.servers.resource, json={}, headers={"authorization": f"{kind} {token}"}, trust_env=False)
        assert answer.status_code == 401 and "invalid_dpop_proof" in answer.headers["www-authenticate"]


def test_500_calls_at_expiry_renew_once(product):
    sallyport = product(ttl=2)
    sallyport.login()
    sallyport.expire()
    before = sallyport.servers.requests(RENEWED)
    out, _ = sallyport.run(MANY)
    assert out.strip() == "500 500"
    assert sallyport.servers.requests(RENEWED) == before + 1
    assert sallyport.servers.seen()["errors"] == []


def test_500_calls_with_a_refused_token_renew_once(product):
    """The server refuses a token that has not expired."""
    sallyport = product()
    sallyport.login()
    sallyport.who()
    sallyport.servers.set(refuse=True)
    out, _ = sallyport.run(MANY)
    assert out.strip() == "500 500"
    assert sallyport.servers.requests(RENEWED) == 1


def test_two_processes_renew_once(product):
    """A renewal is held up while both want it."""
    sallyport = product(ttl=2)
    sallyport.login()
    sallyport.expire()
    before = sallyport.servers.requests(RENEWED)
    sallyport.servers.set(hold="before")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(sallyport.run, MANY) for _ in range(2)] + [pool.submit(sallyport.who) for _ in range(2)]
        wait_for("the renewal", lambda: sallyport.servers.seen()["holding"])
        # The others cannot be seen waiting; a second renewal can be seen.
        with pytest.raises(AssertionError):
            wait_for("another renewal", lambda: sallyport.servers.seen()["holding"] > 1, patience=5)
        sallyport.servers.set(hold=None)
        assert [run.result()[0].strip() for run in runs[:2]] == ["500 500"] * 2
        assert {run.result()["user"] for run in runs[2:]} == {"alice"}
    assert sallyport.servers.requests(RENEWED) == before + 1


def killed(sallyport, hold):
    """Kills a program that renews the token, before or after the authorization server
    has done so."""
    sallyport.login()
    sallyport.expire()
    sallyport.servers.set(hold=hold)
    process = subprocess.Popen(**sallyport.command("run", "--set", "hub.enabled=false", "--server", "guarded", "-c", "await mcp_guarded.whoami()"))
    try:
        wait_for("the renewal", lambda: sallyport.servers.seen()["holding"])
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    sallyport.servers.set(hold=None)
    wait_for("the request to end", lambda: not sallyport.servers.seen()["holding"])


def test_killed_before_the_renewal(product):
    sallyport = product(ttl=2)
    killed(sallyport, "before")
    assert sallyport.who()["user"] == "alice"


def test_killed_after_the_renewal(product):
    """The token that would renew it was used, and its successor is lost."""
    sallyport = product(ttl=2)
    killed(sallyport, "after")
    _, error = sallyport("tools", "call", "guarded", "whoami", status=1)
    assert LOGIN in error, error
    state = sallyport.state()
    assert state["state"] == "ended" and state["ended"], state
    # It says the same again, without asking again.
    asked = sallyport.servers.seen()["requests"]
    _, error = sallyport.run("await mcp_guarded.whoami()", status=125)
    assert LOGIN in error, error
    assert sallyport.servers.seen()["requests"] == asked
    sallyport.login()
    assert sallyport.who()["user"] == "alice"


@pytest.mark.parametrize("tokens", ["opaque", "jwt"])
def test_logout_revokes(product, tokens):
    sallyport = product(tokens=tokens)
    sallyport.login()
    sallyport.who()
    access, refresh = (sallyport.servers.secrets(kind)[-1] for kind in ("access_token", "refresh_token"))
    assert sallyport.servers.active(refresh)
    sallyport("servers", "logout", "guarded")
    assert not sallyport.servers.active(refresh)
    assert sallyport.servers.seen()["grants"] == []
    if tokens == "opaque":  # a JWT is good until it expires: nobody can revoke it
        assert not sallyport.servers.active(access)
    assert sallyport.state()["state"] == "signed out"
    before = sallyport.servers.seen()["requests"]
    for arguments in (["guarded"], ["--all"]):
        sallyport("servers", "logout", *arguments)
    assert sallyport.servers.seen()["requests"] == before
    _, error = sallyport("tools", "call", "guarded", "whoami", status=1)
    assert LOGIN in error, error


def test_logout_while_the_server_is_away(product):
    """The tokens are forgotten all the same, and the user is told."""
    sallyport = product()
    sallyport.login()
    sallyport.servers.process.kill()
    sallyport.servers.process.wait()
    out, error = sallyport("servers", "logout", "guarded")
    assert "could not be revoked" in out + error, (out, error)
    assert sallyport.state()["state"] == "signed out"


def test_another_scope_is_asked_for(product):
    sallyport = product()
    sallyport.login()
    code = "print(await mcp_guarded.get_sum(a=1, b=2))"
    caught, _ = sallyport.run(f"try:\n    {code}\nexcept runtime.MCPError as e:\n    print(e.kind, e)")
    assert LOGIN in caught, caught
    assert "mcp:write" in sallyport.state()["wanted"]
    # Others go on.
    assert sallyport.who()["scopes"] == ["mcp:read"]
    sallyport.login()
    out, _ = sallyport.run(code)
    assert "The sum of 1 and 2 is 3." in out
    assert sorted(sallyport.who()["scopes"]) == ["mcp:read", "mcp:write"]
    assert not sallyport.state().get("wanted")


def test_the_user_is_known_by_the_id_token(product):
    sallyport = product(tokens="opaque")
    sallyport.define(scopes=["openid", "mcp:read"])
    out, _ = sallyport.login("carol")
    assert "guarded: signed in as carol" in out, out
    assert sallyport.state()["account"] == sallyport.who()["user"] == "carol"


def test_a_client_that_was_registered_by_hand(product):
    sallyport = product(ttl=2)
    client = sallyport.servers.addresses["clients"]["by-hand"]
    sallyport.define(clientId=client["id"], clientSecret=client["secret"])
    sallyport.login()
    sallyport.expire()
    assert sallyport.who()["user"] == "alice"
    assert sallyport.servers.requests("registration 201") == 0
    assert {grant["client"] for grant in sallyport.servers.seen()["grants"]} == {client["id"]}
    assert sallyport.servers.seen()["errors"] == []


def test_a_client_that_a_document_describes(product):
    sallyport = product(ttl=2, metadata=True)
    document = sallyport.servers.addresses["document"]
    sallyport.environment["SALLYPORT_SERVERS_CLIENT_METADATA"] = document
    sallyport.login()
    sallyport.expire()
    assert sallyport.who()["user"] == "alice"
    assert sallyport.servers.requests("registration 201") == 0
    assert {grant["client"] for grant in sallyport.servers.seen()["grants"]} == {document}
    assert sallyport.servers.seen()["errors"] == []


@pytest.mark.parametrize("dpop", [False, True], ids=["bearer", "dpop"])
@pytest.mark.parametrize("name", ["machine", "signing"])
def test_a_program_has_an_account_of_its_own(product, name, dpop):
    """Nobody signs in; more scopes are granted without asking."""
    sallyport = product(ttl=2, dpop=dpop)
    client = sallyport.servers.addresses["clients"][name]
    proof = {"clientSecret": client["secret"]} if "secret" in client else {"privateKey": client["key"], "algorithm": "ES256"}
    sallyport.define(grant="client_credentials", clientId=client["id"], scopes=["mcp:read"], **proof)
    assert sallyport.who()["scopes"] == ["mcp:read"]
    sallyport.expire()
    out, _ = sallyport.run(MANY)
    assert out.strip() == "500 500"
    out, _ = sallyport.run("print(await mcp_guarded.get_sum(a=1, b=2))")
    assert "The sum of 1 and 2 is 3." in out
    assert (sallyport.servers.seen()["proofs"] > 500) == dpop
    assert sallyport.servers.seen()["errors"] == []


def test_the_open_server_gets_no_token(product):
    sallyport = product()
    sallyport.login()
    out, _ = sallyport("run", "--server", "guarded", "--server", "other", "-c",
                       "print(await mcp_guarded.whoami(), await mcp_other.echo(message='hello'))")
    assert "alice" in out and "hello" in out
    other = sallyport.servers.seen()["other"]
    assert other["requests"] > 0 and other["authorized"] == 0, other


def forms(secret):
    """How a secret could be written."""
    yield secret.encode()
    yield json.dumps(secret)[1:-1].encode()
    for n in range(3):  # in base64, at any place
        yield base64.b64encode(b"x" * n + secret.encode())[4:-4]
    if secret.count(".") == 2:
        yield secret.rpartition(".")[2].encode()


def everything(sallyport, *folders):
    """What is on disk or was printed, and of processes of this home."""
    for folder in folders:
        for path in pathlib.Path(folder).rglob("*"):
            if path.is_file() and not path.is_symlink():
                yield str(path), path.read_bytes()
    yield "what was printed", "\n".join(sallyport.said).encode()
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            environ = (folder / "environ").read_bytes()
            if int(folder.name) != os.getpid() and f"HOME={sallyport.home}".encode() in environ:
                yield f"the variables of {folder.name}", environ
                yield f"the command line of {folder.name}", (folder / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue


def test_nobody_sees_a_token(product, environment):
    sallyport = product(ttl=15)
    sallyport.login()
    sallyport.who()
    sallyport.expire()
    out, _ = sallyport.run("""
import json, os
print(json.dumps(dict(os.environ)))
print(await mcp_guarded.whoami())
try:
    await mcp_guarded.get_sum(a=1, b=2)
except runtime.MCPError as e:
    print(e, vars(e))
""")
    assert "alice" in out and "get-sum" in out, out
    for command in (["servers", "--json"], ["servers", "show", "guarded"], ["audit", "list", "--json"], ["hub", "status", "--json"]):
        sallyport(*command)
    # While code runs, and calls.
    calls = sallyport.servers.seen()["calls"]["tools/call"]
    process = subprocess.Popen(**sallyport.command("run", "--server", "guarded", "-c", "print(await mcp_guarded.trigger_long_running_operation(duration=6, steps=2))"))
    wait_for("the call", lambda: sallyport.servers.seen()["calls"]["tools/call"] > calls)
    found = list(everything(sallyport, sallyport.home, environment["XDG_RUNTIME_DIR"]))
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    sallyport.said += [out, error]
    kept = [path for path in sallyport.home.rglob("logins/*") if path.is_file() and path.stat().st_size]
    assert any(path.suffix == ".login" for path in kept), kept
    assert {path.stat().st_mode & 0o077 for path in kept} == {0}, "for this user alone"
    sallyport("servers", "logout", "guarded")
    found += everything(sallyport, sallyport.home, environment["XDG_RUNTIME_DIR"])
    secrets = sallyport.servers.seen()["secrets"]
    assert {s["kind"] for s in secrets} >= {"access_token", "refresh_token", "code"}
    assert len(found) > 20 and any("what was printed" == where for where, _ in found)
    for at in range(3):  # it would be found
        assert any(form in base64.b64encode(b"x" * at + secrets[0]["value"].encode() + b"y") for form in forms(secrets[0]["value"]))
    leaks = {(s["kind"], where) for s in secrets for form in forms(s["value"]) for where, data in found if form in data}
    assert leaks == set()

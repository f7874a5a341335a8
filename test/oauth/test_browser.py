"""The user signs in with a real browser, Chromium."""

import json
import os
import re
import subprocess

import pytest
from conftest import HERE, LOGIN, wait_for


@pytest.fixture
def browser(chromium, node22, npm, script, tmp_path, monkeypatch):
    """A program that plays the user in Chromium, with options of browser.mjs, and what
    the user has seen."""
    monkeypatch.setenv("SALLYPORT_TEST_NPM", str(npm))
    output = tmp_path / "seen.json"

    def make(**options):
        more = [f"SALLYPORT_TEST_NPM={npm}", f"SALLYPORT_TEST_CHROMIUM={chromium}"]
        return script("env", *more, node22, HERE / "browser.mjs", json.dumps({"output": str(output)} | options))

    def seen():  # it writes at its end, when the command may have ended
        wait_for("the browser", output.exists)
        return json.loads(output.read_text())

    return make, seen


def test_the_browser_signs_in(product, browser, tmp_path):
    browse, seen = browser
    sallyport, picture = product(), tmp_path / "last.png"
    _, error = sallyport("servers", "test", "guarded", status=1)
    assert LOGIN in error, error
    assert sallyport.state()["state"] == "signed out"

    out, _ = sallyport("servers", "login", "guarded", env=sallyport.desktop(browse(screenshot=str(picture))))
    assert "guarded: signed in as alice" in out, out
    page = seen()
    assert "You can close this page" in page["text"], page
    assert "Sallyport" in page["consent"] and "mcp:read" in page["consent"] and sallyport.servers.resource in page["consent"], page["consent"]
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 5000

    state = sallyport.state()
    assert (state["state"], state["account"], state["issuer"], state["renewable"]) == ("signed in", "alice", sallyport.servers.issuer, True), state
    assert state["expires"]
    assert "mcp:read" in state["scopes"]
    sallyport("servers", "test", "guarded")
    out, _ = sallyport.run("print((await mcp_guarded.echo(message='hello'))); print(await mcp_guarded.whoami())")
    assert "hello" in out and "alice" in out, out


def test_the_user_refuses(product, browser):
    browse, seen = browser
    sallyport = product()
    _, error = sallyport("servers", "login", "guarded", env=sallyport.desktop(browse(deny=True)), status=1)
    assert "access_denied" in error, error
    assert "access_denied" in seen()["text"] and "close this page" in seen()["text"]
    assert sallyport.state()["state"] == "signed out"
    assert sallyport.servers.secrets("access_token") == []


def test_the_address_is_pasted(product, browser):
    """The browser is on another computer, where nothing listens."""
    browse, seen = browser
    sallyport = product()
    with subprocess.Popen(**sallyport.command("servers", "login", "--no-browser", "guarded", stdin=subprocess.PIPE)) as process:
        address = None
        while not address:
            line = process.stderr.readline()
            assert line, "it printed no address"
            address = re.match(r"\s+(http\S+)$", line)
        subprocess.run([browse(alone=True, user="bob"), address[1]], check=True, timeout=120, capture_output=True, env=os.environ)
        out, error = process.communicate(seen()["url"] + "\n", timeout=60)
    assert process.returncode == 0, error
    assert "guarded: signed in as bob" in out, out
    assert sallyport.who()["user"] == "bob"


def test_another_account(product, browser):
    browse, _ = browser
    sallyport = product()
    for user in ("alice", "bob"):
        sallyport("servers", "login", "guarded", env=sallyport.desktop(browse(user=user)))
        assert sallyport.who()["user"] == sallyport.state()["account"] == user
    # It is the same client, as which it was registered the first time.
    assert sallyport.servers.requests("registration 201") == 1

"""The servers of server.mjs, and who signs in at them."""

import base64
import contextlib
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time

import httpx2
import pytest

HERE = pathlib.Path(__file__).resolve().parent
LOGIN = "sallyport servers login guarded"


def wait_for(what, condition, patience=60):
    """What a condition answers, once it is true."""
    until = time.monotonic() + patience
    while not (answer := condition()):
        assert time.monotonic() < until, f"waited {patience} s for {what}"
        time.sleep(0.02)
    return answer


class Servers:
    """An authorization server and the MCP servers that go with it."""

    def __init__(self, process):
        self.process = process
        line = process.stdout.readline()
        assert line, "server.mjs did not start"
        self.addresses = json.loads(line)
        self.resource, self.issuer, self.other = (self.addresses[k] for k in ("resource", "issuer", "other"))

    def seen(self):
        return httpx2.get(self.addresses["admin"], trust_env=False, timeout=60).json()

    def set(self, **options):
        httpx2.post(self.addresses["admin"], json=options, trust_env=False, timeout=60).raise_for_status()

    def requests(self, name):
        """How many requests to an endpoint had this outcome."""
        return self.seen()["requests"].get(name, 0)

    def secrets(self, *kinds):
        return [s["value"] for s in self.seen()["secrets"] if not kinds or s["kind"] in kinds]

    def active(self, token):
        """Whether the authorization server takes a token for good (RFC 7662)."""
        credentials = self.addresses["introspection"]
        answer = httpx2.post(self.issuer + "/token/introspection", data={"token": token}, trust_env=False, timeout=60,
                            auth=(credentials["id"], credentials["secret"]))
        answer.raise_for_status()
        return answer.json()["active"]


@pytest.fixture
def serve(node22, npm):
    """Starts the servers, with options of server.mjs."""
    with contextlib.ExitStack() as stack:

        def start(**options):
            process = stack.enter_context(subprocess.Popen(
                [node22, str(HERE / "server.mjs"), json.dumps(options)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env=os.environ | {"SALLYPORT_TEST_NPM": str(npm)}))
            stack.callback(process.stdin.close)
            return Servers(process)

        yield start


@pytest.fixture
def chromium():
    """The browser. It is a Debian package, which only root can install."""
    path = pathlib.Path(os.environ.get("SALLYPORT_TEST_CHROMIUM", "/usr/bin/chromium"))
    if not path.exists():
        pytest.skip(f"{path} is missing: as root, scripts/setup debian")
    return path


@pytest.fixture
def script(tmp_path):
    """Writes an executable that runs a command; answers its path, for BROWSER."""

    def write(*command):
        path = tmp_path / f"browser{len(list(tmp_path.glob('browser*')))}"
        path.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, command))} "$@"\n')
        path.chmod(0o700)
        return str(path)

    return write


class Product:
    """Sallyport in a home with two servers: `guarded`, the protected one, and `other`."""

    def __init__(self, sallyport, environment, servers, script):
        self.program, self.environment, self.servers, self.script = sallyport, environment | {"SALLYPORT_LOG_LEVEL": "debug"}, servers, script
        self.home = pathlib.Path(environment["HOME"])
        self.said = []  # all that was printed
        self.define()

    def define(self, **oauth):
        """Defines the servers, the protected one with what its definition says about signing in."""
        (self.home / "MCPs").mkdir(exist_ok=True)
        guarded = {"url": self.servers.resource} | ({"oauth": oauth} if oauth else {})
        (self.home / "MCPs/mine.json").write_text(json.dumps({"mcpServers": {"guarded": guarded, "other": {"url": self.servers.other}}}))

    def command(self, *args, **more):
        return {"args": [self.program, *args], "env": self.environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": self.home} | more

    def __call__(self, *args, status=0, env={}, **more):
        """What a command prints, and its errors."""
        done = subprocess.run(**self.command(*args, env=self.environment | env, **{"stdin": subprocess.DEVNULL} | more), timeout=300)
        self.said.append(done.stdout + done.stderr)
        assert done.returncode == status, f"{args}: exit {done.returncode}, want {status}\n{done.stdout}\n{done.stderr[-3000:]}"
        return done.stdout, "".join(line for line in done.stderr.splitlines(True) if not line.startswith("sallyport: debug: "))

    def desktop(self, browser):
        """The variables of a desktop where links are opened in this browser."""
        folder = pathlib.Path(browser).with_suffix(".desktop")
        folder.mkdir(exist_ok=True)
        if not (opener := folder / "xdg-open").exists():
            opener.symlink_to(browser)
        return {"DISPLAY": ":99", "BROWSER": browser, "PATH": f"{folder}{os.pathsep}{self.environment['PATH']}"}

    def login(self, user="alice", **more):
        """Signs a user in, who agrees."""
        browser = self.script(sys.executable, HERE / "person.py", user)
        return self("servers", "login", "guarded", env=self.desktop(browser), **more)

    def who(self):
        """As whom and with which token the protected server is called."""
        out, _ = self("tools", "call", "guarded", "whoami")
        return json.loads(out)

    def state(self):
        """The login as the list of servers has it."""
        out, _ = self("servers", "--json")
        (line,) = [s for s in json.loads(out)["servers"] if s["name"] == "guarded"]
        return line["login"]

    def run(self, code, **more):
        """What code prints."""
        return self("run", "--server", "guarded", "-c", code, **more)

    def expire(self):
        """Waits until the newest access token has expired; later ones last."""
        self.servers.set(ttl=3600)
        (*_, token) = self.servers.secrets("access_token")
        wait_for("the token to expire", lambda: time.time() > claims(token)["exp"])


def claims(token):
    """What a JWT says."""
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


@pytest.fixture
def product(sallyport, environment, serve, script):
    """Sallyport, next to servers with options of server.mjs."""
    return lambda **options: Product(sallyport, environment, serve(**options), script)

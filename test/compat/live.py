"""A small MCP client over a running `sallyport serve`, with servers made for the
test behind it. What official clients see, test/clients tests."""

import itertools
import json
import os
import pathlib
import subprocess
import sys
import threading

import roles

HERE = pathlib.Path(__file__).resolve().parent
INTERPRETER = sys.executable
# How long an answer may take, in seconds: far more than it does.
PATIENCE = 200


class Live:
    """One conversation with one `sallyport serve`, which has `place` to itself."""

    def __init__(self, sallyport, place, variables=None, arguments=(), home_files=None):
        self.place = pathlib.Path(place)
        self.log = self.place / "calls.jsonl"
        home = self.place / "home"
        (home / "MCPs").mkdir(parents=True, exist_ok=True)
        import engine  # not above: test/smoke imports this file, and has no pytest

        self.environment = engine.chosen(sallyport, {
            "SALLYPORT_HUB_ENABLED": "false",
            "SALLYPORT_OUTPUT_STRUCTURED": "always",  # as the bridge's clients expect it
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "SALLYPORT_STATE_DIR": str(self.place / "state"),
            **(variables or {}),
        })  # fmt: skip
        write_definitions(home / "MCPs/roles.json", self.log)
        for name, content in (home_files or {}).items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(content)
        self.errors = open(self.place / "stderr.txt", "a+")
        self.process = subprocess.Popen(
            [sallyport, "serve", *arguments], env=self.environment, cwd=self.place,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
        )  # fmt: skip
        self.ids = itertools.count(1)
        self.hello = self.ask(
            "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "compat", "version": "1"}
        )["result"]
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method, **params):
        """The whole answer to a request: result or error."""
        number = next(self.ids)
        patience = threading.Timer(PATIENCE, self.process.kill)
        patience.start()
        try:
            self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            while True:
                line = self.process.stdout.readline()
                assert line, f"the server has gone, or did not answer for {PATIENCE} s: {self.stderr()}"
                message = json.loads(line)
                if message.get("id") == number:
                    return message
        finally:
            patience.cancel()

    def run(self, code, **arguments):
        """One call of run_python."""
        answer = self.ask("tools/call", name="run_python", arguments={"code": code, **arguments})
        return Result(answer["result"])

    def calls(self):
        """What has reached the servers, and forgets it."""
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]

    def stderr(self):
        self.errors.flush()
        self.errors.seek(0)
        return self.errors.read()

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()
        self.errors.close()


class Result:
    def __init__(self, raw):
        self.raw = raw
        self.error = raw.get("isError", False)
        self.content = raw["content"]
        self.text = "\n".join(block["text"] for block in raw["content"] if block["type"] == "text")
        self.structured = raw.get("structuredContent")

    def __repr__(self):
        return json.dumps(self.raw, indent=1)


def write_definitions(path, log):
    servers = {
        role: {
            "command": INTERPRETER,
            "args": ["-S", str(HERE / "roles.py"), role, str(log)],
            "description": description,
            **({"cwd": str(HERE)} if role == "stub" else {}),
        }
        for role, (description, _) in roles.ROLES.items()
    }
    path.write_text(json.dumps({"mcpServers": servers}))

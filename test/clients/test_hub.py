"""Several clients of one hub, through the executable: what they share, what each
has for itself, and what a client notices when the hub dies."""

import concurrent.futures
import contextlib
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from conftest import hubs_of

# A server that says where and with what it runs.
SERVER = """
import json, os, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    if m["method"] == "initialize":
        r = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "who", "version": "1"}}
    elif m["method"] == "tools/list":
        r = {"tools": [{"name": "who", "inputSchema": {"type": "object"}}]}
    else:
        print("asked by", os.environ.get("SECRET", "no one"), file=sys.stderr, flush=True)
        r = {"content": [{"type": "text", "text": json.dumps({"pid": os.getpid(), "cwd": os.getcwd(), "env": dict(os.environ)})}]}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
"""


class Client:
    def __init__(self, process):
        self.process, self.numbers = process, itertools.count()

    def send(self, method, **params):
        number = next(self.numbers)
        print(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}), file=self.process.stdin, flush=True)
        return number

    def receive(self, number):
        answer = json.loads(self.process.stdout.readline())
        assert answer["id"] == number, answer
        return answer["result"]

    def ask(self, method, **params):
        return self.receive(self.send(method, **params))

    def run(self, code, **more):
        result = self.ask("tools/call", name="run_python", arguments={"code": textwrap.dedent(code)} | more)
        return "\n".join(c["text"] for c in result["content"])

    def who(self):
        """What the server says that answers this client."""
        text = self.run("r = await runtime.call_tool('who', 'who', {})\nprint(r['content'][0]['text'])")
        return json.loads(text.splitlines()[0])


@pytest.fixture
def connect(sallyport, environment, tmp_path):
    """Starts clients of the same home."""
    with contextlib.ExitStack() as stack:

        def start(cwd=tmp_path, group=False, **env):
            process = stack.enter_context(subprocess.Popen(
                [sallyport, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=cwd,
                env=environment | env, start_new_session=group))
            stack.callback(process.stdin.close)
            client = Client(process)
            client.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": f"tests {process.pid}", "version": "1"})
            print('{"jsonrpc":"2.0","method":"notifications/initialized"}', file=process.stdin, flush=True)
            return client

        yield start


@pytest.fixture
def hubs(sallyport, environment):
    return lambda: hubs_of(sallyport, environment)


@pytest.fixture
def who(environment, tmp_path):
    """Defines the server above, with a variable of the client."""
    script = tmp_path / "who.py"
    script.write_text(SERVER)
    mcps = pathlib.Path(environment["HOME"], "MCPs")
    mcps.mkdir()
    (mcps / "who.json").write_text(json.dumps({"mcpServers": {"who": {
        "command": sys.executable, "args": [str(script)], "env": {"SECRET": "${SECRET:-none}"}}}}))


def test_ten_clients_start_one_hub(connect, hubs):
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        clients = list(pool.map(lambda _: connect(), range(10)))
        assert list(pool.map(lambda c: c.run(f"own = {c.process.pid}\nprint(6 * 7)"), clients)) == ["42"] * 10
    (hub,) = hubs()
    assert sorted(c["process"] for c in hub["clients"]) == sorted(c.process.pid for c in clients)
    assert sorted(c["name"] for c in hub["clients"]) == sorted(f"tests {c.process.pid}" for c in clients)
    # Each has a session of its own without a name, and all have one of a name.
    assert [c.run("print(own)") for c in clients] == [str(c.process.pid) for c in clients]
    for c in clients:
        c.run("n = globals().get('n', 0) + 1", session="all")
    assert clients[0].run("print(n)", session="all") == "10"


def test_the_hub_belongs_to_nobody(connect, hubs):
    first = connect(group=True, A_TOKEN="s3cret-of-the-client", SALLYPORT_RUNPOD_KEY="s3cret-key")
    assert first.run("print(1)") == "1"
    (hub,) = hubs()
    of = pathlib.Path("/proc", str(hub["pid"]))
    for name in ("environ", "cmdline"):
        assert b"s3cret" not in (of / name).read_bytes()
    assert os.readlink(of / "cwd") == "/"
    assert os.getsid(hub["pid"]) == hub["pid"] != os.getsid(first.process.pid)
    os.killpg(first.process.pid, signal.SIGKILL)
    first.process.wait()
    assert hubs()[0]["pid"] == hub["pid"]


def test_servers_are_shared_where_all_is_equal(connect, who):
    same, also, other = connect(SECRET="one"), connect(SECRET="one"), connect(SECRET="two")
    one, two, three = same.who(), also.who(), other.who()
    assert one["pid"] == two["pid"] != three["pid"]
    assert (one["env"]["SECRET"], three["env"]["SECRET"]) == ("one", "two")
    assert "two" not in json.dumps(one["env"])


def test_a_server_sees_the_variables_of_its_client_alone(connect, who):
    first = connect(SECRET="one", OTHER_TOKEN="of the first")
    second = connect(SECRET="two", OTHER_TOKEN="of the second")
    assert "of the" not in json.dumps(first.who()["env"]) + json.dumps(second.who()["env"])


def test_a_killed_hub_is_replaced(connect, hubs, who):
    first, second = connect(), connect()
    first.run("kept = 1")
    server = second.who()["pid"]
    call = first.send("tools/call", name="run_python", arguments={"code": "import time\nprint('begun')\ntime.sleep(60)"})
    (hub,) = hubs()
    os.kill(hub["pid"], signal.SIGKILL)
    lost = first.receive(call)
    assert lost["isError"] and f"process {hub['pid']}" in lost["content"][0]["text"], lost
    # Neither has to connect again, and what is lost is said once.
    assert "state lost" in first.run("print('kept' in globals())")
    assert first.run("print(2)") == "2"
    assert second.who()["pid"] != server
    (again,) = hubs()
    assert again["pid"] != hub["pid"]
    while pathlib.Path("/proc", str(server)).exists():
        time.sleep(0.02)  # its input has ended


def test_different_settings_different_hubs(connect, hubs, sallyport, environment):
    connect().run("1"), connect(SALLYPORT_LIMITS_MEMORY="300m").run("1"), connect(SALLYPORT_OUTPUT_MODE="toon").run("1")
    assert sorted(len(h["clients"]) for h in hubs()) == [1, 2]
    told = subprocess.run([sallyport, "hub"], env=environment, capture_output=True, text=True, check=True).stdout
    assert "limits.memory: 300m there, 512m here" in told, told


def test_without_a_hub(connect, hubs):
    client = connect(SALLYPORT_HUB_ENABLED="false")
    assert client.run("print(1)") == "1"
    assert hubs() == []


def test_clients_take_turns(connect):
    """A client with more calls than may run delays no other. Its calls say which in line
    they are, one beyond the bound is refused at once, and one that is cancelled leaves."""
    limits = {
        "SALLYPORT_POLICY_EXECUTIONS_RUNNING": "2",
        "SALLYPORT_POLICY_EXECUTIONS_PER_CLIENT_RUNNING": "1",
        "SALLYPORT_POLICY_EXECUTIONS_PER_CLIENT_QUEUED": "3",
    }
    busy, other = connect(**limits), connect(**limits)
    said, answers, numbers = {}, {}, {}

    def call(name, code):
        numbers[name] = busy.send("tools/call", name="run_python", arguments={"code": code, "session": name}, _meta={"progressToken": name})

    def cancel(name):
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": numbers[name]}}), file=busy.process.stdin, flush=True)

    def read(until):
        while not until():
            message = json.loads(busy.process.stdout.readline())
            if "id" in message:
                answers[message["id"]] = message["result"]["content"][0]["text"]
            else:
                said[message["params"]["progressToken"]] = message["params"]["message"]

    call("a", "import time\nprint('up', flush=True)\nwhile True: time.sleep(0.1)")
    read(lambda: said.get("a") == "up")
    for name in "bcde":
        call(name, "print('done')")
    read(lambda: numbers["e"] in answers)
    assert "policy.executions.perClient.queued" in answers[numbers["e"]]
    read(lambda: [said.get(n, "") for n in "bcd"] == [f"waiting for its turn: {n} of 3" for n in ("1st", "2nd", "3rd")])
    assert other.run("print(6 * 7)") == "42"
    cancel("b")
    read(lambda: [said[n] for n in "cd"] == [f"waiting for its turn: {n} of 2" for n in ("1st", "2nd")])
    cancel("a")
    read(lambda: {numbers["c"], numbers["d"]} <= answers.keys())
    assert [answers[numbers[n]] for n in "cd"] == ["done"] * 2
    assert {numbers["a"], numbers["b"]}.isdisjoint(answers)

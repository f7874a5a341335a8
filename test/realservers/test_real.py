"""Servers that people use, all at once, as definitions in the files of several
clients. test/realservers/run installs them."""

import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import engine
import pytest
from conftest import ROOT

PLACE = Path(os.environ.get("SALLYPORT_TEST_REAL_SERVERS", "/nonexistent"))
pytestmark = pytest.mark.skipif(not PLACE.is_dir(), reason="test/realservers/run installs the servers")

# npm's command, its arguments, its environment, at least so many tools.
# Credentials are made up: the servers list their tools without using them.
NPM = {
    "chart": ("mcp-server-chart", [], {}, 20),
    "git-js": ("git-mcp-server", [], {"MCP_LOG_LEVEL": "error"}, 20),
    "everything": ("mcp-server-everything", [], {}, 10),
    "filesystem": ("mcp-server-filesystem", ["{work}"], {}, 10),
    "github": ("mcp-server-github", [], {"GITHUB_PERSONAL_ACCESS_TOKEN": "made-up"}, 20),
    "gitlab": ("mcp-server-gitlab", [], {"GITLAB_PERSONAL_ACCESS_TOKEN": "made-up"}, 5),
    "memory": ("mcp-server-memory", [], {"MEMORY_FILE_PATH": "{work}/memory.jsonl"}, 5),
    "thinking": ("mcp-server-sequential-thinking", [], {}, 1),
    "slack": ("mcp-server-slack", [], {"SLACK_BOT_TOKEN": "xoxb-made-up", "SLACK_TEAM_ID": "T1"}, 5),
    "notion": ("notion-mcp-server", [], {"NOTION_TOKEN": "made-up"}, 10),
    "playwright": ("playwright-mcp", ["--headless"], {}, 15),
    "context7": ("context7-mcp", [], {}, 1),
    "gitlab-full": ("mcp-gitlab", [], {"GITLAB_PERSONAL_ACCESS_TOKEN": "made-up"}, 50),
    "chrome": ("chrome-devtools-mcp", [], {}, 15),
    "kubernetes": ("mcp-server-kubernetes", [], {"KUBECONFIG": "{work}/kubeconfig"}, 10),
    "mongodb": ("mongodb-mcp-server", [], {"MDB_MCP_TELEMETRY": "disabled"}, 5),
}
PYPI = {"git": ("mcp-server-git", [], {}, 5), "time": ("mcp-server-time", [], {}, 2)}
KUBECONFIG = """apiVersion: v1
kind: Config
current-context: none
contexts: [{name: none, context: {cluster: none, user: none}}]
clusters: [{name: none, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: none, user: {}}]
"""
# npm's command, its arguments, the path that it answers at, its tools.
REMOTE = {
    "everything-http": ("mcp-server-everything", ["streamableHttp"], "mcp", 10),
    "everything-sse": ("mcp-server-everything", ["sse"], "sse", 10),
    "playwright-http": ("playwright-mcp", ["--headless", "--port", "{port}"], "mcp", 15),
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port, process):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server has ended"
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the server does not listen")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with the servers spread over the files of several clients."""
    home = tmp_path_factory.mktemp("home")
    work = home / "work"
    work.mkdir()
    (work / "notes.txt").write_text("remember the milk")
    (work / "kubeconfig").write_text(KUBECONFIG)
    subprocess.run(["git", "init", "-q", "-b", "main", work], check=True)
    node = shutil.which("node")
    entries = {}
    for name, (command, args, env, _) in NPM.items():
        script = (PLACE / "node_modules/.bin" / command).resolve()
        entries[name] = {
            "command": node,
            "args": [str(script), *(a.format(work=work) for a in args)],
            "env": {k: v.format(work=work) for k, v in env.items()},
        }
    for name, (command, args, env, _) in PYPI.items():
        entries[name] = {"command": str(PLACE / "venv/bin" / command), "args": args, "env": env}
    processes = []
    for name, (command, args, path, _) in REMOTE.items():
        script, port = str((PLACE / "node_modules/.bin" / command).resolve()), free_port()
        log = open(home / f"{name}.log", "wb")
        arguments = [a.format(port=port) for a in args]
        p = subprocess.Popen([node, script, *arguments], env={**os.environ, "PORT": str(port)}, stdout=log, stderr=log)
        processes.append(p)
        wait_for(port, p)
        entries[name] = {"url": f"http://localhost:{port}/{path}"} | ({"type": "sse"} if path == "sse" else {})

    def take(*names):
        return {n: entries.pop(n) for n in names}

    def write(path, text):
        file = home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    write(".cursor/mcp.json", json.dumps({"mcpServers": take("chart", "git-js", "everything-http")}))
    write(".config/Claude/claude_desktop_config.json", json.dumps({"mcpServers": take("github", "gitlab", "slack")}))
    write(".claude.json", json.dumps({"mcpServers": take("notion", "playwright")}))
    vscode = {n: {"type": "stdio", **d} for n, d in take("context7", "chrome").items()}
    write(".config/Code/User/mcp.json", "// with comments\n" + json.dumps({"servers": vscode}))
    toml = ""
    for n, d in take("kubernetes", "time").items():
        toml += f"[mcp_servers.{n}]\ncommand = {json.dumps(d['command'])}\nargs = {json.dumps(d['args'])}\n"
        toml += "".join(f"env.{k} = {json.dumps(v)}\n" for k, v in d["env"].items())
    write(".codex/config.toml", toml)
    write(".gemini/settings.json", json.dumps({"mcpServers": take("mongodb")}))
    write("MCPs/rest.json", json.dumps({"mcpServers": entries}))
    yield home
    for p in processes:
        p.kill()
        p.wait()


@pytest.fixture(scope="module")
def environment(sallyport, home):
    python = {} if engine.NAME else {"SALLYPORT_PYTHON": "/usr/bin/python3"}
    return engine.chosen(sallyport, python | {
        "HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8",
        "XDG_RUNTIME_DIR": str(home), "SALLYPORT_SERVERS_START_TIMEOUT": "120s",
    })  # fmt: skip


@pytest.fixture(scope="module")
def sallyport():
    return os.environ.get("SALLYPORT_BIN", str(ROOT / "bin/sallyport"))


def run(sallyport, environment, *args, timeout=600):
    done = subprocess.run([sallyport, *args], env=environment, cwd=environment["HOME"], capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{args[:3]}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


ALL = [*NPM, *PYPI, *REMOTE]


def test_every_definition_is_found(sallyport, environment):
    listed = {s["name"]: s for s in json.loads(run(sallyport, environment, "servers", "list", "--json"))["servers"]}
    assert set(listed) >= set(ALL)


@pytest.mark.parametrize("name", ALL)
def test_server(sallyport, environment, name):
    answer = json.loads(run(sallyport, environment, "servers", "test", name, "--json"))
    (one,) = answer if isinstance(answer, list) else [answer]
    least = (NPM | PYPI | REMOTE)[name][3]
    print(f"\n{name:16} {one.get('protocol')}  {len(one['tools']):3} tools  start {one.get('startMs')} ms  {one.get('server')}")
    assert len(one["tools"]) >= least


def test_all_of_them_in_one_program(sallyport, environment, home):
    """Every server is loaded by one program, which calls those that need no
    account, at once where it can."""
    code = """
import asyncio, inspect
print(len(runtime.list_servers_sync()))
n = 0
for meta in runtime.list_loaded_server_metadata():
    for tool in meta["tools"]:
        inspect.signature(getattr(mcp_servers[meta["name"]], tool["alias"])); n += 1
print(n > 300)
text = await mcp_filesystem.read_text_file(path=WORK + "/notes.txt")
print("milk" in text)
await mcp_memory.create_entities(entities=[{"name": "Ada", "entityType": "person", "observations": ["likes engines"]}])
print((await mcp_memory.search_nodes(query="engines")).entities[0].name)
sums = await asyncio.gather(*(s.get_sum(a=i, b=1) for i in range(30) for s in (mcp_everything, mcp_everything_http, mcp_everything_sse)))
print(len(sums), all(str(i // 3 + 1) in str(x) for i, x in enumerate(sums)))
status = await mcp_git.git_status(repo_path=WORK)
print("main" in str(status))
print("Europe/Paris" in str(await mcp_time.get_current_time(timezone="Europe/Paris")))
thought = await mcp_thinking.sequentialthinking(thought="x", nextThoughtNeeded=False, thoughtNumber=1, totalThoughts=1)
print(thought.thoughtNumber)
image = await mcp_everything.get_tiny_image()
print([c.mime_type for c in image if c.type == "image"])
found = await search_tool_docs("search issues in a repository", limit=5)
print({d["server"] for d in found} <= {"github", "gitlab", "gitlab-full"})
""".replace("WORK", repr(str(home / "work")))
    file = home / "program.py"
    file.write_text(code)
    servers = [a for n in ALL for a in ("--server", n)]
    out = run(sallyport, environment, "run", *servers, "--timeout", "120", str(file)).splitlines()
    print("\n" + "\n".join(out))
    assert out[:4] == [str(len(ALL)), "True", "True", "Ada"]
    assert out[4] == "90 True" and out[5:7] == ["True", "True"] and out[7] == "1"
    assert out[8] == "['image/png']" and out[9] == "True"


# Calls that need no account: server, tool, arguments. WORK is a folder.
CALLS = """[
    ("filesystem", "write_file", dict(path=WORK + "/a.txt", content="one")),
    ("filesystem", "read_file", dict(path=WORK + "/a.txt")),
    ("filesystem", "read_text_file", dict(path=WORK + "/a.txt")),
    ("filesystem", "read_multiple_files", dict(paths=[WORK + "/a.txt", WORK + "/notes.txt"])),
    ("filesystem", "edit_file", dict(path=WORK + "/a.txt", edits=[{"oldText": "one", "newText": "two"}])),
    ("filesystem", "create_directory", dict(path=WORK + "/sub")),
    ("filesystem", "list_directory", dict(path=WORK)),
    ("filesystem", "list_directory_with_sizes", dict(path=WORK)),
    ("filesystem", "directory_tree", dict(path=WORK)),
    ("filesystem", "move_file", dict(source=WORK + "/a.txt", destination=WORK + "/sub/b.txt")),
    ("filesystem", "search_files", dict(path=WORK, pattern="*.txt")),
    ("filesystem", "get_file_info", dict(path=WORK + "/notes.txt")),
    ("filesystem", "list_allowed_directories", {}),
    ("filesystem", "read_media_file", dict(path=WORK + "/notes.txt")),
    ("memory", "create_entities", dict(entities=[{"name": "Bea", "entityType": "person", "observations": ["x"]}])),
    ("memory", "create_relations", dict(relations=[{"from": "Bea", "to": "Bea", "relationType": "is"}])),
    ("memory", "add_observations", dict(observations=[{"entityName": "Bea", "contents": ["y"]}])),
    ("memory", "read_graph", {}),
    ("memory", "search_nodes", dict(query="Bea")),
    ("memory", "open_nodes", dict(names=["Bea"])),
    ("memory", "delete_observations", dict(deletions=[{"entityName": "Bea", "observations": ["y"]}])),
    ("memory", "delete_relations", dict(relations=[{"from": "Bea", "to": "Bea", "relationType": "is"}])),
    ("memory", "delete_entities", dict(entityNames=["Bea"])),
    ("everything", "echo", dict(message="x")),
    ("everything", "get-sum", dict(a=1, b=2)),
    ("everything", "get-env", {}),
    ("everything", "get-tiny-image", {}),
    ("everything", "get-structured-content", dict(location="New York")),
    ("everything", "get-annotated-message", dict(messageType="error")),
    ("everything", "get-resource-links", dict(count=2)),
    ("everything", "get-resource-reference", {}),
    ("thinking", "sequentialthinking", dict(thought="x", nextThoughtNeeded=False, thoughtNumber=1, totalThoughts=1)),
    ("git-js", "git_status", dict(path=WORK)),
    ("git-js", "git_branch", dict(path=WORK)),
]""".replace("\n", "")

# Whether a value has the type that a signature shows: its node in the syntax tree.
FITS = """
import ast

def fits(value, t):
    if isinstance(t, ast.BinOp):
        return fits(value, t.left) or fits(value, t.right)
    if isinstance(t, ast.Constant):
        return value is None if t.value is None else t.value is ...
    if isinstance(t, ast.Name):
        kinds = {"str": str, "int": int, "float": (int, float), "bool": bool, "list": list, "dict": dict, "Any": object}
        return isinstance(value, kinds[t.id]) and (t.id not in ("int", "float") or not isinstance(value, bool))
    if isinstance(t, ast.Subscript):
        of = t.slice
        if t.value.id == "list":
            return isinstance(value, list) and all(fits(v, of) for v in value)
        if t.value.id == "dict":
            return isinstance(value, dict) and all(fits(v, of.elts[1]) for v in value.values())
        options = ast.literal_eval(of)
        return value in (options if isinstance(options, tuple) else (options,))
    assert isinstance(t, ast.Dict), ast.dump(t)
    if not isinstance(value, dict):
        return False
    known = {k.value: v for k, v in zip(t.keys, t.values)}
    rest = known.pop(..., None)
    for name, of in known.items():
        optional = isinstance(of, ast.Subscript) and of.value.id == "NotRequired"
        if name not in value:
            if not optional:
                return False
        elif not fits(value[name], of.slice if optional else of):
            return False
    return all(name in known or rest is not None and fits(v, rest) for name, v in value.items())

def returned(signature):
    function = ast.parse("def f%s: pass" % signature.removesuffix("  # learned")).body[0]
    return function.returns
"""


def test_values_fit_signatures(sallyport, environment, home):
    """What calls return is what signatures say: those that servers declare, and
    those that were learned from the same calls before."""
    # What other tests have had learned is not known here.
    environment = engine.chosen(sallyport, {**environment, "XDG_STATE_HOME": str(home / "unlearned")})
    code = f"""{FITS}
async def check(server, tool, arguments):
    signature = runtime.query_tool_docs_sync(server, tool)[0]["signature"]
    wanted = returned(signature)
    value = await mcp_servers[server][tool](**arguments)
    print(server, tool, "untyped" if wanted is None else "learned" if "# learned" in signature else "declared",
          wanted is None or fits(value, wanted), signature.rpartition(" -> ")[2][:90] if wanted else "", sep="|")
    return value

for call in {CALLS.replace("WORK", repr(str(home / "work")))}:
    try:
        value = await check(*call)
    except runtime.MCPError as e:
        print(*call[:2], "failed", e, sep="|")
"""
    file = home / "types.py"
    servers = [a for n in ("filesystem", "memory", "everything", "thinking", "git-js") for a in ("--server", n)]
    kinds = []
    for _ in range(2):
        subprocess.run(["rm", "-rf", str(home / "work/sub")], check=True)
        file.write_text(code)
        out = run(sallyport, environment, "run", *servers, "--timeout", "120", str(file))
        print("\n" + out)
        rows = [line.split("|") for line in out.splitlines()]
        assert len(rows) == CALLS.count('("') and not [r for r in rows if r[2] == "failed"]
        assert not [r for r in rows if r[3] != "True"], "values that their signatures do not describe"
        kinds.append({(r[0], r[1]): r[2] for r in rows})
    assert kinds[0]["filesystem", "list_directory"] == "declared" and kinds[0]["everything", "get-sum"] == "untyped"
    assert {tool: "learned" if kind == "untyped" else kind for tool, kind in kinds[0].items()} == kinds[1]


def test_commands_find_tools(sallyport, environment):
    found = run(sallyport, environment, "tools", "search", "take a screenshot of the page", "--limit", "3")
    print("\n" + found)
    assert "screenshot" in found

"""The examples of docs/FRAMEWORKS.md, each as it is written, with a model that is
scripted: a server of the test's own answers as the services of OpenAI and Google do,
and keeps what the library gives the model."""

import http.server
import json
import os
import pathlib
import re
import subprocess
import threading

import pytest
from conftest import ROOT

TEXT = (ROOT / "docs/FRAMEWORKS.md").read_text(encoding="utf-8")
# Heading: (language, example).
EXAMPLES = {h: (l, b) for h, l, b in re.findall(r"^## ([^\n]+)\n[^#]*?^```(\w+)\n(.*?)^```", TEXT, re.M | re.S)}
# Library: (version, what it calls itself, pictures) of the document's table.
TABLE = {
    row[0]: row[1:]
    for row in re.findall(r"^\| \[(.+?)\]\(#.+?\) \| (\S+) \| (.+?) \| (.*?) ?\| .*?\|$", TEXT, re.M)
}
AGENTS = ["openai-agents", "LangChain", "pydantic-ai", "Agent Framework", "Agno", "Google ADK", "smolagents", "mcp-use", "AI SDK", "Mastra"]
PROGRAMS = ["LlamaIndex", "FastMCP", "Python SDK", "TypeScript SDK"]
# The package that a version is of, and those whose Python has version 1 of mcp.
PACKAGES = {
    "LangChain": "langchain", "pydantic-ai": "pydantic-ai-slim", "Agent Framework": "agent-framework-core", "Agno": "agno",
    "Google ADK": "google-adk", "LlamaIndex": "llama-index-tools-mcp", "AI SDK": "ai", "Mastra": "@mastra/core",
    "FastMCP": "fastmcp", "Python SDK": "mcp", "TypeScript SDK": "@modelcontextprotocol/client",
}  # fmt: skip
MCP1 = {"LangChain", "smolagents", "mcp-use", "Google ADK"}
PLACE = pathlib.Path(os.environ["SALLYPORT_TEST_FRAMEWORKS"])
# No example reports to anyone, and each finds the scripted model.
VARIABLES = {"OPENAI_API_KEY": "none", "GEMINI_API_KEY": "none", "OPENAI_AGENTS_DISABLE_TRACING": "1", "AGNO_TELEMETRY": "false"} | {
    "MCP_USE_ANONYMIZED_TELEMETRY": "false",
    "MASTRA_TELEMETRY_DISABLED": "1",
}

PNG = r"""
import struct, zlib
chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
class Picture:
    def _repr_png_(self):
        rows = zlib.compress(b"".join(b"\0" + b"\xff\0\0" * 8 for row in range(8)))
        head = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
        return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
Picture()
"""
PICTURE = "iVBORw0KGgo"  # how a PNG begins in base64
FAILS = {"code": "raise ValueError('wrong %d' % x)"}
FAILED = "ValueError: wrong 21"


class Model(http.server.ThreadingHTTPServer):
    """A model that calls run_python with each arguments in turn, and then says done.
    seen has what it was given after each call."""

    def __init__(self, *calls):
        super().__init__(("127.0.0.1", 0), Service)
        self.calls, self.requests = calls, []
        self.url = "http://127.0.0.1:%d" % self.server_port

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def seen(self):
        found = []
        for request in self.requests[1:]:
            items = request.get("input") or request.get("messages") or request["contents"]
            # Some leave out what the service has from the request before.
            own = [n for n, i in enumerate(items) if i.get("type") == "function_call" or i.get("role") in ("assistant", "model")]
            found.append(json.dumps(items[max(own, default=-1) + 1 :], ensure_ascii=False))
        return found

    def step(self, request):
        """(name, arguments) of the next call; the name is None where there is none."""
        self.requests.append(request)
        names = re.findall(r'"name": "(\w*run_python|final_answer)"', json.dumps(request["tools"]))
        if len(self.requests) <= len(self.calls):
            return next(n for n in names if n.endswith("run_python")), self.calls[len(self.requests) - 1]
        return ("final_answer", {"answer": "done"}) if "final_answer" in names else (None, None)


class Service(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name, arguments = self.server.step(request)
        number, encoded = len(self.server.requests), json.dumps(arguments)
        if self.path.endswith("/responses"):
            item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": [{"type": "output_text", "text": "done", "annotations": []}]}
            if name:
                item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": name, "arguments": encoded}
            details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
            answer = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": "gpt-5", "status": "completed"}
            answer |= {"output": [item | {"status": "completed"}], "parallel_tool_calls": False, "tool_choice": "auto", "tools": []}
            answer |= {"usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2} | details}
        elif self.path.endswith("/chat/completions"):
            message = {"role": "assistant", "content": None if name else "done"}
            if name:
                message["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": encoded}}]
            choice = {"index": 0, "finish_reason": "tool_calls" if name else "stop", "message": message}
            answer = {"id": f"chat_{number}", "object": "chat.completion", "created": 1, "model": "gpt-5", "choices": [choice]}
            answer |= {"usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}
        elif self.path.endswith(":generateContent"):
            part = {"functionCall": {"name": name, "args": arguments}} if name else {"text": "done"}
            answer = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}]}
        else:
            return self.send_error(404)
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def run(sallyport, environment, node22, tmp_path):
    """Runs an example, with what is replaced in it; answers what it prints and the
    names by which it calls itself to Sallyport."""
    # Libraries give a server few variables, so that the program has them here.
    program, requests = tmp_path / "bin/sallyport", tmp_path / "requests"
    program.parent.mkdir()
    exports = " ".join(f"{name}='{environment[name]}'" for name in ("HOME", "XDG_RUNTIME_DIR"))
    program.write_text(f"#!/bin/sh\nexport {exports}\ntee -a '{requests}' | '{sallyport}' \"$@\"\n")
    program.chmod(0o755)
    (tmp_path / "node_modules").symlink_to(PLACE / "npm/node_modules")

    def example(library, model=None, replaced={}):
        language, code = EXAMPLES[library]
        for old, new in replaced.items():
            assert old in code, f"{library} has no {old!r}"
            code = code.replace(old, new)
        file = tmp_path / ("example.py" if language == "python" else "example.mjs")
        file.write_text(code)
        python = str(PLACE / ("mcp1" if library in MCP1 else "mcp2") / "bin/python")
        url = model.url if model else "http://127.0.0.1:9"
        more = VARIABLES | {"OPENAI_BASE_URL": url + "/v1", "GOOGLE_GEMINI_BASE_URL": url, "PATH": f"{program.parent}:{environment['PATH']}"}
        done = subprocess.run(
            [python if language == "python" else node22, file.name],
            cwd=tmp_path, env=environment | more, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-3000:]
        names = set(re.findall(r'[cC]lientInfo":\s*{"name":\s*"([^"]*)"', requests.read_text()))
        return done.stdout, names

    return example


def test_every_example_is_tried():
    assert sorted(EXAMPLES) == sorted(AGENTS + PROGRAMS) == sorted(TABLE)


@pytest.mark.parametrize("library", AGENTS + PROGRAMS)
def test_version_is_the_tested_one(library):
    package = PACKAGES.get(library, library)
    if EXAMPLES[library][0] == "js":
        got = json.loads((ROOT / "test/frameworks/package.json").read_text())["dependencies"][package]
    else:
        pinned = "".join((ROOT / f"scripts/python/frameworks{n}.txt").read_text() for n in ("", "-mcp1"))
        got = re.findall(rf"^{package}==(\S+)", pinned, re.M)[0]
    assert TABLE[library][0] == got


@pytest.mark.parametrize("library", AGENTS)
def test_what_the_model_sees(library, run):
    """Variables last from call to call, nothing is given twice, errors come with their
    traceback and do not end the run, and a picture arrives where the document says so."""
    with Model({"code": "x = 21"}, {"code": "print('value', x * 2)"}, FAILS, FAILS, {"code": PNG}) as model:
        printed, names = run(library, model)
    assert printed.rstrip().endswith("done")
    _, value, failed, again, picture = model.seen()
    assert value.count("value 42") == 1, value
    for answer in (failed, again):
        assert "Traceback (most recent call last)" in answer and FAILED in answer, answer
        # mcp-use adds the exception that it made of it.
        assert library == "mcp-use" or answer.count(FAILED) == 1, answer
    _, name, pictures = TABLE[library]
    assert picture.count(PICTURE) == {"yes": 1, "as text": 1, "no": 0}[pictures], picture
    assert ("image_url" in picture or "input_file" in picture or "input_image" in picture) == (pictures == "yes"), picture
    assert names == {"sallyport" if library == "Mastra" else name.strip("`")}


@pytest.mark.parametrize("library", PROGRAMS)
def test_what_a_program_prints(library, run):
    printed, names = run(library)
    assert printed.count("42") == 1, printed
    assert names == {"analyst" if library == "TypeScript SDK" else TABLE[library][1].strip("`")}


@pytest.mark.parametrize("library", ["LlamaIndex", "FastMCP"])
def test_what_a_program_prints_of_an_error(library, run):
    second = {"LlamaIndex": 'code="x"', "FastMCP": '"code": "x"'}[library]
    printed, _ = run(library, replaced={second: second.replace('"x"', '"1 / (x - 42)"')})
    assert "Traceback (most recent call last)" in printed and printed.count("ZeroDivisionError: ") == 1, printed


@pytest.mark.parametrize("written", [True, False], ids=["as written", "without its setting"])
def test_five_seconds_of_openai_agents(written, run):
    """Code that takes six seconds needs the setting, which the document says."""
    with Model({"code": "import time\ntime.sleep(6)\nprint('value', 6 * 7)"}) as model:
        run("openai-agents", model, {} if written else {", client_session_timeout_seconds=600": ""})
    (seen,) = model.seen()
    assert ("value 42" in seen) == written, seen


@pytest.mark.parametrize("session, want", [({}, "NameError"), ({"session": "one"}, "value 42")], ids=["unnamed", "named"])
def test_langchain_without_an_open_session(session, want, run):
    """A connection for each call loses variables, except those of a named session."""
    with Model({"code": "x = 21"} | session, {"code": "print('value', x * 2)"} | session) as model:
        run("LangChain", model, {"await load_mcp_tools(session)": "await client.get_tools()"})
    assert want in model.seen()[1], model.seen()


@pytest.mark.parametrize(
    "library, without",
    [
        ("pydantic-ai", ', tool_error_behavior="failed"'),
        ("Agent Framework", ", function_invocation_configuration=errors"),
        ("smolagents", '\n        argument["nullable"] = name != "code"'),
        ("mcp-use", ", max_steps=30"),
        ("AI SDK", "\n  stopWhen: isStepCount(30),"),
        ("Mastra", ", { maxSteps: 30 }"),
    ],
)
def test_settings_are_needed(library, without, run):
    """An example without its setting does not show its model two tracebacks and end."""
    with Model({"code": "x = 21"}, FAILS, FAILS, {"code": "1"}, {"code": "2"}) as model:
        try:
            printed, _ = run(library, model, {without: "\n        pass" if "nullable" in without else ""})
        except AssertionError:
            printed = ""
    whole = [answer for answer in model.seen() if FAILED in answer]
    assert len(whole) < 2 or not printed.rstrip().endswith("done"), (printed, model.seen())

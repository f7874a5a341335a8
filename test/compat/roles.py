"""MCP servers made for the tests: one program that plays the part its argument
names, and notes each call that reaches it.

    python3 roles.py ROLE [LOG]

The parts answer in the shapes that real servers use: plain text, JSON as text,
structured content, and structured content wrapped in `result`. LOG gets one
line of JSON for each call: the tool's name and its arguments as they came.
Standard library only, so that a start costs little.
"""

import json
import os
import sys

STRING = {"type": "string"}


def text(value):
    return {"content": [{"type": "text", "text": value}]}


def as_json(value):
    """JSON in a text block, as most servers written before structured content do."""
    return text(json.dumps(value, ensure_ascii=False))


def structured(value):
    return as_json(value) | {"structuredContent": value}


def wrapped(value):
    """What a typed Python server makes of a value that is no object."""
    return structured({"result": value})


def failed(message):
    return text(message) | {"isError": True}


FILES = {
    "/tmp/plan.txt": "TODO: water the plants",
    "/tmp/done.txt": "everything is finished",
    "/tmp/test.txt": "a test of files",
}
ISSUES = {
    "AP-1": {"id": "AP-1", "title": "Login fails", "status": "Open", "description": "A Bug in the form"},
    "AP-2": {"id": "AP-2", "title": "New colours", "status": "Open", "description": "A wish"},
}
PAPERS = [{"title": "Sandboxes", "year": 2026}, {"title": "Agents", "year": 2025}]


def read_file(path):
    return text(FILES[path]) if path in FILES else failed(f"no such file: {path}")


# role: (description, {tool: (description, required, optional, answer)})
ROLES = {
    "filesystem": (
        "Reads files",
        {
            "read_file": ("Read a text file", {"path": STRING}, {}, read_file),
            "list_directory": ("List a directory", {"path": STRING}, {}, lambda path: wrapped(sorted(FILES))),
            "write_file": (
                "Write a text file", {"path": STRING, "content": STRING}, {}, lambda path, content: text("written"),
            ),
        },
    ),
    "search": (
        "Searches documents",
        {"search": ("Search everything", {"query": STRING}, {}, lambda query: structured({"title": f"About {query}", "score": 0.5}))},
    ),
    "github": (
        "Issues and repositories",
        {
            "create_issue": (
                "Create an issue", {"repo": STRING, "title": STRING}, {"body": STRING},
                lambda repo, title, body=None: as_json({"number": 7, "title": title, "url": f"https://example.test/{repo}/7"}),
            ),
        },
    ),
    "google-drive": (
        "Documents",
        {"get_document": ("The text of a document", {"documentId": STRING}, {}, lambda documentId: text("Minutes. " * 100))},
    ),
    "salesforce": (
        "Customer records",
        {
            "update_record": (
                "Update a record", {"objectType": STRING, "recordId": STRING, "data": {"type": "object"}}, {},
                lambda objectType, recordId, data: structured({"id": recordId, "success": True}),
            ),
        },
    ),
    "jira": (
        "Issues of projects",
        {
            "search_issues": (
                "Search issues", {"project": STRING}, {"status": STRING},
                lambda project, status=None: as_json([{k: i[k] for k in ("id", "title")} for i in ISSUES.values()]),
            ),
            "get_issue": ("One issue", {"id": STRING}, {}, lambda id: structured(ISSUES[id])),
        },
    ),
    "serena": (
        "Finds papers and code",
        {"search": ("Search papers", {"query": STRING}, {}, lambda query: wrapped(PAPERS))},
    ),
    "calendar": (
        "Appointments",
        {
            "list_events": ("List calendar events of a day", {"day": STRING}, {}, lambda day: wrapped([])),
            "create_event": ("Create an event", {"title": STRING}, {"day": STRING}, lambda title, day=None: as_json({"id": 1})),
        },
    ),
    "stub": (
        "Says what it hears",
        {"echo": ("Echo the provided message", {"message": STRING}, {}, lambda message: text(message))},
    ),
    # Names that have to change to become Python's.
    "server": (
        "Anything",
        {
            "ping": ("Answer", {}, {}, lambda: text("pong")),
            "process": ("The server's process", {}, {}, lambda: text(f"process {os.getpid()}")),
        },
    ),
    "server-name": ("Anything else", {"ping": ("Answer", {}, {}, lambda: text("pong too"))}),
    "large": (
        "A tool that takes long to describe",
        {f"tool_{n}": ("x" * 10_000, {"text": STRING}, {}, lambda text: None) for n in range(120)},
    ),
    "Odd.Names": (
        "Tools whose names are no identifiers",
        {
            name: ("Says its own name", {}, {}, lambda name=name: text(name))
            for name in ("list-things", "getUserProfile", "3d.render", "class", "a b", "a-b", "!!")
        },
    ),
}


def definition(name, description, required, optional):
    return {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": {**required, **optional}, "required": list(required)},
    }


def answer(role, log, method, params):
    description, tools = ROLES[role]
    if method == "initialize":
        return {
            "protocolVersion": params.get("protocolVersion", "2025-06-18"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": role, "version": "1"},
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": [definition(name, d, required, optional) for name, (d, required, optional, _) in tools.items()]}
    if method == "tools/call":
        name, arguments = params["name"], params.get("arguments") or {}
        if log:
            with open(log, "a", encoding="utf-8") as f:
                f.write(json.dumps({"server": role, "tool": name, "arguments": arguments}, ensure_ascii=False) + "\n")
        return tools[name][3](**arguments)
    return None


def main():
    role, log = sys.argv[1], (sys.argv[2:] or [None])[0]
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        result = answer(role, log, message["method"], message.get("params") or {})
        if result is None:
            reply["error"] = {"code": -32601, "message": "no such method"}
        else:
            reply["result"] = result
        sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

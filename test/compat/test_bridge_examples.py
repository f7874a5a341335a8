"""What users of the first code-execution bridge write runs here without a change.

Its own documentation may not be copied into this project. Its examples are here
in our own words, with the same calls on the same servers; and where
SALLYPORT_TEST_SEED_README names a copy of that documentation, every Python example
in it runs as it stands.
"""

import json
import os
import pathlib
import re
import textwrap

import pytest
import roles
from live import HERE, Live

EXAMPLES = sorted((HERE / "examples").glob("*.py"))


@pytest.fixture(scope="module")
def live(sallyport, tmp_path_factory):
    client = Live(sallyport, tmp_path_factory.mktemp("examples"))
    yield client
    client.close()


def called(server, tool, **arguments):
    return {"server": server, "tool": tool, "arguments": arguments}


MINUTES = "Minutes. Minutes. Mi"

# What each example prints, and what its servers got.
EXPECTED = {
    "files_with_a_word": (
        ["open work in /tmp/plan.txt"],
        [called("filesystem", "list_directory", path="/tmp")]
        + [called("filesystem", "read_file", path=path) for path in sorted(roles.FILES)],
    ),
    "one_result_feeds_the_next": (
        ["7 About TODO without a body"],
        [
            called("filesystem", "read_file", path="/tmp/plan.txt"),
            called("search", "search", query="TODO"),
            called("github", "create_issue", repo="me/garden", title="About TODO"),
        ],
    ),
    "text_into_a_record": (
        ["{'id': 'r-1', 'success': True}"],
        [
            called("google-drive", "get_document", documentId="d-1"),
            called("salesforce", "update_record", objectType="Meeting", recordId="r-1", data={"Notes": MINUTES + "…"}),
        ],
    ),
    "from_one_tracker_to_another": (
        ["copied AP-1 to https://example.test/me/app/7"],
        [
            called("jira", "search_issues", project="AP", status="Open"),
            called("jira", "get_issue", id="AP-1"),
            called("github", "create_issue", repo="me/app", title="Bug: Login fails", body="A Bug in the form"),
            called("jira", "get_issue", id="AP-2"),
        ],
    ),
    "three_ways_in": (
        ["pong pong too pong"],
        [called("server", "ping"), called("server-name", "ping"), called("server", "ping")],
    ),
    "search_first": (["calendar list_events - List calendar events of a day", ...], []),
    "look_around": (
        [
            f"there are: True {len(roles.ROLES)}",
            "loaded: ('stub',) ('stub',)",
            "True [('echo', 'Echo the provided message')]",
            "True ['message']",
            "True",
            "True",
            "--- PYTHON SANDBOX MANUAL ---",
        ],
        [],
    ),
    "all_at_once": (
        ["['New colours', 'Login fails']"],
        None,  # side by side: in any order
    ),
    "what_a_failure_is": (
        ["MCPError - no such file: /etc/nothing", "True no such file: /etc/nothing"],
        [called("filesystem", "read_file", path="/etc/nothing")] * 2,
    ),
    "manual": (["--- PYTHON SANDBOX MANUAL ---", ...], []),
}


def test_every_example_is_expected():
    assert {path.stem for path in EXAMPLES} == set(EXPECTED)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example(live, path):
    code = path.read_text(encoding="utf-8")
    servers = [name.strip() for name in code.splitlines()[0].removeprefix("# servers:").split(",") if name.strip()]
    result = live.run(code, servers=servers)
    assert not result.error, result
    lines, calls = EXPECTED[path.stem]
    printed = result.structured["stdout"]
    if lines[-1] is ...:
        assert printed[: len(lines) - 1] == lines[:-1]
    else:
        assert printed == lines
    made = live.calls()
    if calls is not None:
        assert made == calls


def fenced(text, language):
    """The blocks of a language, without their fences' own indentation."""
    for match in re.finditer(rf"^( *)```{language}\n(.*?)^ *```", text, re.M | re.S):
        yield textwrap.dedent(match[2])


def seed_examples():
    """(name, arguments of run_python) of each Python example: blocks of Python,
    and blocks of JSON that are such arguments."""
    text = pathlib.Path(os.environ["SALLYPORT_TEST_SEED_README"]).read_text(encoding="utf-8")
    everything = list(roles.ROLES)
    for number, code in enumerate(fenced(text, "python"), 1):
        yield f"python-{number}", {"code": code, "servers": everything}
        if "list_loaded_server_metadata" in code:
            yield f"python-{number}-with-one-server", {"code": code, "servers": ["stub"]}
            yield f"python-{number}-without-servers", {"code": code}
    for number, block in enumerate(fenced(text, "json"), 1):
        try:
            arguments = json.loads(block)
        except ValueError:
            continue
        if "code" in arguments:
            yield f"json-{number}", arguments


if "SALLYPORT_TEST_SEED_README" in os.environ:

    def test_seed_has_examples():
        assert len(list(seed_examples())) >= 8, "the document has lost its lines, or is another"

    @pytest.mark.parametrize("arguments", [pytest.param(a, id=n) for n, a in seed_examples()])
    def test_seed(live, arguments):
        live.calls()
        result = live.run(**arguments)
        made = live.calls()
        print(result.text)
        print(made)
        assert not result.error, result
        assert "stderr" not in result.structured
        assert {call["tool"] for call in made} == set(re.findall(r"mcp_\w+\.(\w+)\(", arguments["code"]))

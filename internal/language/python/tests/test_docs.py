"""Documents of tools, as they print."""

import copy

import pytest

from sallyport_guest.docs import Document, Documents, documents


def document(server="git", tool="log", **more):
    return {"server": server, "serverAlias": server, "tool": tool, "toolAlias": tool, "signature": "(n: int) -> str", **more}


LOAD = "await runtime.load_server('x')"


@pytest.mark.parametrize(
    "found, text",
    [
        ([], "no tools found"),
        ([document()], "mcp_git.log(n: int) -> str"),
        ([document(description="Show it")], "mcp_git.log(n: int) -> str  # Show it"),
        ([document(tool="list_tools", call="mcp_git['list_tools']")], "mcp_git['list_tools'](n: int) -> str"),
        ([document(warning="changed")], "mcp_git.log(n: int) -> str  # WARNING: changed"),
        (
            [document(load=LOAD), document(tool="show", load=LOAD)],
            "# loaded by the first call, or by servers=['git'] of run_python\n"
            "mcp_git.log(n: int) -> str\nmcp_git.show(n: int) -> str",
        ),
        (
            [document(load=LOAD), document("fs", "read", load=LOAD), document("db")],
            "# loaded by the first call, or by servers=['git', 'fs'] of run_python\n"
            "mcp_git.log(n: int) -> str\nmcp_fs.read(n: int) -> str\nmcp_db.log(n: int) -> str",
        ),
        (
            [document(description="One.\nTwo.", inputSchema={"type": "object"})],
            'mcp_git.log(n: int) -> str  # One.\nTwo.\ninputSchema = {"type":"object"}',
        ),
        ([{"server": "user_tools", "tool": "f", "description": "from user_tools import f; f(x)"}], "from user_tools import f; f(x)"),
    ],
)
def test_printed(found, text):
    assert repr(documents(found)) == str(documents(found)) == text
    if len(found) == 1:
        assert repr(documents(found)[0]) == text


def test_they_are_lists_and_dicts():
    found = documents([document()])
    assert found == [document()] and isinstance(found, list) and isinstance(found[0], dict)
    assert copy.deepcopy(found) == found
    assert (type(found), type(found[0])) == (Documents, Document)
    assert documents(None) is None

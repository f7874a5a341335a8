"""Roots of the official Python client are folders in the sandbox, in each of its ways
to connect, where the user allows it."""

import asyncio
import os
import pathlib

import pytest
from conftest import hubs_of
from mcp import Client, ClientSession, StdioServerParameters, stdio_client
from mcp.types import ListRootsResult, Root

WAYS = ["auto", "legacy", "2026-07-28", "session"]


def text(result):
    return "\n".join(block.text for block in result.content)


@pytest.fixture
def parameters(sallyport, folder, environment):
    return StdioServerParameters(command=sallyport, args=["serve"], env=environment, cwd=str(folder))


def allow(environment):
    config = pathlib.Path(environment["HOME"], ".config/sallyport/config.yaml")
    config.parent.mkdir(parents=True)
    config.write_text("files:\n  roots: true\n")


class Roots:
    """Answers the server's questions."""

    def __init__(self, *folders):
        self.folders, self.asked = list(folders), 0

    async def __call__(self, context):
        self.asked += 1
        return ListRootsResult(roots=[Root(uri=pathlib.Path(f).as_uri()) for f in self.folders])


def talk(way, parameters, roots, scenario):
    async def main():
        if way == "session":
            async with stdio_client(parameters) as (read, write), ClientSession(read, write, list_roots_callback=roots) as session:
                await session.initialize()
                return await scenario(session)
        async with Client(parameters, mode=way, list_roots_callback=roots) as client:
            return await scenario(client)

    return asyncio.run(asyncio.wait_for(main(), 120))


async def python(client, code, **arguments):
    return text(await client.call_tool("run_python", {"code": code, **arguments}))


@pytest.mark.parametrize("way", WAYS)
def test_roots_are_folders(way, parameters, folder, environment):
    allow(environment)
    os.mkdir(folder / "data of mine")
    pathlib.Path(folder, "data of mine", "a.csv").write_text("x\n5\n")
    os.chmod(folder / "data of mine" / "a.csv", 0o600)
    os.mkdir(pathlib.Path(environment["HOME"], ".ssh"))
    roots = Roots(folder / "data of mine", environment["HOME"])

    async def scenario(client):
        first = await python(client, "print(open('/roots/data-of-mine/a.csv').read())")
        hint = await python(client, f"open({str(folder / 'data of mine' / 'a.csv')!r})")
        written = await python(client, "open('/roots/data-of-mine/b.csv', 'w')")
        other = await python(client, "import os; print(sorted(os.listdir('/roots')))", session="other")
        return first, hint, written, other

    first, hint, written, other = talk(way, parameters, roots, scenario)
    assert first.startswith("x\n5"), first
    assert "folders of the user: /roots/data-of-mine (read-only)" in first
    assert first.count("root left out: ") == 1, first
    assert "Hint: " in hint, hint
    assert "is /roots/data-of-mine/a.csv in the sandbox" in hint
    assert "/roots/data-of-mine is a folder of the user and read-only: write to /workspace" in written
    assert "root left out: " not in hint + written, "once in each session"
    assert other.startswith("['data-of-mine']"), other
    assert not (folder / "data of mine" / "b.csv").exists()
    assert roots.asked >= 1


def test_roots_that_change_are_those_of_new_sessions(sallyport, parameters, folder, environment):
    allow(environment)
    for name in ("one", "two"):
        os.mkdir(folder / name)
    roots = Roots(folder / "one")
    code = "import os; print(sorted(os.listdir('/roots')))"

    async def scenario(client):
        first = await python(client, code)
        roots.folders = [folder / "two"]
        await client.send_roots_list_changed()
        return first, await python(client, code), await python(client, code), await python(client, code, session="new")

    first, second, third, new = talk("session", parameters, roots, scenario)
    assert first.startswith("['one']"), first
    assert second.startswith("['one']"), second
    assert "/roots/two" in second
    assert third == "['one']", "one note is enough"
    assert new.startswith("['two']"), new
    assert hubs_of(sallyport, environment), "the hub has asked"


def test_roots_need_the_setting(parameters, folder, environment):
    roots = Roots(folder)

    async def scenario(client):
        return await python(client, "import os; print(os.path.exists('/roots'))")

    assert talk("auto", parameters, roots, scenario) == "False"
    assert roots.asked == 0

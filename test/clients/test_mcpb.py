"""The bundle for Claude Desktop, with the format's own tool: it is valid, and what
it unpacks to starts as the manifest says, whatever the form holds."""

import asyncio
import json
import pathlib
import subprocess

import pytest
from conftest import ROOT
from mcp import Client, StdioServerParameters

# The format's own code makes a command line of a manifest and the form's values.
CONFIGURE = """
import {readFileSync} from "node:fs";
import {getMcpConfigForManifest} from "@anthropic-ai/mcpb";
const [folder, userConfig, platform] = process.argv.slice(1);
Object.defineProperty(process, "platform", {value: platform});
console.log(JSON.stringify(await getMcpConfigForManifest({
  manifest: JSON.parse(readFileSync(folder + "/manifest.json", "utf8")), extensionPath: folder,
  systemDirs: {HOME: "/nowhere"}, userConfig: JSON.parse(userConfig), pathSeparator: "/",
})));
"""


@pytest.fixture(scope="module")
def bundle(sallyport, tmp_path_factory):
    """The bundle, with this machine's executable for Linux alone."""
    folder = tmp_path_factory.mktemp("bundle")
    other = folder / "other"
    other.write_bytes(b"an executable of another system\n")
    path = folder / "sallyport.mcpb"
    subprocess.run(["go", "run", "./scripts/mcpb", str(path), "v1.2.3", sallyport, str(other), str(other)], cwd=ROOT, check=True)
    return path


@pytest.fixture
def tool(npm, node22):
    def run(*words):
        done = subprocess.run([node22, str(npm / ".bin/mcpb"), *map(str, words)], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def unpacked(tool, bundle, tmp_path):
    tool("unpack", bundle, tmp_path / "unpacked")
    return tmp_path / "unpacked"


@pytest.fixture
def configure(npm, node22):
    def run(folder, form, platform="linux"):
        done = subprocess.run(
            [node22, "--input-type=module", "-e", CONFIGURE, str(folder), json.dumps(form), platform],
            cwd=npm.parent, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_real_client_mcpb_is_valid(tool, unpacked):
    tool("validate", unpacked / "manifest.json")
    assert json.loads((unpacked / "manifest.json").read_text())["version"] == "1.2.3"
    for name in ("linux/sallyport", "darwin/sallyport", "win32/sallyport.exe"):
        assert (unpacked / "server" / name).stat().st_mode & 0o111, f"{name} cannot be executed"


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_real_client_mcpb_platforms(unpacked, configure, platform):
    config = configure(unpacked, {}, platform)
    assert config["command"].startswith(f"{unpacked}/server/{platform}/sallyport") and config["args"] == ["serve"]
    assert pathlib.Path(config["command"]).is_file()
    assert set(config["env"].values()) == {""}, "a field that is left alone is not empty"


FORMS = {
    "untouched": {},
    "emptied": None,
    "filled in": {"memory": "256m", "timeout": "7s", "allowed_servers": "notes", "engine": "gvisor", "runpod_key": "rpa_secret"},
}


@pytest.mark.parametrize("form", FORMS)
def test_real_client_mcpb_starts(unpacked, configure, environment, tmp_path, form):
    values = FORMS[form]
    if values is None:
        manifest = json.loads((unpacked / "manifest.json").read_text())
        values = dict.fromkeys(manifest["user_config"], "")
    elif values:
        definitions = tmp_path / "servers.json"
        definitions.write_text('{"mcpServers": {"notes": {"command": "true"}, "others": {"command": "true"}}}')
        values = {"servers_file": str(definitions)} | values
    config = configure(unpacked, values)
    parameters = StdioServerParameters(command=config["command"], args=config["args"], env=environment | config["env"], cwd=str(tmp_path))

    async def main():
        async with Client(parameters) as client:
            code = "print(discovered_servers())\n[l for l in capability_summary().splitlines() if l.startswith('Limits')]"
            return await client.call_tool("run_python", {"code": code})

    result = asyncio.run(asyncio.wait_for(main(), 60))
    text = "\n".join(block.text for block in result.content)
    assert not result.is_error, text
    assert "rpa_secret" not in text
    if form == "filled in":
        assert text.startswith("('notes',)\n") and "7 s of the code's own time" in text and "256 MiB of memory" in text, text
    else:
        assert text.startswith("()\n") and "30 s of the code's own time" in text and "512 MiB of memory" in text, text

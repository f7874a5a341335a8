"""A file that is too large for memory comes out of the sandbox: run_python leaves it and
`sallyport artifacts save` writes it, each within a bound of memory."""

import asyncio
import hashlib
import pathlib
import re
import subprocess

import engine

from mcp import Client, StdioServerParameters

SIZE = 256 << 20 if engine.NAME else 1 << 30  # WebAssembly computes its digest slowly
MORE = 64 << 20  # of memory, besides what a small file needs
LEAVE = """
import hashlib, random
digest, block = hashlib.sha256(), random.randbytes(1 << 20)
with open("%(name)s", "wb") as f:
    for n in range(%(size)d >> 20):
        part = n.to_bytes(8, "big") + block[8:]
        f.write(part)
        digest.update(part)
digest.hexdigest()
"""


def most(pid):
    """The most memory that a process has had, in bytes."""
    return int(re.search(r"^VmHWM:\s+(\d+) kB", pathlib.Path("/proc", str(pid), "status").read_text(), re.M)[1]) * 1024


def serving(sallyport, environ):
    """The process `sallyport serve` of a test."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().split(b"\0")
            mine = b"HOME=" + environ["HOME"].encode() in (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if mine and line[:2] == [sallyport.encode(), b"serve"]:
            return int(folder.name)
    raise AssertionError("no process serves")


def save(sallyport, environ, address, size):
    """The digest of a saved file, and the most memory that the command had when all but
    what a pipe holds was written."""
    command = [sallyport, "artifacts", "save", address, "-o", "-"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        digest, memory = hashlib.sha256(), 0
        while True:
            part = process.stdout.read(min(1 << 20, max(size - (1 << 20), 1)))
            size -= len(part)
            digest.update(part)
            if size <= 1 << 20 and not memory:
                memory = most(process.pid)
            if not part:
                break
        error = process.stderr.read()
    assert process.returncode == 0, error
    return digest.hexdigest(), memory


def test_a_large_file(sallyport, environment):
    arguments = ["serve", "--set", "limits.workspace=2g", "--set", "limits.memory=3g", "--set", "timeouts.default=2m", "--set", "hub.enabled=false"]

    environ = environment | {"SALLYPORT_OUTPUT_STRUCTURED": "always"}

    async def main():
        async with Client(StdioServerParameters(command=sallyport, args=arguments, env=environ)) as client:
            seen = []
            for name, size in (("small.bin", 2 << 20), ("large.bin", SIZE)):
                result = await client.call_tool("run_python", {"code": LEAVE % {"name": name, "size": size}, "timeout": 120})
                assert not result.is_error, result
                (kept,) = result.structured_content["artifacts"]
                assert (kept["path"], kept["size"]) == (name, size)
                want = result.content[0].text.splitlines()[0].strip("'")
                address = kept["uri"].removeprefix("sallyport://artifacts/")
                digest, memory = await asyncio.to_thread(save, sallyport, environment, address, size)
                assert digest == want, name
                seen.append((most(serving(sallyport, environment)), memory))
            return seen

    small, large = asyncio.run(asyncio.wait_for(main(), 600))
    for what, before, after in zip(("serve", "artifacts save"), small, large):
        assert after < before + MORE, "%s: %d MB, and %d MB for 2 MB" % (what, after >> 20, before >> 20)

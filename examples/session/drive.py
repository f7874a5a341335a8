"""An MCP client that plays the three calls of this folder in one session.

    python session/drive.py path/to/sallyport

Needs the official client: pip install mcp==2.3.0
"""

import asyncio
import pathlib
import sys

from mcp import Client, StdioServerParameters

HERE = pathlib.Path(__file__).resolve().parent

CALLS = [
    ("1_load.py", ["filesystem"]),
    ("2_count.py", []),
    ("3_answer.py", []),
]


async def main(sallyport, config):
    server = StdioServerParameters(
        command=sallyport,
        args=["serve", "--servers-config", config],
        cwd=str(HERE.parent),
    )
    async with Client(server) as client:
        for name, servers in CALLS:
            arguments = {"code": (HERE / name).read_text()}
            if servers:
                arguments["servers"] = servers
            result = await client.call_tool("run_python", arguments)
            print(f"--- {name}")
            for block in result.content:
                print(block.text)
            if result.is_error:
                return 1
    return 0


if __name__ == "__main__":
    binary = str(pathlib.Path(sys.argv[1]).resolve())
    servers_config = str(pathlib.Path(sys.argv[2]).resolve()) if len(sys.argv) > 2 else str(HERE.parent / "servers.json")
    sys.exit(asyncio.run(main(binary, servers_config)))

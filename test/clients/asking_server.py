"""An MCP server whose tools ask back, written with the official Python SDK.

    asking_server.py handshake|stateless RECORD          over stdio
    asking_server.py handshake|stateless RECORD ADDRESS  over streamable HTTP; writes its address into that file

Each era alone: the other's first request is refused. Every answer is a line of
RECORD, and not in results, so that a test can look for places where it is not to be."""

import json
import os
import pathlib
import socket
import sys
import warnings

import anyio
import pydantic
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import METHOD_NOT_FOUND, InputRequest, InputRequiredResult, Result

ERA, RECORD, *ADDRESS = sys.argv[1:]
REFUSED = {"handshake": "server/discover", "stateless": "initialize"}[ERA]
warnings.simplefilter("ignore")  # sampling, roots and log messages are deprecated


async def one_era(ctx, call_next):
    if ctx.method == REFUSED:
        raise MCPError(code=METHOD_NOT_FOUND, message=f"{REFUSED} is not known here")
    return await call_next(ctx)


server = MCPServer("asking", middleware=[one_era])
parse = pydantic.TypeAdapter(InputRequest).validate_python


class Raw(Result):
    """Any result, as it came."""

    model_config = pydantic.ConfigDict(extra="allow")


def record(**line):
    with open(RECORD, "a", encoding="utf-8") as file:
        print(json.dumps(line), file=file)


def plain(model):
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


@server.tool()
async def capabilities(ctx: Context) -> dict:
    """What the client says that it can be asked."""
    return plain(ctx.client_capabilities) if ctx.client_capabilities else {}


@server.tool()
async def ask(rounds: list[dict[str, dict]], ctx: Context) -> str | InputRequiredResult:
    """Asks what it is told to: in each round, by name, {"method": ..., "params": ...}."""
    if ERA == "handshake":
        for requests in rounds:
            for name, request in requests.items():
                try:
                    answer = await ctx.session.send_request(parse(request), Raw, metadata=ServerMessageMetadata(related_request_id=ctx.request_id))
                    record(name=name, answer=plain(answer))
                except MCPError as e:
                    record(name=name, error=e.error.message)
        return "asked"
    # The SDK seals the state, and refuses one that is not its own or is another call's.
    done = int(ctx.request_state or 0)
    if ctx.request_state:
        assert set(ctx.input_responses) == set(rounds[done - 1]), "every request of the round has an answer"
        for name, answer in ctx.input_responses.items():
            record(name=name, answer=plain(answer))
    if done == len(rounds):
        return "asked"
    return InputRequiredResult(input_requests={name: parse(r) for name, r in rounds[done].items()}, request_state=str(done + 1))


@server.tool()
async def work(steps: int, ctx: Context) -> str:
    """Reports progress and logs, until the file RECORD.seen is there."""
    for i in range(1, steps + 1):
        await ctx.report_progress(i, steps, f"step {i} of the work")
        await ctx.info(f"did step {i}")
    while not os.path.exists(RECORD + ".seen"):
        await anyio.sleep(0.05)
    await ctx.session.send_log_message("warning", {"left": 0}, logger="worker", related_request_id=ctx.request_id)
    return "worked"


def main():
    if ADDRESS:
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(server.streamable_http_app(), log_level="warning")
        pathlib.Path(ADDRESS[0]).write_text(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp\n")
        uvicorn.Server(config).run(sockets=[listener])
        return
    # On one connection the SDK speaks what its first request speaks. It would read
    # descriptor 0 past what was peeked at; another one it takes as it is.
    sys.stdin = open(os.dup(0), encoding="utf-8")
    if ERA == "stateless" and b'"initialize"' in sys.stdin.buffer.peek():
        request = json.loads(sys.stdin.buffer.readline())
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": {"code": METHOD_NOT_FOUND, "message": "initialize is not known here"}}), flush=True)
        return
    server.run()


main()

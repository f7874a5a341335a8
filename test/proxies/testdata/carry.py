# Run by TestWhatResultsCarry.
text, image, audio, note, link = await mcp_carrier.draw()
assert text.text == "see"
assert repr(image) == "<image image/png, 8 bytes: .save(path), .data>"
assert image.save("drawings/a.png") == "drawings/a.png"
assert open("/workspace/drawings/a.png", "rb").read() == image.data == b"\x89PNG\r\n\x1a\n"
__import__("os").remove("drawings/a.png")  # else it is said to be lost
assert audio.data == bytes(range(3)) and audio.mime_type == "audio/wav"
assert (note.text, note.name, note.uri) == ("# b", "b.md", "note:///a/b.md")
assert "iVBOR" not in repr(await call_tool("carrier", "draw"))
(read,) = await read_resource("carrier", link)
assert read.data == bytes(range(3)) and read_resource_sync("carrier", link.uri)[0].text is None
assert [r.name for r in await list_resources("carrier")] == ["c", "d"]
assert list_resource_templates_sync("carrier")[0].uriTemplate == "note:///{x}"
prompt = await get_prompt("carrier", "p", {"b": "1", "a": "ä"})
assert prompt.messages[0].content.text == r'{"name":"p","arguments":{"b":"1","a":"\u00e4"}}', prompt
try:
    await runtime.list_prompts("carrier")
except MCPError as e:
    assert str(e) == 'MCP server "carrier": the server does not offer this', e

from mcp.runtime import *
from mcp import runtime as imported

assert imported is runtime
for name in runtime.__all__:
    assert globals()[name] is getattr(runtime, name), name
manual = capability_summary()
assert manual.startswith("--- PYTHON SANDBOX MANUAL ---"), manual
for part in ("mcp_carrier (1 tools)", "Limits: 30 s of", "512 MiB of memory", "128 MiB of files in /workspace"):
    assert part in manual, (part, manual)
print("all of it")

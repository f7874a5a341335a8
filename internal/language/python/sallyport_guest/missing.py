"""What hints know about packages that code lacks."""

from . import BUILTINS as __builtins__

from .errors import MCPError

CLIENTS = ("requests", "httpx", "aiohttp", "urllib3", "websockets", "boto3", "openai", "anthropic", "selenium", "playwright")
INSTEAD = {
    "pandas": "csv, sqlite3 and statistics", "polars": "csv, sqlite3 and statistics", "numpy": "math, statistics and array",
    "yaml": "json and tomllib", "dateutil": "datetime and zoneinfo", "pytz": "zoneinfo", "bs4": "html.parser", "lxml": "xml.etree",
}  # fmt: skip
TOOL_INSTEAD = "the sandbox has no network. Call a server's tool instead: await search_tool_docs('what it should do') finds one"


def package_facts(session, module, package):
    """Ask the host which environments have a module, and whether code may install the
    package."""
    from . import codec, install

    try:
        found = session.channel.request_sync("package_facts", codec.encode({"module": module[:100], "package": package[:100]}))
    except MCPError:  # a host that does not know, or a forked child
        found = None
    found = found if isinstance(found, dict) else {}
    return {"environments": [], "this": "", "install": "none", "command": False, **found, **install.listed(found, module)}

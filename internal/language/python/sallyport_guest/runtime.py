"""What user code finds in mcp.runtime, and in its own namespace.

A helper is a method of Runtime that NAMES lists. The first line of its
documentation, after its signature, is its line in capability_summary. A helper
whose name ends in _sync and whose documentation begins with "The same" is mentioned
in the line of its counterpart.

Every session imports this when it starts: what a helper needs is imported when it
is called.
"""

from . import BUILTINS as __builtins__

from . import codec
from .errors import MCPError

# In the order of the first code-execution bridge's documentation, then ours.
NAMES = (
    "call_tool",
    "list_tools",
    "list_tools_sync",
    "list_servers",
    "list_servers_sync",
    "discovered_servers",
    "describe_server",
    "list_loaded_server_metadata",
    "query_tool_docs_sync",
    "query_tool_docs",
    "search_tool_docs_sync",
    "search_tool_docs",
    "capability_summary",
    "save_tool",
    "save_memory",
    "load_memory",
    "delete_memory",
    "list_memories",
    "update_memory",
    "memory_exists",
    "get_memory_info",
    "load_server",
    "load_server_sync",
    "find_servers",
    "request_server",
    "request_server_sync",
    "list_resources",
    "list_resources_sync",
    "list_resource_templates",
    "list_resource_templates_sync",
    "read_resource",
    "read_resource_sync",
    "list_prompts",
    "list_prompts_sync",
    "get_prompt",
    "get_prompt_sync",
    "install_packages",
    "install_packages_sync",
    "output",
    "cancel",
)

# Helpers that user code reaches as runtime.NAME alone: their names are too
# common for its own namespace.
APART = ("output", "cancel")


def names(session):
    """The attributes of the module."""
    runtime = Runtime(session)
    attributes = {"MCPError": MCPError}
    for name in NAMES:
        getattr(Runtime, name).__module__ = "mcp.runtime"
        attributes[name] = getattr(runtime, name)
    attributes["__all__"] = list(attributes)
    attributes["__doc__"] = "Helpers for the use of MCP servers from inside the sandbox."
    return attributes


class Runtime:
    __module__ = "mcp.runtime"

    def __init__(self, session):
        self._session = session

    def __repr__(self):
        return "mcp.runtime"

    @property
    def _registry(self):
        return self._session.registry

    # Calling.

    async def call_tool(self, server, tool, arguments=None, *, fresh=False):
        """The raw result as a dict, isError included; fresh=True: not one kept from an earlier call."""
        from . import values

        model = await self._registry.need(server)
        if not isinstance(tool, str) or not tool:
            raise MCPError("Missing tool name", kind="invalid", server=model.name)
        if not isinstance(arguments, (dict, type(None))):
            raise MCPError("Arguments must be an object", kind="invalid", server=model.name, tool=tool)
        found = model.find(tool, MCPError)
        tool = tool if found is None else found._name
        params = '{"server":%s,"tool":%s,"arguments":%s%s}' % (
            codec.quote(model.name),
            codec.quote(str(tool)),
            values.encode("runtime.call_tool", arguments or {}),
            codec.FRESH if fresh else "",
        )
        try:
            result = values.raw(await self._session.channel.request("call_tool", params), model.name, found and found.__qualname__)
        except MCPError as e:
            if found is None and e.kind == "server":
                e.args = ("%s: %s" % (e, model.lacks(tool)),)
            raise
        if found is None and isinstance(result, dict) and result.get("isError"):
            from . import advice

            self._session.streams.say(advice.line(model.lacks(tool)))
        return result

    async def list_tools(self, server):
        """Its tools as it describes them itself, schemas included."""
        return await (await self._registry.need(server)).proxy.list_tools()

    def list_tools_sync(self, server=None):
        """Its tools as {name, alias, description, input_schema}."""
        from .docs import tool_metadata

        if server is None:
            raise MCPError("list_tools_sync(server) requires a server name")
        return tuple(tool_metadata(tool) for tool in self._registry.need_sync(server).tools)

    # Which servers there are.

    async def list_servers(self):
        """The names of the servers of this execution."""
        return tuple(sorted(self._registry.granted))

    def list_servers_sync(self):
        """The same."""
        return tuple(sorted(self._registry.granted))

    def discovered_servers(self, detailed=False):
        """All configured servers; detailed=True adds descriptions."""
        infos = self._registry.known()
        if not detailed:
            return tuple(info["name"] for info in infos)
        told = {info["name"]: info for info in self._ask_sync("servers", "{}") or ()}
        return tuple(told.get(info["name"], info) for info in infos)

    def describe_server(self, name):
        """{name, alias, tools, cwd} of a loaded server."""
        from .docs import server_metadata

        server = self._registry.get(name)
        if server is None:
            raise MCPError("Server %r is not loaded" % (name,), kind="denied", server=name)
        return server_metadata(server)

    def list_loaded_server_metadata(self):
        """That of all loaded servers."""
        from .docs import server_metadata

        return tuple(server_metadata(self._registry.servers[name]) for name in self._registry.granted)

    async def load_server(self, name):
        """Load a server now, and bind mcp_<alias>."""
        return await self._registry.load(self._registry.exists(name) or name)

    def load_server_sync(self, name):
        """The same."""
        return self._registry.load_sync(self._registry.exists(name) or name)

    def find_servers(self, query=""):
        """Also disabled, offered and requested ones: [{name, state, how, ...}]."""
        from . import find

        return find.find(self._session, query)

    async def request_server(self, name, definition):
        """Ask the user for a server: {"command", "args"} or {"url"}."""
        from . import find

        params = find.request_params(name, definition)
        return self._registry.added(await self._session.channel.request("request_server", params))

    def request_server_sync(self, name, definition):
        """The same."""
        from . import find

        params = find.request_params(name, definition)
        return self._registry.added(self._session.channel.request_sync("request_server", params))

    # Documentation of tools.

    async def query_tool_docs(self, server, tool=None, detail="summary"):
        """All tools of a server, or one; detail="full" adds schemas."""
        from . import docs

        found = docs.documents(await self._ask("query_tool_docs", docs.query_params(self._registry, server, tool, detail)))
        if found is None:
            found = docs.local(self._registry, server, tool, detail)
        if found is None:
            raise self._unknown(server)
        if tool is None:
            return found
        if not found:
            raise docs.not_found(tool, server)
        return found[0]

    def query_tool_docs_sync(self, server, tool=None, detail="summary"):
        """The same, but always a list."""
        from . import docs

        found = docs.documents(self._ask_sync("query_tool_docs", docs.query_params(self._registry, server, tool, detail)))
        if found is None:
            found = docs.local(self._registry, server, tool, detail)
        if found is None:
            raise self._unknown(server)
        return found

    async def search_tool_docs(self, query, *, limit=5, detail="summary"):
        """Find tools of all servers by what they do, best first."""
        from . import docs

        params, limit = docs.search_params(query, limit, detail)
        found = docs.documents(await self._ask("search_tool_docs", params))
        return docs.search(self._registry, query, limit, detail) if found is None else found

    def search_tool_docs_sync(self, query, *, limit=5, detail="summary"):
        """The same."""
        from . import docs

        params, limit = docs.search_params(query, limit, detail)
        found = docs.documents(self._ask_sync("search_tool_docs", params))
        return docs.search(self._registry, query, limit, detail) if found is None else found

    # What servers have besides tools.

    async def list_resources(self, server):
        """A server's resources: {uri, name, mimeType, ...} of each."""
        from . import features

        return await features.ask(self._session, "list_resources", features.Lists, server)

    def list_resources_sync(self, server):
        """The same."""
        from . import features

        return features.ask_sync(self._session, "list_resources", features.Lists, server)

    async def list_resource_templates(self, server):
        """A server's templates of resource addresses."""
        from . import features

        return await features.ask(self._session, "list_resource_templates", features.Lists, server)

    def list_resource_templates_sync(self, server):
        """The same."""
        from . import features

        return features.ask_sync(self._session, "list_resource_templates", features.Lists, server)

    async def read_resource(self, server, uri):
        """What an address leads to, a list: each has .text or .data, .mime_type, .uri, .save(path)."""
        from . import features

        return await features.ask(self._session, "read_resource", features.Reading, server, uri)

    def read_resource_sync(self, server, uri):
        """The same."""
        from . import features

        return features.ask_sync(self._session, "read_resource", features.Reading, server, uri)

    async def list_prompts(self, server):
        """A server's prompts: {name, description, arguments} of each."""
        from . import features

        return await features.ask(self._session, "list_prompts", features.Lists, server)

    def list_prompts_sync(self, server):
        """The same."""
        from . import features

        return features.ask_sync(self._session, "list_prompts", features.Lists, server)

    async def get_prompt(self, server, name, arguments=None):
        """A prompt filled in: {description, messages}."""
        from . import features

        return await features.ask(self._session, "get_prompt", features.Prompting, server, name, arguments)

    def get_prompt_sync(self, server, name, arguments=None):
        """The same."""
        from . import features

        return features.ask_sync(self._session, "get_prompt", features.Prompting, server, name, arguments)

    # Packages.

    async def install_packages(self, *packages):
        """Add packages to this session: "pandas>=2", "httpx"."""
        from . import install

        return await install.install(self._session, install.requested(packages))

    def install_packages_sync(self, *packages):
        """The same."""
        from . import install

        return install.install_sync(self._session, install.requested(packages))

    # The manual.

    def capability_summary(self):
        """This text."""
        from .manual import manual

        return manual(self._session, self._ask_sync, Runtime, NAMES, APART)

    # Earlier calls, and other sessions.

    def output(self, call=-1, stream=""):
        """All that an earlier call printed, as it was printed (-1: the previous one; 3: <cell 3>), and a mark where some is missing; stream="stderr" for one stream."""
        if not isinstance(call, int) or call >= 2**63 or call < -(2**63):
            raise MCPError("call must be an integer", kind="invalid")
        if stream not in ("", "stdout", "stderr"):
            raise MCPError("stream must be 'stdout' or 'stderr'", kind="invalid")
        return self._ask_sync("output", '{"execution":%d,"stream":%s}' % (call, codec.quote(stream)))

    def cancel(self, session="default"):
        """Stop the code that runs in the background of another session; says whether there was any."""
        if not isinstance(session, str):
            raise MCPError("session must be a string", kind="invalid")
        return bool(self._ask_sync("cancel", '{"session":%s}' % codec.quote(session)))

    # What outlives the session.

    def save_tool(self, func):
        """Keep a function for every later session: from user_tools import <name>."""
        from . import saved

        return saved.save(self._session, func)

    def save_memory(self, key, value, *, metadata=None):
        """Keep a JSON value under a key for every later session."""
        from . import memory

        return memory.save(self._session, key, value, metadata)

    def load_memory(self, key, *, default=None):
        """The value, or default."""
        from . import memory

        return memory.load(self._session, key, default)

    def delete_memory(self, key):
        """Remove a key; says whether it was there."""
        from . import memory

        return memory.delete(self._session, key)

    def list_memories(self):
        """All keys: [{key, metadata, created_at, updated_at}]."""
        from . import memory

        return memory.listed(self._session)

    def update_memory(self, key, updater):
        """Replace a value by updater(value), atomically; a missing one is None. Returns the new one."""
        from . import memory

        return memory.update(self._session, key, updater)

    def memory_exists(self, key):
        """Whether there is such a key."""
        from . import memory

        return memory.exists(self._session, key)

    def get_memory_info(self, key):
        """{key, value, metadata, created_at, updated_at}, or None."""
        from . import memory

        return memory.info(self._session, key)

    # Help.

    def _unknown(self, server):
        return MCPError(self._registry.not_available(server), kind="denied", server=server)

    async def _ask(self, method, params):
        """Return the host's answer, or None if it has none."""
        try:
            return await self._session.channel.request(method, params)
        except MCPError as e:
            if e.kind != "unsupported":
                raise
            return None

    def _ask_sync(self, method, params):
        try:
            return self._session.channel.request_sync(method, params)
        except MCPError as e:
            if e.kind != "unsupported":
                raise
            return None

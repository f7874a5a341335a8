"""What servers have besides tools: resources and prompts."""

from . import BUILTINS as __builtins__

from . import codec, values
from .content import Content
from .errors import ArgumentError


class Lists:
    """The lists of a server, and the members of each entry that code gets."""

    def __init__(self, name):
        self.name = name

    def params(self):
        return '{"server":%s}' % codec.quote(self.name)

    def value(self, result):
        return result


class Reading:
    """read_resource. It returns a list, because one address may lead to several
    things."""

    def __init__(self, name, uri):
        self.name = name
        # Lists and results contain the address.
        self.uri = getattr(uri, "uri", None) if isinstance(uri, dict) else uri
        if not isinstance(self.uri, str) or not self.uri:
            raise ArgumentError("read_resource: the address of a resource must be str, not %s" % type(uri).__name__, kind="invalid")

    def params(self):
        return '{"server":%s,"uri":%s}' % (codec.quote(self.name), codec.quote(self.uri))

    def value(self, result):
        found = result.get("contents") if isinstance(result, dict) else None
        if isinstance(found, (str, dict)):
            found = [found]
        if not isinstance(found, list):
            return []
        found = [{"uri": self.uri, "text": item} if isinstance(item, str) else item for item in found]
        return [Content(item, self.name) for item in found if isinstance(item, dict)]


class Prompting:
    def __init__(self, name, prompt, arguments):
        self.name = name
        self.prompt = prompt
        self.arguments = {} if arguments is None else arguments
        if not isinstance(self.arguments, dict):
            raise ArgumentError("get_prompt: Arguments must be an object", kind="invalid")
        for key, value in self.arguments.items():
            if not isinstance(value, str):
                raise ArgumentError(
                    "get_prompt: argument %r must be str, like all arguments of a prompt, not %s" % (key, type(value).__name__), kind="invalid"
                )

    def params(self):
        arguments = values.encode("get_prompt", self.arguments)
        return '{"server":%s,"name":%s,"arguments":%s}' % (codec.quote(self.name), codec.quote(str(self.prompt)), arguments)

    def value(self, result):
        messages = result.get("messages") if isinstance(result, dict) else None
        if isinstance(messages, dict):
            messages = result["messages"] = [messages]
        for message in messages if isinstance(messages, list) else ():
            if isinstance(message, dict) and isinstance(message.get("content"), str):
                message["content"] = values.block(message["content"])
            elif isinstance(message, dict) and isinstance(message.get("content"), dict):
                (message["content"],) = values.objects([message["content"]], self.name)
        return result


async def ask(session, method, make, server, *args):
    wanted = make((await session.registry.need(server)).name, *args)
    return wanted.value(await session.channel.request(method, wanted.params(), values.decode))


def ask_sync(session, method, make, server, *args):
    wanted = make(session.registry.need_sync(server).name, *args)
    return wanted.value(session.channel.request_sync(method, wanted.params(), values.decode))

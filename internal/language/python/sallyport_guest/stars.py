"""from module import *, when a server or earlier code chose the names: one called
open or print must not hide what code means by it."""

from . import BUILTINS as __builtins__

import builtins


def names(session, found, mine, module, instead):
    """Return as __all__ those of the found names that hide nothing else, and list the
    others on standard error. mine says whether a value in the namespace came from this
    module before."""
    namespace = session.namespace
    taken = [name for name in found if hasattr(builtins, name) or name in namespace and not mine(namespace[name])]
    # An import asks for __all__ more than once.
    news = session.channel.execution, module, tuple(taken)
    if taken and vars(session).get("starred") != news:
        session.starred = news
        shown = ", ".join(taken[:20]).encode("ascii", "backslashreplace").decode()
        more = " and %d more" % (len(taken) - 20) if len(taken) > 20 else ""
        session.streams.say(
            "sallyport: from %s import * leaves out %s%s: the name is taken; write %s\n" % (module, shown, more, instead)
        )
    return [name for name in found if name not in taken]

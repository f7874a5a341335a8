"""from module import *, where a server or earlier code has chosen the names: one
called open or print must not take the place of what code means by it."""

from . import BUILTINS as __builtins__

import builtins


def names(session, found, mine, module, instead):
    """Those of the names found that take nothing else's place, as __all__. The
    others are told. mine says whether a value of the user's namespace came from
    this module before."""
    namespace = session.namespace
    taken = [name for name in found if hasattr(builtins, name) or name in namespace and not mine(namespace[name])]
    # An import asks for __all__ more than once.
    news = session.channel.execution, module, tuple(taken)
    if taken and vars(session).get("starred") != news:
        session.starred = news
        shown = ", ".join(taken[:20]).encode("ascii", "backslashreplace").decode()
        more = " and %d more" % (len(taken) - 20) if len(taken) > 20 else ""
        session.streams.say(
            "sallyport: from %s import * leaves out %s%s: something else has the name; write %s\n" % (module, shown, more, instead)
        )
    return [name for name in found if name not in taken]

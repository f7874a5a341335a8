"""The form of a hint, and the one that a call gives before it is sent."""

from . import BUILTINS as __builtins__

from .errors import similar

MAX_HINT = 600


def line(text):
    return "Hint: %s\n" % " ".join(text.split())[:MAX_HINT]


MAX_UNLISTED = 3  # in one execution


def tell_unlisted(session, label, parameters, arguments):
    """Add the hint for an argument that the server probably ignores."""
    for name in arguments:
        if name not in parameters.listed and (label, name) not in session.told and len(session.told) < MAX_UNLISTED:
            session.told += ((label, name),)
            near = similar(name, parameters.order) or " (it has: %s)" % ", ".join(parameters.order[:20])
            session.streams.say(line("%s has no argument %r%s; the server may ignore it" % (label, name, near)))

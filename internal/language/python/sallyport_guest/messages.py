"""Control frames: what the interpreter and the host say to each other."""

from . import BUILTINS as __builtins__

import sys

PROTOCOL = 1


def parsed(text, decode):
    """Parse a frame. It is JSON, whatever the interpreter's limits say."""
    try:
        return decode(text)
    except ValueError:
        return decode.loose(text)


def ready_frame():
    version = "%d.%d.%d" % sys.version_info[:3]
    return '{"type":"ready","protocol":%d,"runtime":"Python %s"}' % (PROTOCOL, version)


def call_frame(number, run, method, params):
    return '{"type":"call","id":%d,"run":%d,"method":"%s","params":%s}' % (number, run, method, params)


def cancel_frame(number):
    return '{"type":"cancel","id":%d}' % number


def behind_frame(run, calls):
    return '{"type":"behind","run":%d,"calls":%d}' % (run, calls)


def done_frame(run, status, code, more):
    return '{"type":"done","id":%d,"status":"%s","exitCode":%d%s}' % (run, status, code, more)


def framed(text):
    body = text.encode("ascii")
    return len(body).to_bytes(4, "big") + body

"""The frames, against the goldens that the Go tests read."""

import os
import threading

import pytest

from sallyport_guest import artifacts, channel, codec, execute, frames, init, messages, output, session

EXPECTED = {
    "exec": {"type": "exec", "id": 1, "nonce": "0123abcd", "code": "print(1+1)"},
    "exec-script": {"type": "exec", "id": 3, "nonce": "n", "code": "1", "filename": "a.py", "script": True},
    "exec-stdin": {"type": "exec", "id": 5, "nonce": "n", "code": "1", "args": ["--x"], "stdin": True},
    "exec-task": {"type": "exec", "id": 4, "nonce": "n", "code": "", "task": "take_out"},
    "reply": {"type": "reply", "id": 7, "ok": True, "result": {"z": 9007199254740993, "a": None, "u": "\ud800"}},
    "reply-null": {"type": "reply", "id": 8, "ok": True, "result": None},
    "reply-error": {"type": "reply", "id": 9, "ok": False, "error": {"kind": "denied", "message": 'no "x"'}},
    "shutdown": {"type": "shutdown"},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_to_guest(wired, golden, name):
    wired.write(golden("to-guest-" + name))
    assert codec.decode(wired.channel.frame()) == EXPECTED[name]


def test_exec_with_servers(wired, golden):
    wired.write(golden("to-guest-exec-servers"))
    frame = codec.decode(wired.channel.frame())
    assert frame["code"] == 'x = "ä\U0001f600<&>"\n'
    assert frame["grants"] == ["my-fs"]
    schema = frame["define"][0]["tools"][0]["inputSchema"]
    assert list(schema["properties"]) == ["z", "a"]
    assert schema["properties"]["z"]["default"] == 9007199254740993
    assert [info["name"] for info in frame["discovered"]] == ["my-fs", "other"]


def test_call(wired, golden):
    wired.channel.begin_run(1)
    wired.channel.ids = iter([7])
    arguments = codec.encode({"z": 9007199254740993, "a": "ä\U0001f600"})
    params = '{"server":"my-fs","tool":"read-file","arguments":%s}' % arguments
    wired.channel.begin(channel.Slot(), "call_tool", params)
    assert wired.sent() == golden("from-guest-call")


def test_cancel(wired, golden):
    slot = channel.Slot()
    slot.id = 7
    wired.channel.pending[7] = slot
    wired.channel.abandon(slot)
    wired.channel.abandon(slot)
    assert wired.sent() == golden("from-guest-cancel")


def sent(wired):
    """The frames that were sent, decoded."""
    data, out = wired.sent(), []
    while data:
        size = int.from_bytes(data[:4], "big")
        out.append(codec.decode(data[4 : 4 + size].decode()))
        data = data[4 + size :]
    return out


def kinds(wired):
    return [(frame["type"], frame.get("id", frame.get("calls"))) for frame in sent(wired)]


def test_more_calls_than_may_be_under_way_wait(wired, golden, monkeypatch):
    monkeypatch.setattr(channel, "WINDOW", 2)
    wired.channel.begin_run(1)
    slots = [channel.Slot() for _ in range(5)]
    for slot in slots:
        wired.channel.begin(slot, "call_tool", "{}", later=True)
    wired.channel.flush()
    assert kinds(wired) == [("call", 1), ("call", 2), ("behind", 3)]
    wired.channel.dispatch('{"type":"reply","id":2,"ok":true,"result":null}')
    assert kinds(wired) == [("call", 3), ("behind", 2)]
    wired.channel.abandon(slots[4])  # was not sent, so it is not cancelled
    assert kinds(wired) == [("behind", 1)]
    wired.channel.abandon(slots[0])
    assert kinds(wired) == [("cancel", 1), ("call", 4), ("behind", 0)]
    for slot in (slots[2], slots[3]):
        wired.channel.dispatch('{"type":"reply","id":%d,"ok":true,"result":null}' % slot.id)
    assert not wired.channel.pending
    assert messages.framed(messages.behind_frame(1, 12)) == golden("from-guest-behind")


def test_calls_that_wait_end_with_their_execution(wired, monkeypatch):
    monkeypatch.setattr(channel, "WINDOW", 1)
    wired.channel.begin_run(1)
    slots = [channel.Slot() for _ in range(3)]
    for slot in slots:
        wired.channel.begin(slot, "call_tool", "{}")
    assert kinds(wired) == [("call", 1), ("behind", 1), ("behind", 2)]
    assert wired.channel.end_run() == 3
    assert all(slot.done for slot in slots)
    wired.channel.begin_run(2)
    wired.channel.begin(channel.Slot(), "call_tool", "{}")
    assert kinds(wired) == [("call", 4)]


def test_ready(golden, monkeypatch):
    monkeypatch.setattr(messages.sys, "version_info", (3, 11, 2, "final", 0))
    assert messages.framed(messages.ready_frame()) == golden("from-guest-ready")


def test_released_output_needs_a_nonce(monkeypatch):
    r, w = os.pipe()
    monkeypatch.setattr(output, "OUT", w)
    monkeypatch.setattr(output, "written", False)
    monkeypatch.setattr(output, "held", [b"a", b"b"])
    marked = []
    streams = Quiet()
    streams.mark = marked.append
    output.release()
    assert output.Streams.settle(streams, b"n", True) == ""
    assert (marked, output.held, os.read(r, 9)) == ([b"n"], [], b"ab")
    for fd in (r, w):
        os.close(fd)


class Quiet:
    """Streams to whose descriptors nothing was written."""

    foreign = False

    def helpers(self):
        return 0


def test_done(golden, monkeypatch):
    assert messages.framed(messages.done_frame(1, "ok", 0, "")) == golden("from-guest-done")
    more = artifacts.artifacts_member([("a/b.png", 5)] + [("x", 1)] * artifacts.MAX_REPORTED, {"a/b.png": "A “title”"})
    assert more.count('"path"') == artifacts.MAX_REPORTED
    one = artifacts.artifacts_member([("a/b.png", 5)], {"a/b.png": "A “title”"}) + ',"artifactsTruncated":true'
    assert more.endswith(',"artifactsTruncated":true')
    frame = messages.done_frame(2, "exit", 3, one + session.background_member(1, 2, 3))
    assert messages.framed(frame) == golden("from-guest-done-full")
    monkeypatch.setattr(output, "held", [b"2\n", "ä\U0001f600\0\n".encode()])
    frame = messages.done_frame(5, "ok", 0, output.Streams.settle(Quiet(), b"n", True))
    assert messages.framed(frame) == golden("from-guest-done-drained")
    assert not output.held
    running = ',"running":["thread Thread-1 (tick)","process 34 sleep 60"]'
    frame = messages.done_frame(4, "ok", 0, session.background_member(1, 0, 1) + running)
    assert messages.framed(frame) == golden("from-guest-done-running")
    frame = messages.done_frame(3, "error", 1, execute.error_member(("ValueError", 'é "x"')))
    assert messages.framed(frame) == golden("from-guest-done-error")


@pytest.mark.parametrize(
    "name, kind, payload",
    [
        ("stdout", b"o", b"2\n\xff"),
        ("stderr", b"e", b"e"),
        ("nonce", b"n", b"0123abcd"),
        ("exit-code", b"x", frames.exit_payload(3)),
        ("exit-signal", b"x", frames.exit_payload(-9)),
    ],
)
def test_output(golden, name, kind, payload):
    assert b"".join(frames.frame(kind, payload)) == golden("output-" + name)


def test_stream_forwards_what_a_pipe_holds(golden):
    r, w = os.pipe()
    os.set_blocking(r, False)
    stream = init.Stream(b"o", r)
    frames = []
    assert stream.forward(frames) == -1
    os.write(w, b"2\n\xff")
    assert stream.forward(frames) == 3
    assert b"".join(frames) == golden("output-stdout")
    os.close(w)
    assert stream.forward(frames) == 0
    os.close(r)


def test_frames_in_pieces(wired, golden):
    data = golden("to-guest-exec") + golden("to-guest-reply-error") + golden("to-guest-shutdown")

    def slowly():
        for i in range(len(data)):
            wired.write(data[i : i + 1])

    t = threading.Thread(target=slowly)
    t.start()
    got = [codec.decode(wired.channel.frame())["type"] for _ in range(3)]
    t.join()
    assert got == ["exec", "reply", "shutdown"]


@pytest.mark.parametrize("size", [10, channel.KEEP - 60, channel.KEEP - 4, channel.KEEP, channel.KEEP + 1, 3 << 20])
def test_frames_of_every_size(wired, size):
    text = '{"type":"reply","id":1,"ok":true,"result":"%s"}' % ("x" * size)
    data = messages.framed(text) + messages.framed('{"type":"shutdown"}')

    def write():
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(wired.to_guest, rest) :]

    t = threading.Thread(target=write)
    t.start()
    assert wired.channel.frame() == text
    assert wired.channel.frame() == '{"type":"shutdown"}'
    t.join()


def test_too_large(wired):
    wired.write((channel.MAX_TO_GUEST + 1).to_bytes(4, "big"))
    with pytest.raises(channel.Gone):
        wired.channel.frame()


def test_end(wired):
    os.close(wired.to_guest)
    with pytest.raises(channel.Gone):
        wired.channel.frame()


def test_late_and_unreadable_replies(wired):
    c = wired.channel
    c.begin_run(1)
    c.dispatch('{"type":"reply","id":99,"ok":true,"result":1}')
    slot = channel.Slot()
    c.begin(slot, "x", "{}")
    c.dispatch('{"type":"reply","id":%d,"ok":true,"result":nonsense}' % slot.id)
    with pytest.raises(RuntimeError, match="cannot be read"):
        slot.result()
    c.dispatch('{"type":"exec","id":2,"code":"x","nonce":"n"}')
    assert c.execs == []
    c.run = 0
    c.dispatch('{"type":"exec","id":2,"code":"x","nonce":"n"}')
    assert c.next_exec()["id"] == 2
    with pytest.raises(channel.Gone):
        c.dispatch('{"type":"shutdown"}')


def test_end_of_a_run_fails_its_calls(wired):
    c = wired.channel
    c.begin_run(1)
    slot = channel.Slot()
    c.begin(slot, "x", "{}")
    c.end_run()
    with pytest.raises(RuntimeError, match="ended before the answer arrived"):
        slot.result()
    with pytest.raises(RuntimeError, match="only be called while"):
        c.begin(channel.Slot(), "x", "{}")

"""What a real IPython kernel shows of a notebook's cells: the oracle."""

import contextlib
import pathlib
import queue
import re
from dataclasses import dataclass, field

from jupyter_client import KernelManager

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE = 300  # seconds, which only a cell that hangs reaches


@dataclass
class Cell:
    """A cell and what the kernel shows of it: (kind, content) in order, where kind is
    stdout, stderr, data (a dict of MIME types) or error (type, message)."""

    title: str
    code: str
    outputs: list = field(default_factory=list)


def cells(name):
    """The cells of a notebook, which is a file in the percent format of Jupytext."""
    parts = re.split(r"^# %%(.*)\n", (HERE / "cells" / (name + ".py")).read_text(encoding="utf-8"), flags=re.M)
    assert not parts[0].strip(), name + ": code before the first cell"
    return [Cell("%s[%d]%s" % (name, n + 1, title), code.strip()) for n, (title, code) in enumerate(zip(parts[1::2], parts[2::2]))]


@contextlib.contextmanager
def kernel(folder, environment):
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(folder), env=environment)
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE)
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def run(client, cell):
    """Runs a cell and keeps what it shows. Text of one stream that comes in parts is one."""
    message = client.execute(cell.code, store_history=True)
    while True:
        try:
            m = client.get_iopub_msg(timeout=PATIENCE)
        except queue.Empty:
            raise AssertionError(cell.title + ": the kernel says nothing") from None
        if m["parent_header"].get("msg_id") != message:
            continue
        kind, content = m["msg_type"], m["content"]
        if kind == "status" and content["execution_state"] == "idle":
            return
        if kind == "stream":
            if cell.outputs and cell.outputs[-1][0] == content["name"]:
                content["text"] = cell.outputs.pop()[1] + content["text"]
            cell.outputs.append((content["name"], content["text"]))
        elif kind in ("display_data", "execute_result"):
            cell.outputs.append(("data", content["data"]))
        elif kind == "error":
            cell.outputs.append(("error", (content["ename"], content["evalue"])))
        else:
            assert kind in ("status", "execute_input"), "%s: a message of type %s" % (cell.title, kind)

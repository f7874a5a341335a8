"""What a Kaggle session runs: it puts files into place, runs the program as a
process of its own, measures it, and leaves a result and a manifest among the
session's output files. PAYLOAD, defined before this text, says what to run.
Standard library only."""

import base64
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

RESULT, MANIFEST, ARCHIVE = "sallyport-result.json", "sallyport-manifest.json", "sallyport-files.tar.gz"
OURS = (RESULT, MANIFEST, ARCHIVE)
LIVE_BYTES = 4 << 20  # of each stream, that the session's log shows
LINE_BYTES = 64  # what each line takes in the log besides its text
INTERRUPT_GRACE = 5.0
SECRETS = ("KAGGLE_USER_SECRETS_TOKEN", "KAGGLE_API_V1_TOKEN", "KAGGLE_API_TOKEN", "KAGGLE_KEY", "KAGGLE_DATA_PROXY_TOKEN", "KAGGLE_IAP_TOKEN")


class Refused(Exception):
    """The code is not run. args: how the run ends, and why."""


class Stream:
    """One output of the program: passed on to the session's log, and its head
    and tail kept."""

    def __init__(self, source, target, limit):
        self.source, self.target = source, target
        self.head_limit, self.tail_limit = limit - limit // 2, limit // 2
        self.head, self.tail, self.total, self.shown = bytearray(), bytearray(), 0, 0
        self.thread = threading.Thread(target=self.drain, daemon=True)
        self.thread.start()

    def drain(self):
        while True:
            try:
                data = os.read(self.source, 1 << 16)
            except OSError:
                return
            if not data:
                return
            self.total += len(data)
            room = self.head_limit - len(self.head)
            self.head += data[:room]
            self.tail += data[max(0, room):]
            if len(self.tail) > 2 * self.tail_limit + (1 << 16):
                del self.tail[: len(self.tail) - self.tail_limit]
            cost = len(data) + LINE_BYTES * data.count(b"\n")
            if self.shown + cost <= LIVE_BYTES:
                self.show(data)
            elif self.shown <= LIVE_BYTES:
                self.show(b"\n[the rest is not shown here]\n")
                cost = LIVE_BYTES + 1
            self.shown += cost

    def show(self, data):
        try:
            while data:
                data = data[os.write(self.target, data):]
        except OSError:
            pass

    def kept(self):
        """What the result has of it."""
        if len(self.tail) > self.tail_limit:
            del self.tail[: len(self.tail) - self.tail_limit]
        omitted = self.total - len(self.head) - len(self.tail)
        data = bytes(self.head)
        if omitted:
            data += b"\n[%d bytes left out]\n" % omitted
        return {"data": base64.b64encode(data + bytes(self.tail)).decode(), "omitted": omitted}


def say(run, text):
    """A line for whoever follows the session's log, in both streams: they are
    not in step there."""
    for stream in (1, 2):
        os.write(stream, ("[sallyport %s] %s\n" % (run, text)).encode())


def place(directory):
    return directory if os.path.isdir(directory) else None


def write(path, value):
    """Replaces a file as a whole."""
    temporary = path + ".part"
    with open(temporary, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1, ensure_ascii=True)
    os.replace(temporary, path)


def check(payload, inputs):
    """Raises Refused where the code must not run any more, or cannot."""
    late = time.time() - payload["notAfter"]
    if late > 0:
        raise Refused("expired", "the session began %d s after the run had been given up: the code was not run" % late)
    missing = [name for name in payload["datasets"] if not mounted(inputs, name)]
    if missing:
        raise Refused("failed", "Kaggle did not provide %s (wrong name, or not yours to use): the code was not run" % ", ".join(missing))


def mounted(inputs, name):
    """Whether a directory of that name is at most three levels below inputs."""
    level = [inputs]
    for _ in range(3):
        below = []
        for directory in level:
            try:
                below += [e for e in os.scandir(directory) if e.is_dir()]
            except OSError:
                pass
        if any(e.name == name for e in below):
            return True
        level = [e.path for e in below]
    return False


def put(workspace, files):
    """Writes the run's files, and returns their hashes by path."""
    hashes = {}
    for f in files:
        data = base64.b64decode(f["data"])
        path = os.path.join(workspace, f["path"])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            out.write(data)
        os.chmod(path, f["mode"])
        hashes[f["path"]] = hashlib.sha256(data).hexdigest()
    return hashes


def supervise(payload, private, workspace, result, gauge, carbon):
    """Runs the program until it ends or its time is up."""
    code = os.path.join(private, "main.py")
    with open(code, "w", encoding="utf-8", newline="") as f:
        f.write(payload["code"])
    config = os.path.join(private, "program.json")
    write(config, {"path": code, "workspace": workspace, **{k: payload[k] for k in ("filename", "args", "script")}})
    env = {k: v for k, v in os.environ.items() if k not in SECRETS}
    env.update({"PYTHONHASHSEED": payload["seed"], "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8", "PYTHONPYCACHEPREFIX": os.path.join(private, "pycache")})
    env.update(payload["env"])
    companion = carbon.start(payload, private, workspace, result["notes"])
    out, err = os.pipe(), os.pipe()
    meter = gauge.Meter()
    meter.helpers |= companion.pids()
    say(payload["run"], "the code begins")
    result["began"], begun = time.time(), time.monotonic()
    meter.start()
    child = subprocess.Popen([sys.executable, os.path.join(private, "program.py"), config], cwd=workspace, env=env, stdin=subprocess.DEVNULL, stdout=out[1], stderr=err[1])
    os.close(out[1])
    os.close(err[1])
    streams = [Stream(fd, target, payload["outputBytes"]) for fd, target in ((out[0], 1), (err[0], 2))]
    end = "exited"
    try:
        child.wait(payload["timeout"])
    except subprocess.TimeoutExpired:
        end = "timed-out"
        child.send_signal(signal.SIGINT)
        try:
            child.wait(INTERRUPT_GRACE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    result["seconds"] = time.monotonic() - begun
    gauge.end_descendants(os.getpid(), meter.helpers)
    result.update(meter.stop())
    for s in streams:
        s.thread.join(10)
    say(payload["run"], "the code has ended")
    result["stdout"], result["stderr"] = streams[0].kept(), streams[1].kept()
    status = child.returncode
    result["exitCode"] = status if status >= 0 else 128 - status
    if end == "exited" and status == -signal.SIGKILL:
        result["notes"].append("the program was killed by SIGKILL, as happens when the session's memory runs out")
    if meter.crowded:
        end, result["error"] = "failed", "the program had more than %d processes and threads, and was ended" % gauge.MOST
    if end == "timed-out":
        result["error"] = "the code ran for %d s, as long as it may" % payload["timeout"]
    result["end"] = end
    result["codecarbon"] = companion.stop(result["notes"])


def main(payload):
    workspace = os.path.realpath(place("/kaggle/working") or os.getcwd())
    inputs = place("/kaggle/input") or os.path.join(os.path.dirname(workspace), "input")
    private = tempfile.mkdtemp(prefix="sallyport-")
    for name, text in payload["modules"].items():
        with open(os.path.join(private, name + ".py"), "w", encoding="utf-8") as f:
            f.write(text)
    sys.path.insert(0, private)
    import carbon
    import gauge
    import results

    empty = {"data": "", "omitted": 0}
    result = {
        "version": 1, "run": payload["run"], "codeSha256": hashlib.sha256(payload["code"].encode()).hexdigest(),
        "end": "failed", "error": "", "exitCode": -1, "stdout": empty, "stderr": empty, "notes": [], "files": [],
    }
    placed = {}
    try:
        check(payload, inputs)
        gauge.become_subreaper()
        placed = put(workspace, payload["files"])
        supervise(payload, private, workspace, result, gauge, carbon)
    except Refused as e:
        result["end"], result["error"] = e.args
    except BaseException as e:
        result["end"], result["error"] = "failed", "%s: %s" % (type(e).__name__, e)
    try:
        result["files"], whole = results.collect(workspace, placed, OURS, os.path.join(workspace, ARCHIVE), result["notes"])
        result["filesLeft"] = not whole
        write(os.path.join(workspace, MANIFEST), results.manifest(payload, placed, result))
    except BaseException as e:
        result["filesLeft"] = True
        result["notes"].append("what the program left could not be listed: %s: %s" % (type(e).__name__, e))
    write(os.path.join(workspace, RESULT), result)
    shutil.rmtree(private, ignore_errors=True)


if __name__ == "__main__":
    main(PAYLOAD)  # noqa: F821

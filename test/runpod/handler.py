"""A worker as the first ones were, on RunPod's own SDK: runs the code in a
process and answers stdout, stderr and return_code."""

import os
import subprocess
import sys

import runpod


def handler(job):
    code = job["input"].get("code")
    if code is None:
        return {"error": "No code provided"}
    if code == "raise":
        raise ValueError("boom")
    runpod.serverless.progress_update(job, {"stage": "begun"})
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=float(os.environ.get("HANDLER_TIMEOUT", "20")))
    except subprocess.TimeoutExpired:
        return {"error": "Execution timed out"}
    return {"stdout": done.stdout, "stderr": done.stderr, "return_code": done.returncode}


def stream(job):
    for i in range(3):
        yield {"stdout": f"chunk {i}\n"}


if os.environ.get("HANDLER") == "stream":
    runpod.serverless.start({"handler": stream, "return_aggregate_stream": True})
else:
    n = int(os.environ.get("HANDLER_CONCURRENCY", "1"))
    runpod.serverless.start({"handler": handler, "concurrency_modifier": lambda current: n})

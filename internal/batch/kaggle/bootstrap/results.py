"""What the program left: the files, and what makes the run reproducible."""

import hashlib
import os
import platform
import stat
import sys
import tarfile

MANY = 200  # files; the small ones of more are packed
SMALL = 1 << 20
HASHED = 4 << 30  # bytes that are hashed, of all files together
LISTED = 20000


def collect(workspace, placed, ours, archive, notes):
    """The files of the workspace: a list of what they are, and whether all are
    in it."""
    files, others, hashed = [], 0, 0
    for directory, names, found in os.walk(workspace):
        names.sort()
        for name in sorted(found):
            path = os.path.join(directory, name)
            rel = os.path.relpath(path, workspace)
            if rel in ours:
                continue
            try:
                rel.encode("utf-8")
                info = os.lstat(path)
            except (OSError, UnicodeError):
                others += 1
                continue
            if not stat.S_ISREG(info.st_mode):
                others += 1
                continue
            entry = {"path": rel.replace(os.sep, "/"), "size": info.st_size}
            if hashed + info.st_size <= HASHED:
                hashed += info.st_size
                entry["sha256"] = digest(path)
            if placed.get(entry["path"]) == entry.get("sha256", ""):
                entry["input"] = True
            files.append(entry)
    if others:
        notes.append("%d entries of the workspace are no plain files with names in UTF-8, and do not come back" % others)
    whole = len(files) <= LISTED
    if not whole:
        notes.append("of %d files, %d come back" % (len(files), LISTED))
        del files[LISTED:]
    new = [f for f in files if not f.get("input")]
    if len(new) > MANY:
        pack(workspace, [f for f in new if f["size"] <= SMALL], archive)
    return files, whole


def digest(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while True:
            data = f.read(1 << 20)
            if not data:
                return h.hexdigest()
            h.update(data)


def pack(workspace, files, archive):
    """Moves small files into one archive: the service lists and hands out files
    one by one."""
    with tarfile.open(archive, "w:gz", compresslevel=3, format=tarfile.PAX_FORMAT) as tar:
        for f in files:
            info = tarfile.TarInfo(f["path"])
            info.size = f["size"]
            path = os.path.join(workspace, f["path"])
            with open(path, "rb") as data:
                tar.addfile(info, data)
            f["packed"] = True
    for f in files:
        os.unlink(os.path.join(workspace, f["path"]))


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read(4096).strip()
    except OSError:
        return ""


def packages():
    from importlib import metadata

    found = set()
    for d in metadata.distributions():
        try:
            found.add("%s==%s" % (d.metadata["Name"], d.version))
        except Exception:
            pass
    return sorted(found, key=str.lower)


def manifest(payload, placed, result):
    """Everything that one needs to run the same again."""
    accelerators = {"asked": payload["accelerator"], "gpus": result.get("gpus", [])}
    driver = read("/proc/driver/nvidia/version").partition("\n")[0]
    if driver:
        accelerators["driver"] = driver
    tpu = {k: os.environ[k] for k in ("TPU_ACCELERATOR_TYPE", "TPU_WORKER_ID", "ACCELERATOR_TYPE") if k in os.environ}
    if tpu:
        accelerators["tpu"] = tpu
    image = {"gitCommit": read("/etc/git_commit"), "buildDate": read("/etc/build_date"), "system": platform.platform()}
    for name in ("KAGGLE_DOCKER_IMAGE", "KAGGLE_CONTAINER_NAME"):
        if name in os.environ:
            image[name] = os.environ[name]
    return {
        "version": 1, "run": payload["run"],
        "code": {"filename": payload["filename"], "sha256": result["codeSha256"], "args": payload["args"], "script": payload["script"]},
        "inputs": placed, "datasets": payload["sources"], "internet": payload["internet"],
        "seed": {"PYTHONHASHSEED": payload["env"].get("PYTHONHASHSEED", payload["seed"])},
        "python": {"version": sys.version, "implementation": platform.python_implementation(), "executable": sys.executable},
        "image": image, "packages": packages(),
        "machine": {k: result[k] for k in ("cpuModel", "cpus", "memoryBytes") if k in result}, "accelerator": accelerators,
        "outcome": {k: result[k] for k in ("end", "exitCode", "began", "seconds", "cpuSeconds", "peakBytes", "gpuJoules", "gpuMethod") if k in result},
        "codecarbon": result.get("codecarbon"),
        "files": result["files"],
    }

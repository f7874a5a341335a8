"""Tasks of the host, other than those that move files."""

import os
import pathlib
import subprocess
import sys

GUEST = pathlib.Path(__file__).resolve().parent.parent

# In a process of its own, because the task looks at all of its descriptors.
LET_GO = """
import errno, os, sys
from types import SimpleNamespace
from sallyport_guest import tasks

folder, own = sys.argv[1:]
tasks.OWN_PLACES = (own + "/",)
for path in (folder, own, folder + "/cwd"):
    os.mkdir(path)
files = [open(path, "w+") for path in (folder + "/gone", folder + "/kept", own + "/gone")]
for f in files:
    f.write("text")
    f.seek(0)
os.chdir(folder + "/cwd")
os.unlink(folder + "/gone"), os.unlink(own + "/gone"), os.rmdir(folder + "/cwd")
tasks.let_go(SimpleNamespace(workspace=SimpleNamespace(path=own)))
try:
    os.read(files[0].fileno(), 9)
except OSError as e:
    print(errno.errorcode[e.errno])
print([f.read() for f in files[1:]], os.getcwd() == own, flush=True)
os._exit(0)
"""


def test_let_go(tmp_path):
    """Files in folders that are gone are closed, and all others stay as they are."""
    done = subprocess.run(
        [sys.executable, "-c", LET_GO, str(tmp_path / "folder"), str(tmp_path / "own")],
        env={**os.environ, "PYTHONPATH": str(GUEST)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("EBADF\n['text', 'text'] True\n", "")

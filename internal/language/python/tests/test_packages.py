"""Packages that code adds: their archives."""

import base64
import errno
import io
import json
import os
import shutil
import sys
import tarfile
import types

import pytest

from sallyport_guest import inline, install, target, tasks
from sallyport_guest.errors import MCPError


def archive(*entries):
    """entries are (name, content), or TarInfo."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                tar.addfile(entry)
                continue
            info = tarfile.TarInfo(entry[0])
            info.size = len(entry[1])
            tar.addfile(info, io.BytesIO(entry[1]))
    return out.getvalue()


def session(folder, data=b"", part=700):
    """A session whose host has one archive."""

    def request(method, params):
        at = json.loads(params)["offset"]
        piece = data[at : at + part]
        return {"data": base64.b64encode(piece).decode(), "last": at + len(piece) == len(data)}

    channel = types.SimpleNamespace(request_sync=request)
    return types.SimpleNamespace(packages=str(folder), archives=[], paths=types.SimpleNamespace(add=lambda: False), channel=channel)


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("part", [1, 512, 700, 1 << 20])
def test_unpack(tmp_path, part):
    want = {"a/b.py": b"x" * 1000, "a/empty": b"", "long/" * 30 + "name": b"y" * 512, "top": b"z", "\u00fc" * 120: b"u"}
    s = session(tmp_path, archive(*want.items()), part)
    install.fetch(s, "a")
    assert (files(tmp_path), s.archives) == (want, ["a"])


def special(kind, name="x", link="/etc/passwd"):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize(
    "data, why",
    [
        (archive(("../x", b"")), "'../x' leads elsewhere, or is not a file"),
        (archive(("/x", b"")), "'/x' leads elsewhere, or is not a file"),
        (archive(special(tarfile.SYMTYPE)), "'x' leads elsewhere, or is not a file"),
        (archive(special(tarfile.LNKTYPE)), "'x' leads elsewhere, or is not a file"),
        (archive(special(tarfile.FIFOTYPE)), "'x' leads elsewhere, or is not a file"),
        (archive(("x", b"y" * 2000))[:1500], "unexpected end of data"),
        (b"", "cannot be used"),
        (b"x" * 512, "cannot be used"),
    ],
)
def test_refused(tmp_path, data, why):
    folder = tmp_path / "in"
    folder.mkdir()
    s = session(folder, data)
    with pytest.raises(MCPError, match=why):
        install.fetch(s, "a")
    assert (os.listdir(tmp_path), os.listdir(folder), s.archives) == (["in"], [], [])


@pytest.fixture(autouse=True)
def untouched(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("PATH", os.environ["PATH"])


def test_a_full_disk(tmp_path, monkeypatch):
    def copy(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", copy)
    s = session(tmp_path, archive(("x/__init__.py", b"1")))
    with pytest.raises(MCPError, match="do not fit into .* raise the setting limits.packages") as e:
        install.fetch(s, "a")
    assert e.value.kind == "limit_exceeded"
    assert (os.listdir(tmp_path), s.archives) == ([], [])


def test_a_failure_in_between(tmp_path, monkeypatch):
    """What was moved goes back."""
    rename = os.rename
    count = []

    def failing(a, b):
        count.append(b)
        if len(count) == 3:
            raise OSError(errno.EIO, "Input/output error")
        rename(a, b)

    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "there").write_text("kept")
    import posix

    monkeypatch.setattr(posix, "rename", failing)
    s = session(tmp_path, archive(("a", b"1"), ("shared/b", b"2"), ("z", b"3")))
    with pytest.raises(MCPError, match="cannot be written"):
        install.fetch(s, "a")
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")) == ["shared", "shared/there"]


def test_removed_and_installed_again(tmp_path):
    s = session(tmp_path, archive(("x.py", b"1")))
    for _ in range(2):
        install.fetch(s, "a")
        assert s.archives == ["a"]
        (tmp_path / "x.py").unlink()
    s.channel = None
    install.again(s, ["a"])  # asks for nothing: the sandbox is the same


def test_modules_of_python(tmp_path):
    """PYTHONPATH comes first in a child process: it must find Python's own modules."""
    s = session(tmp_path, archive(("enum.py", b"1"), ("json/__init__.py", b"1"), ("a/json.py", b"1"), ("typing-3.dist-info/METADATA", b"1")))
    install.fetch(s, "a")
    found = sorted(files(tmp_path))
    want = ["a/json.py", "typing-3.dist-info/METADATA"] if install.OWN else ["a/json.py", "enum.py", "json/__init__.py", "typing-3.dist-info/METADATA"]
    assert found == want


@pytest.mark.parametrize(
    "tags, unfit",
    [
        (["py2-none-any", "py3-none-any"], False),
        (["cp36-abi3-manylinux_2_17_x86_64"], False),
        (["cp%d%d-none-any" % sys.version_info[:2]], False),
        (["cp3%d-cp3%d-musllinux_1_2_x86_64" % (sys.version_info[1] + 1, sys.version_info[1] + 1)], True),
        ([], False),
    ],
)
def test_another_python(tmp_path, tags, unfit):
    """Compiled packages do not return to another version of Python."""
    data = archive(("a/x.py", b"1"), ("a-1.0.dist-info/WHEEL", "".join("Tag: %s\n" % tag for tag in tags).encode()))
    s = session(tmp_path, data)
    if not unfit:
        install.fetch(s, "aa", True)
        assert s.archives == ["aa"]
        return
    with pytest.raises(MCPError, match=r"for another Python \(a 1.0\): install them again"):
        install.fetch(s, "aa", True)
    assert (os.listdir(tmp_path), s.archives) == ([], [])


def test_export(tmp_path, monkeypatch):
    """What is left out of a session's archive names the packages."""
    (tmp_path / "packages" / "a_b-1.0.dist-info").mkdir(parents=True)
    (tmp_path / "workspace").mkdir()
    left = []
    monkeypatch.setattr(tasks, "leave", lambda session, *what: left.append(what))
    tasks.take_out(types.SimpleNamespace(workspace=types.SimpleNamespace(path=str(tmp_path / "workspace")), packages=str(tmp_path / "packages")))
    assert left == [("package a_b 1.0", "add it with runtime.install_packages")]


def test_cancelled(tmp_path):
    def request(method, params):
        raise KeyboardInterrupt

    s = session(tmp_path)
    s.channel.request_sync = request
    with pytest.raises(KeyboardInterrupt):
        install.fetch(s, "a")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "required, want",
    [("", True), (">=3.9", True), (">=3.9,<4", True), (">=3.99", False), ("<3", False), ("==3.*", True), ("!=3.*", False), ("~=3.9", True), ("~=2.7", False), ("odd", True)],
)
def test_versions(required, want):
    assert inline.fits(required, sys.version_info[:3]) is want


@pytest.mark.parametrize(
    "requirement, want",
    [
        ("b", True),
        ("B.c>=1", True),
        ("a", False),
        ("A[x]>=1.2,<2 ; extra == 'x'", False),
        ("a (==1.2.*)", False),
        ("a==1.2", None),
        ("a~=1.1", False),
        ("a>=99", None),
        ("a!=1.2.3", None),
        ("a>=99; sys_platform == 'win32'", False),
        ("b; platform_system != 'Linux'", False),
        ("b; sys_platform == 'linux'", True),
        ("b; python_version < '3.9'", False),
        ("b; python_version >= \"3.9\"", True),
        ("b; python_version >= '3.9' and (sys_platform == 'win32' or extra == 'x')", False),
        ("b; python_full_version >= '3.9.1' and 'inu' in sys_platform", True),
        ("b; platform_machine == 'mips' or os_name not in 'posix nt'", False),
        ("b; '3.9' <= python_version", True),
        ("b; odd ~= '3'", True),
        ("b; " + "(" * 9000, True),
        ("pre>=99", False),
        ("local==2.0", False),
    ],
)
def test_lacking(requirement, want):
    have = {"a": "1.2.3", "pre": "1.0rc1", "local": "2.0+cpu"}
    if want is None:
        with pytest.raises(MCPError, match="1.2.3 is there"):
            inline.lacks(requirement, have)
    else:
        assert inline.lacks(requirement, have) is want


def test_webassembly_is_told_by_its_library(monkeypatch):
    """No wheel with machine code is for it, which the host sees by the name of the C library."""
    monkeypatch.setattr(target.sys, "platform", "wasi")
    assert target.target()["libc"] == "wasi"

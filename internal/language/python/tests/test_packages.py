"""Packages that code adds: their archives."""

import errno
import io
import os
import tarfile
import types

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sallyport_guest import install, untar
from sallyport_guest.errors import MCPError


def archive(*entries, form=tarfile.PAX_FORMAT):
    """entries are (name, content), or TarInfo."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                tar.addfile(entry)
                continue
            info = tarfile.TarInfo(entry[0])
            info.size = len(entry[1])
            tar.addfile(info, io.BytesIO(entry[1]))
    return out.getvalue()


def unpack(folder, data, part=700):
    u = untar.Untar(str(folder))
    try:
        for at in range(0, len(data), part):
            u.feed(data[at : at + part])
        u.check()
    finally:
        u.close()
    return u


@pytest.mark.parametrize("part", [1, 511, 512, 700, 1 << 20])
@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT])
def test_unpack(tmp_path, part, form):
    files = {"a/b.py": b"x" * 1000, "a/empty": b"", "long/" * 30 + "name": b"y" * 512, "top": b"z"}
    if form == tarfile.PAX_FORMAT:
        files["ü" * 120] = b"u"
    u = unpack(tmp_path, archive(*files.items(), form=form), part)
    found = {str(p.relative_to(tmp_path)): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert found == files
    assert (u.files, u.bytes) == (len(files), sum(map(len, files.values())))


def special(kind, name="x", link="/etc/passwd"):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize(
    "data, why",
    [
        (archive(("../x", b"")), "leads elsewhere"),
        (archive(("/x", b"")), "leads elsewhere"),
        (archive(("a/../../x", b"")), "leads elsewhere"),
        (archive(special(tarfile.SYMTYPE)), "neither a file"),
        (archive(special(tarfile.LNKTYPE)), "neither a file"),
        (archive(special(tarfile.FIFOTYPE)), "neither a file"),
        (archive(("x", b"y" * 2000))[:1500], "incomplete"),
        (b"x" * 512, ""),
    ],
)
def test_refused(tmp_path, data, why):
    folder = tmp_path / "in"
    folder.mkdir()
    with pytest.raises(ValueError, match=why or None):
        unpack(folder, data)
    assert os.listdir(tmp_path) == ["in"]
    assert not [n for n in os.listdir(folder) if os.path.islink(folder / n)]


@given(st.binary(max_size=3000), st.integers(0, 2000))
@example(archive(("a", b"b")), 124)
def test_any_bytes(tmp_path_factory, noise, at):
    folder = tmp_path_factory.mktemp("any")
    inside = folder / "in"
    inside.mkdir()
    for data in (noise, archive(("p/a.py", b"1"), ("b" * 120, b"2" * 600))[:at] + noise):
        try:
            unpack(inside, data)
        except (ValueError, OSError):
            pass
    assert os.listdir(folder) == ["in"]


def session(folder):
    said = []
    paths = types.SimpleNamespace(add=lambda: False)
    return types.SimpleNamespace(packages=str(folder), archives=[], paths=paths, streams=types.SimpleNamespace(say=said.append), said=said)


def answer(calls, data):
    """Serve the calls of a fetch with one archive."""
    call = next(calls)
    while True:
        assert call[0] == "package_part"
        import base64

        try:
            call = calls.send({"data": base64.b64encode(data).decode(), "last": True})
        except StopIteration:
            return


@pytest.fixture(autouse=True)
def untouched(monkeypatch):
    import sys

    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("PATH", os.environ["PATH"])


def test_a_full_disk(tmp_path, monkeypatch):
    def write(fd, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(untar, "write", write)
    s = session(tmp_path)
    with pytest.raises(MCPError, match="do not fit into .* raise the setting limits.packages") as e:
        answer(install.fetch(s, "a"), archive(("x/__init__.py", b"1")))
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
    s = session(tmp_path)
    with pytest.raises(MCPError, match="cannot be written"):
        answer(install.fetch(s, "a"), archive(("a", b"1"), ("shared/b", b"2"), ("z", b"3")))
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")) == ["shared", "shared/there"]


def test_modules_of_python(tmp_path):
    """PYTHONPATH comes first in a child process: it must find Python's own modules."""
    s = session(tmp_path)
    answer(install.fetch(s, "a"), archive(("enum.py", b"1"), ("json/__init__.py", b"1"), ("a/json.py", b"1"), ("typing-3.dist-info/METADATA", b"1")))
    found = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    want = ["a/json.py", "typing-3.dist-info/METADATA"] if install.OWN else ["a/json.py", "enum.py", "json/__init__.py", "typing-3.dist-info/METADATA"]
    assert found == want


def test_cancelled(tmp_path):
    s = session(tmp_path)
    calls = install.fetch(s, "a")
    next(calls)
    calls.close()
    assert os.listdir(tmp_path) == []

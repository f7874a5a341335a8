import io, tarfile
buf = io.BytesIO()
with tarfile.open(fileobj=buf, mode="w:xz") as t:
    data = b"x" * 1000
    info = tarfile.TarInfo("d/x.bin")
    info.size = len(data)
    t.addfile(info, io.BytesIO(data))
buf.seek(0)
with tarfile.open(fileobj=buf) as t:
    print(t.getnames(), t.extractfile("d/x.bin").read() == data)

# Output:
# ['d/x.bin'] True

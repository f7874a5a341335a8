import shutil, tempfile, zipfile
from pathlib import Path
with tempfile.TemporaryDirectory() as t:
    p = Path(t, "a", "b.txt")
    p.parent.mkdir()
    p.write_text("hello" * 100)
    shutil.copytree(p.parent, Path(t, "c"))
    z = shutil.make_archive("out", "zip", t)
    print(sorted(zipfile.ZipFile(z).namelist()))
print(Path(t).exists())

# Output:
# ['a/', 'a/b.txt', 'c/', 'c/b.txt']
# False

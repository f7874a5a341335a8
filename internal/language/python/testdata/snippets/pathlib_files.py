from pathlib import Path
d = Path("notes")
d.mkdir(exist_ok=True)
for i in range(3):
    (d / f"{i}.txt").write_text("line\n" * (i + 1))
print([(p.name, p.stat().st_size) for p in sorted(d.glob("*.txt"))])
(d / "0.txt").rename(d / "z.txt")
print(sorted(p.name for p in d.iterdir()), (d / "0.txt").exists())

# Output:
# [('0.txt', 5), ('1.txt', 10), ('2.txt', 15)]
# ['1.txt', '2.txt', 'z.txt'] False

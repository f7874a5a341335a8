import textwrap, string, unicodedata
print(textwrap.fill("the quick brown fox jumps over the lazy dog", 20))
print(string.Template("$a-$b").substitute(a=1, b=2), unicodedata.normalize("NFD", "é").encode(), f"{1234567.891:,.2f}")

# Output:
# the quick brown fox
# jumps over the lazy
# dog
# 1-2 b'e\xcc\x81' 1,234,567.89

import bz2, gzip, lzma, zlib
data = b"sallyport " * 1000
for m in (bz2, gzip, lzma, zlib):
    c = m.compress(data)
    print(m.__name__, len(c) < 200, m.decompress(c) == data)

# Output:
# bz2 True True
# gzip True True
# lzma True True
# zlib True True

import contextlib, io, warnings
with contextlib.redirect_stdout(io.StringIO()) as f:
    print("hidden")
with warnings.catch_warnings(record=True) as w:
    warnings.simplefilter("always")
    warnings.warn("careful")
print(repr(f.getvalue()), [str(x.message) for x in w])
with contextlib.suppress(FileNotFoundError):
    open("none")

# Output:
# 'hidden\n' ['careful']

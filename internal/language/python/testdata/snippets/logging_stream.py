import io, logging
out = io.StringIO()
log = logging.getLogger("snippet")
h = logging.StreamHandler(out)
h.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
log.addHandler(h)
log.warning("low %d", 3)
log.error("bad", exc_info=False)
print(out.getvalue(), end="")

# Output:
# WARNING snippet: low 3
# ERROR snippet: bad

# First call: read the sonnets once and keep them.
import re

text = await mcp_filesystem.read_text_file(path="texts/sonnets.txt")
sonnets = {m[1]: m[2].strip() for m in re.finditer(r"^([IVXLC]+)\n\n(.*?)(?=^[IVXLC]+\n|\Z)", text, re.M | re.S)}
sorted(sonnets)

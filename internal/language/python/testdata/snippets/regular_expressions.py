import re
log = "10:01 ERROR disk full\n10:02 INFO ok\n10:03 ERROR net down"
print(re.findall(r"(?m)^(\S+) ERROR (.*)$", log))
print(re.sub(r"\d", "#", "a1b22"))

# Output:
# [('10:01', 'disk full'), ('10:03', 'net down')]
# a#b##

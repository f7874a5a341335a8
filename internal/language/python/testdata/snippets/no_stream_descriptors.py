import io
import os
for f in (lambda: open(1, "w"), lambda: os.fdopen(2, "w"), lambda: open(0), lambda: io.FileIO(1, "w"), lambda: open(99)):
    try:
        f()
    except OSError as e:
        print(e.strerror)

# Only: wasm
# Output:
# the standard streams have no descriptors here: use sys.stdin, sys.stdout, sys.stderr
# the standard streams have no descriptors here: use sys.stdin, sys.stdout, sys.stderr
# the standard streams have no descriptors here: use sys.stdin, sys.stdout, sys.stderr
# the standard streams have no descriptors here: use sys.stdin, sys.stdout, sys.stderr
# Bad file descriptor

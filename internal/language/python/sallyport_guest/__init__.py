"""The part of Sallyport that runs inside a sandbox.

It uses only the standard library of CPython 3.9 and later, and little of that: a
caller waits for everything that is imported before the first result.
"""

import builtins

# Every module of this package runs on its own copy of the builtins, so that
# user code that replaces print or len breaks only itself. A function finds its
# builtins through the globals of its module.
BUILTINS = dict(vars(builtins))

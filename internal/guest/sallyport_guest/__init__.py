"""The part of Sallyport that runs inside a sandbox.

Standard library only, CPython 3.9 and up, and little of the library at that:
what is imported before the first result is waited for by somebody.
"""

import builtins

# Every module of this package runs on its own copy of the builtins, so that
# user code that replaces print or len breaks itself alone. A function finds
# its builtins through the globals of its module.
BUILTINS = dict(vars(builtins))

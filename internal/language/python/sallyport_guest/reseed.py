"""Fresh randomness after a restore from a shared snapshot.

Generators that were seeded before the snapshot would otherwise give the same
numbers in every sandbox: those of the standard library, of OpenSSL and of numpy.
The system's own (os.urandom, secrets) are fresh anyway. Only modules that are
loaded have a state.
"""

from . import BUILTINS as __builtins__

import sys


def reseed(entropy):
    modules = sys.modules
    for name, renew in RENEW:
        if name in modules:
            try:
                renew(modules[name], entropy)
            except Exception:  # a different module of that name
                pass


def renew_random(random, entropy):
    random.seed(b"random" + entropy)


def renew_tempfile(tempfile, entropy):
    tempfile._name_sequence = None  # created again, with its own generator


def renew_uuid(uuid, entropy):
    uuid._node = None
    uuid._last_timestamp = None


def renew_ssl(ssl, entropy):
    ssl.RAND_add(b"ssl" + entropy, len(entropy))


def renew_numpy(numpy_random, entropy):
    from hashlib import sha256

    words = sha256(b"numpy" + entropy).digest()
    numpy_random.seed([int.from_bytes(words[i : i + 4], "little") for i in range(0, 32, 4)])


def renew_process(process, entropy):
    from os import urandom

    process.current_process().authkey = urandom(32)


RENEW = (
    ("random", renew_random),
    ("tempfile", renew_tempfile),
    ("uuid", renew_uuid),
    ("_ssl", renew_ssl),
    ("numpy.random", renew_numpy),
    ("multiprocessing.process", renew_process),
)

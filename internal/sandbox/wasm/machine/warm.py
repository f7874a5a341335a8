"""What is loaded before the image of the memory is taken, so that every session has it
at once and shares its memory."""

import gc
import sys

# The guest's own modules that work without processes and are used after the start.
GUEST = (
    "about advice alone artifacts bare belonging cells channel codec compiler content descriptors display distributions docs errors execute"
    " extract features find formats frames hints hooks inline install interrupt late literals loop mainfile manual memory messages missing"
    " objects output package pages paths pictures proxy registry report reseed runtime said saved schema script session shorten"
    " single slot sources stars stdin tables target tasks validate values"
).split()

LIBRARY = (
    "abc argparse array ast base64 bisect bz2 calendar codecs collections collections.abc colorsys concurrent.futures"
    " concurrent.futures.thread configparser contextlib contextvars copy csv dataclasses datetime decimal difflib email.message"
    " email.parser encodings.ascii encodings.idna encodings.latin_1 enum fnmatch fractions functools getpass glob graphlib gzip"
    " hashlib heapq hmac html html.parser http importlib.metadata importlib.resources inspect io ipaddress itertools json keyword"
    " linecache locale logging lzma math mimetypes numbers operator os pathlib pickle platform pprint queue random re reprlib"
    " secrets shlex shutil signal site sqlite3 statistics string struct subprocess sysconfig tarfile tempfile textwrap threading time"
    " timeit token tokenize tomllib traceback types typing unicodedata unittest urllib.parse urllib.request uuid warnings weakref"
    " xml.etree.ElementTree zipfile zoneinfo _strptime"
).split()


def up(session):
    """Load everything."""
    session.imports.install()
    for name in GUEST:
        __import__("sallyport_guest." + name)
    for name in LIBRARY:
        __import__(name)
    hide_asyncio(session)


def settle():
    """Leave what is loaded alone: the garbage collector does not look at it again."""
    for path in list(sys.path_importer_cache):
        if not path.endswith(".zip"):  # its files are other ones in a session
            del sys.path_importer_cache[path]
    gc.collect()
    gc.freeze()


def hide_asyncio(session):
    """Let asyncio be loaded, and look as if it were not: a session is quicker until its
    code uses it."""
    hidden = Hidden({name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "asyncio"})
    sys.meta_path.insert(sys.meta_path.index(session.imports) + 1, hidden)
    session.imports.after["asyncio"] = session.asyncio_imported


class Hidden:
    """A finder and loader of modules that exist. All of them come back together, because
    they refer to each other."""

    def __init__(self, modules):
        self.modules = modules
        self.specs = {name: module.__spec__ for name, module in modules.items()}

    def find_spec(self, name, path=None, target=None):
        if name not in self.modules:
            return None
        spec = type(sys.__spec__)(name, self, origin=self.specs[name].origin)
        spec.submodule_search_locations = self.specs[name].submodule_search_locations
        return spec

    def create_module(self, spec):
        return self.modules[spec.name]

    def exec_module(self, module):
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        sys.modules.update(self.modules)
        for name, spec in self.specs.items():
            self.modules[name].__spec__, self.modules[name].__loader__ = spec, spec.loader
        self.modules = {}

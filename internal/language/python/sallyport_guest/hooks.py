"""The import system's hooks: what has to happen when user code imports a module."""

from . import BUILTINS as __builtins__

import sys

SERVERS = "mcp.servers."
SERVER = "mcp_"
SAVED = "user_tools"


class Imports:
    """The first finder. It is cheap for every name that it does not handle."""

    def __init__(self, session):
        self.session = session
        self.after = {}  # name -> what to do after its import

    def install(self):
        if not here(self):
            sys.meta_path.insert(0, self)
        if not self.session.paths.added and not here(self.session.paths):
            sys.meta_path.append(self.session.paths)

    def find_spec(self, name, path=None, target=None):
        if name in self.after:
            for finder in list(sys.meta_path):
                if finder is not self and hasattr(finder, "find_spec"):
                    spec = finder.find_spec(name, path, target)
                    if spec is not None:
                        then = self.after.pop(name, None)  # unless SitePaths has asked again
                        if then is not None:
                            spec.loader = After(spec.loader, then)
                        return spec
        elif name.startswith((SERVERS, SERVER)):
            module = self.session.registry.module(name[len(SERVERS if name.startswith(SERVERS) else SERVER) :])
            if module is not None:
                return spec_of(name, Ready(module))
        elif name == SAVED or name.startswith(SAVED + "."):
            from . import saved

            return saved.find_spec(self.session, name)
        return None


def here(finder):
    for found in sys.meta_path:
        if found is finder:  # == may be a method of another finder
            return True
    return False


def spec_of(name, loader):
    return type(sys.__spec__)(name, loader)


class After:
    """A loader that runs a hook after its module is loaded."""

    def __init__(self, loader, then):
        self.loader = loader
        self.then = then

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        self.then()


class Ready:
    """The loader of a module that exists already."""

    def __init__(self, module):
        self.module = module

    def create_module(self, spec):
        return self.module

    def exec_module(self, module):
        pass


class SitePaths:
    """Adds the interpreter's site-packages to sys.path, when an import fails without
    them or when there is time, after the first execution. The interpreter starts
    without them, because reading their .pth files is slow."""

    def __init__(self, streams):
        self.streams = streams
        self.added = False

    def add(self):
        """Whether anything was added."""
        if self.added:
            return False
        self.added = True
        if here(self):
            sys.meta_path.remove(self)
        before = len(sys.path)
        try:
            import site

            known = site.removeduppaths()
            site.addsitepackages(site.venv(known))
        except Exception as e:  # a broken .pth file must not end the session
            self.streams.say("sallyport: site-packages: %s\n" % e)
        return len(sys.path) > before

    def find_spec(self, name, path=None, target=None):
        if path is not None or not self.add():
            return None
        for finder in list(sys.meta_path):
            if hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None

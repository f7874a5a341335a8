"""Makes the guest importable as it lies in the tree."""

import os
import pathlib
import sys
import tempfile

import hypothesis
import hypothesis.configuration
import pytest

PACKAGE = pathlib.Path(__file__).resolve().parent.parent
GOLDENS = PACKAGE.parents[1] / "wire" / "testdata"
sys.path.insert(0, str(PACKAGE))
HOME = tempfile.TemporaryDirectory()
hypothesis.configuration.set_hypothesis_home_dir(HOME.name)
hypothesis.settings.register_profile("here", database=None, deadline=None)
hypothesis.settings.load_profile("here")


@pytest.fixture
def golden():
    """The bytes of a golden frame, which the Go tests read too."""
    return lambda name: (GOLDENS / name).read_bytes()


class Wired:
    """A channel, and the host's ends of its pipes."""

    def __init__(self):
        from sallyport_guest.channel import Channel
        from sallyport_guest.interrupt import Interrupts

        guest_in, self.to_guest = os.pipe()
        self.from_guest, guest_out = os.pipe()
        os.set_blocking(self.from_guest, False)
        self.channel = Channel(guest_in, guest_out, Interrupts())
        self.fds = [guest_in, self.to_guest, self.from_guest, guest_out]

    def write(self, data):
        assert os.write(self.to_guest, data) == len(data)

    def sent(self):
        return os.read(self.from_guest, 1 << 20)

    def close(self):
        for fd in self.fds:
            try:
                os.close(fd)
            except OSError:
                pass


@pytest.fixture
def wired():
    w = Wired()
    yield w
    w.close()

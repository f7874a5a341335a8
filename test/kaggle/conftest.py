"""What the tests of this folder share. They run in .cache/remote, the environment
with kagglesdk, kaggle and codecarbon (`scripts/setup` makes it)."""

import importlib.util

import pytest

from fakekaggle import Fake

# Another environment runs the tests of the whole folder.
collect_ignore_glob = [] if importlib.util.find_spec("kagglesdk") else ["test_*.py"]


@pytest.fixture(scope="session")
def kaggle(tmp_path_factory):
    fake = Fake(tmp_path_factory.mktemp("kaggle"))
    yield fake
    fake.close()

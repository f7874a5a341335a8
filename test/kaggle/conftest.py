"""What the tests of this folder share. They run in .cache/remote, the environment
with kagglesdk, kaggle and codecarbon (`scripts/setup` makes it)."""

import pytest

from fakekaggle import Fake


@pytest.fixture(scope="session")
def kaggle(tmp_path_factory):
    fake = Fake(tmp_path_factory.mktemp("kaggle"))
    yield fake
    fake.close()

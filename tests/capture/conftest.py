import os
import sys

import pytest

_HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(_HERE))
PACKAGE = os.path.join(REPOSITORY, "tools", "capture")
sys.path[:0] = [_HERE, PACKAGE]

torch = pytest.importorskip("torch")
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def bundle(tmp_path_factory):
    """A bundle with every kind of segment and three steps, in diffusers' layout."""
    pytest.importorskip("diffusers")
    from bundles import make_bundle

    case = {"name": "tiny", "seed": 3, "cond_video_rows": 4, "cond_audio_rows": 2, "steps": 3}
    path = tmp_path_factory.mktemp("bundles") / "every-segment"
    return make_bundle(path, cond_video=4, cond_audio=2, vision=2, case=case)

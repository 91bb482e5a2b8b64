import json
import os
import pathlib
import subprocess

import pytest
import torch

DATA = pathlib.Path(__file__).parents[2] / "cases" / "data" / "cases"


def call(*words):
    done = subprocess.run([os.environ["H3DIFF_CASE_TOOL"], *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def tool(*words):
    return json.loads(call(*words))


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def case_file(tmp_path):
    """Writes a case like `tiny` with other geometry, shape, seed ..."""

    def write(**changes):
        case = json.loads((DATA / "tiny.json").read_text())
        for key, value in changes.items():
            case[key] = {**case[key], **value} if isinstance(value, dict) else value
        path = tmp_path / f"case{len(list(tmp_path.iterdir()))}.json"
        path.write_text(json.dumps(case))
        return path

    return write

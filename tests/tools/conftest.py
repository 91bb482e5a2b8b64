"""End to end through the command line. H3DIFF_BIN names the folder with h3diff and h3diff-torch."""

import os
import pathlib
import subprocess

import pytest

import dumps

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("H3DIFF_BIN", ROOT / "build" / "release" / "bin"))

needs_torch = pytest.mark.skipif(not (BIN / "h3diff-torch").exists(), reason="this build has no h3diff-torch")


def pytest_configure():
    if not (BIN / "h3diff").exists():
        raise pytest.UsageError(f"{BIN}/h3diff does not exist: build it, or set H3DIFF_BIN")


def h3diff(*words, code=0, **options):
    """Runs h3diff, checks its exit code, and that it neither crashed nor coloured a pipe."""
    result = subprocess.run(
        [str(BIN / "h3diff"), *map(str, words)], capture_output=True, text=True, timeout=300, **options
    )
    assert result.returncode == code, f"exit {result.returncode}, not {code}\n{result.stdout}\n{result.stderr}"
    assert "\x1b" not in result.stdout + result.stderr
    return result


def refused(*words, code, says, **options):
    """One clear sentence on standard error, holding every part of `says`."""
    result = h3diff(*words, code=code, **options)
    for part in says:
        assert str(part) in result.stderr, result.stderr
    assert "bug of ours" not in result.stderr
    return result


def check_width(text):
    """At most 100 columns, unless one word (a path, a capture specification) is longer than that leaves room for."""
    for line in text.splitlines():
        assert len(line) <= 100 or max(map(len, line.split())) > 60, line


@pytest.fixture(scope="session")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle") / "tiny"
    h3diff("case", "export", "tiny", "--layout", "diffusers", "-o", path)
    return path


@pytest.fixture(scope="session")
def run_dump(bundle, tmp_path_factory):
    """A dump of two steps of the real forward, with block 0's tensors."""
    path = tmp_path_factory.mktemp("run") / "tiny.h5"
    h3diff("run", bundle, "--profile", "diffusers-f32", "--steps", 2, "--capture", "stats,blocks.0.*=full", "-o", path)
    return path


@pytest.fixture
def dump(tmp_path):
    """A small hand-made dump, written with h5py from the text of docs/dump-format.md alone."""
    return dumps.write(tmp_path / "small.h5")

"""What the tests share: where the binary, the environment and the shared inputs are."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(os.environ.get("LEVIN_BIN", ROOT / "build/release/levin"))
SHARED = pathlib.Path(os.environ.get("LEVIN_SHARED", ROOT.parent / "shared"))
sys.path.insert(0, str(ROOT / "tests"))


@pytest.fixture(scope="session")
def levin():
    """Runs the binary and returns the finished process; text in and out."""
    if not BIN.exists():
        pytest.fail(f"{BIN} is not built (or set LEVIN_BIN)")

    def run(*args, timeout=120, **kwargs):
        return subprocess.run([str(BIN), *map(str, args)], capture_output=True, text=True, timeout=timeout, **kwargs)

    return run


@pytest.fixture(scope="session")
def shared():
    """The folder of shared specs, data and clients; tests that need it are skipped without it."""
    if not SHARED.exists():
        pytest.skip(f"{SHARED} is not there (or set LEVIN_SHARED)")
    return SHARED

"""Recorded traffic of the protocol's reference store, replayed against `levin serve`.

LEVIN_SHARED names the folder that holds the recordings (default: ../shared beside the repository); without it these tests are
skipped.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import BIN, SHARED

REPLAY = SHARED / "conformance" / "replay.py"
# `quirk-*` pin accidents of the reference server that are not copied (docs/compatibility.md).
SCENARIOS = sorted(p for p in (SHARED / "conformance" / "store").glob("*.json") if not p.name.startswith("quirk-"))

if not SCENARIOS:
    pytest.skip(f"NO CONFORMANCE RECORDINGS in {SHARED} (set LEVIN_SHARED)", allow_module_level=True)


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda p: p.stem)
def test_scenario(scenario: Path, backend: str, tmp_path: Path) -> None:
    store = "memory" if backend == "memory" else f"sqlite:{tmp_path / 'levin.db'}"
    result = subprocess.run(
        [sys.executable, str(REPLAY), "--server-cmd", f"{BIN} serve --store {store} --port {{port}}", str(scenario)],
        capture_output=True, text=True, timeout=300, check=False,
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"

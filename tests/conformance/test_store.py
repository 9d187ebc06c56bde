"""Recorded traffic of the protocol's reference store, replayed against `levin serve`.

LEVIN_SHARED names the folder that holds the recordings (default: ../shared beside the repository); without it these tests are
skipped.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import BIN, SHARED

REPLAY = SHARED / "conformance" / "replay.py"
# `quirk-*` pin accidents of the reference server that are not copied (docs/compatibility.md).
SCENARIOS = sorted(p for p in (SHARED / "conformance" / "store").glob("*.json") if not p.name.startswith("quirk-"))

# Steps outside those files that pin the same kind of accident: an idle worker keeps its last rollout, and an update of an old
# attempt moves its worker. Exactly these must differ.
DIFFERENT = {"rollout-dequeue": {10}, "worker-status": {22, 25}}

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
    failed = {int(n) for n in re.findall(r"^FAIL \S+ step (\d+) ", result.stdout, re.MULTILINE)}
    assert re.search(r"^\d+ passed, \d+ failed$", result.stdout, re.MULTILINE), f"{result.stdout}\n{result.stderr}"
    assert failed == DIFFERENT.get(scenario.stem, set()), f"{result.stdout}\n{result.stderr}"

"""The example's own data set: made the same every time, every gold answers, training and validation apart."""
import json
import pathlib
import sqlite3
import subprocess
import sys

import pytest

from conftest import ROOT

DATA = ROOT / ".cache/own_sql"


@pytest.fixture(scope="module")
def sets():
    result = subprocess.run([sys.executable, str(ROOT / "examples/sql/prepare.py")], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return {name: [json.loads(line) for line in open(DATA / f"{name}.jsonl", encoding="utf-8")]
            for name in ("train", "val", "val_unseen", "joins")}


def run(task, sql):
    with sqlite3.connect(f"file:{DATA / task['sqlite']}?mode=ro", uri=True) as db:
        return db.execute(sql).fetchall()


def test_there_is_enough_of_it(sets):
    tables = {t["table"] for name in ("train", "val", "val_unseen") for t in sets[name]}
    assert len(tables) >= 30
    assert sum(len(s) for s in sets.values()) >= 600
    assert len(sets["val"]) >= 60 and len(sets["val_unseen"]) >= 60
    assert len({t["kind"] for t in sets["val"]}) >= 15


def test_every_gold_has_an_answer(sets):
    for tasks in sets.values():
        for task in tasks:
            rows = run(task, task["gold_sql"])
            assert rows and any(v not in (0, None) for row in rows for v in row), task
            if "gold_result" in task:
                assert [list(r) for r in rows] == task["gold_result"]


def test_validation_shares_nothing_with_training(sets):
    golds = {(t["table"], t["gold_sql"]) for t in sets["train"]}
    assert not golds & {(t["table"], t["gold_sql"]) for t in sets["val"]}
    asked = {(t["table"], t["question"]) for t in sets["train"]}
    assert not asked & {(t["table"], t["question"]) for t in sets["val"]}
    seen = {t["table"] for t in sets["train"] + sets["val"]}
    assert not seen & {t["table"] for t in sets["val_unseen"]}


def test_counting_rows_is_no_way_to_score(sets):
    for name in ("val", "val_unseen"):
        right = sum(run(t, f'SELECT count(*) FROM "{t["table"]}"') == run(t, t["gold_sql"]) for t in sets[name])
        assert right / len(sets[name]) <= 0.07


def test_prompts_are_short(sets):
    for name in ("train", "val", "val_unseen"):
        assert all(len(t["ddl"]) + len(t["question"]) <= 300 for t in sets[name])


def test_it_is_the_same_every_time(sets, tmp_path):
    sys.path.insert(0, str(ROOT / "examples/sql"))
    before = {p.name: p.read_bytes() for p in DATA.glob("*.jsonl")}
    result = subprocess.run([sys.executable, str(ROOT / "examples/sql/prepare.py"), "--out", str(tmp_path / "again")],
                            capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert before == {p.name: p.read_bytes() for p in (tmp_path / "again").glob("*.jsonl")}

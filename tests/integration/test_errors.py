"""Bad input to `levin train`: one clear line, a non-zero exit, and nothing started."""
import json
import os
import pathlib
import shutil
import socket
import sqlite3

import pytest

from conftest import ROOT

AGENT = ROOT / "examples/sql/agent.py"


@pytest.fixture()
def job(tmp_path):
    """A small valid job: one database, one task."""
    data = tmp_path / "data"
    (data / "database").mkdir(parents=True)
    with sqlite3.connect(data / "database/t.sqlite") as db:
        db.execute("CREATE TABLE t (a INT)")
        db.execute("INSERT INTO t VALUES (1)")
    task = {"id": "1", "question": "How many?", "ddl": "CREATE TABLE t (a INT)", "gold_sql": "SELECT count(*) FROM t",
            "sqlite": "database/t.sqlite"}
    for name in ("train", "val"):
        (data / f"{name}.jsonl").write_text(json.dumps(task) + "\n")
    (tmp_path / "job.yaml").write_text(f"name: job\nagent:\n  file: {AGENT}\ndata:\n  folder: data\n")
    return tmp_path


def refused(levin, job, *args, yaml="job.yaml", **kwargs):
    run = job / "run"
    result = levin("train", job / yaml, "--run", run, *args, timeout=60, **kwargs)
    assert result.returncode in (1, 2), result
    lines = [line for line in result.stderr.splitlines() if line]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("levin: ")
    assert not (run / "levin.db").exists()
    return lines[0]


def test_a_misspelt_key_is_named_with_line_and_suggestion(levin, job):
    (job / "bad.yaml").write_text("name: x\ngrpo:\n  stesp: 3\n")
    line = refused(levin, job, yaml="bad.yaml")
    assert "line 3" in line and "grpo.stesp" in line and 'did you mean "grpo.steps"' in line


def test_a_missing_file_is_named(levin, job):
    assert "nothing.yaml" in refused(levin, job, yaml="nothing.yaml")


def test_a_folder_in_the_place_of_a_file_is_named(levin, tmp_path):
    result = levin("train", tmp_path)
    assert result.returncode == 1 and f"{tmp_path}: Is a directory" in result.stderr


def test_a_missing_task_file_is_named(levin, job):
    assert "nothing.jsonl" in refused(levin, job, "--set", "data.train=nothing.jsonl")


def test_a_line_that_is_not_json_is_named_with_file_and_line(levin, job):
    with open(job / "data/val.jsonl", "a") as file:
        file.write("{oops\n")
    assert "val.jsonl:2: not JSON" in refused(levin, job)


def test_a_missing_database_is_named(levin, job):
    (job / "data/database/t.sqlite").unlink()
    line = refused(levin, job)
    assert "train.jsonl:1" in line and "t.sqlite" in line


def test_a_missing_model_is_named(levin, job):
    assert "none.gguf" in refused(levin, job, "--set", "model.path=none.gguf")


def test_a_file_that_is_no_gguf_is_named(levin, job):
    (job / "model.gguf").write_bytes(b"not a model at all" * 100)
    assert "model.gguf" in refused(levin, job, "--set", f"model.path={job}/model.gguf")


def test_an_agent_that_is_not_there_is_named(levin, job):
    line = refused(levin, job, "--set", "agent.file=/nonexistent/agent.py")
    assert "agent can't be started" in line


def test_an_agent_that_fails_at_import_says_why(levin, job):
    (job / "broken.py").write_text("import no_such_module_anywhere\n")
    line = refused(levin, job, "--set", f"agent.file={job}/broken.py")
    assert "agent can't be started" in line and "no_such_module_anywhere" in line


def test_a_command_that_is_not_there_is_named(levin, job):
    line = refused(levin, job, "--set", "agent.kind=command", "--set", "agent.command=/nonexistent/agent --x")
    assert "/nonexistent/agent" in line


def test_a_port_in_use_is_named(levin, job):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = levin("train", job / "job.yaml", "--run", job / "run", "--set", f"server.port={port}", timeout=60)
    assert result.returncode == 1
    assert str(port) in result.stderr and "in use" in result.stderr


def test_a_run_that_exists_is_not_overwritten(levin, job):
    (job / "run").mkdir()
    (job / "run/config.json").write_text("{}")
    assert "--resume" in refused(levin, job)


def test_nothing_to_resume_is_said(levin, job):
    assert "no run to resume" in refused(levin, job, "--resume")


@pytest.mark.parametrize("assignment, part", [
    ("grpo.steps=x", "wants a number"),
    ("grpo.samples=1", "between 2 and 256"),
    ("agent.kind=hot", "warm|command"),
    ("nonsense", "KEY=VALUE"),
])
def test_a_wrong_override_is_said(levin, job, assignment, part):
    assert part in refused(levin, job, "--set", assignment)


def test_wrong_usage_exits_with_2(levin):
    assert levin("train").returncode == 2
    assert levin("train", "--nonsense").returncode == 2
    assert levin("nonsense").returncode == 2
    assert levin("train", "--help").returncode == 0
    assert levin("--help").returncode == 0


def test_no_disk_space_is_said_before_the_start(levin, job):
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    small = job / "small"
    small.mkdir()
    if os.system(f"mount -t tmpfs -o size=1m levin-test {small} 2>/dev/null"):
        pytest.skip("no tmpfs may be mounted here")
    try:
        result = levin("train", job / "job.yaml", "--run", small / "run", timeout=60)
        assert result.returncode == 1
        assert "free" in result.stderr and len(result.stderr.strip().splitlines()) == 1
    finally:
        os.system(f"umount {small}")


def test_the_reference_of_options_is_what_the_program_prints(levin):
    assert (ROOT / "docs/options.md").read_text().endswith(levin("options").stdout)

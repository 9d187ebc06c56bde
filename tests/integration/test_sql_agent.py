"""The text-to-SQL example as it is run: as a command, and warm behind src/runner/shim/levin_worker.py, with the real OpenAI
SDK against the scripted model server in LEVIN_SHARED (default ../shared beside the source folder)."""
import contextlib
import http.server
import json
import os
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("openai")

SOURCE = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("LEVIN_SHARED", SOURCE.parent / "shared"))
FAKE = SHARED / "conformance" / "fake_llm.py"
TINY = SHARED / "data" / "spider_tiny"
AGENT = SOURCE / "examples" / "sql" / "agent.py"
SHIM = SOURCE / "src" / "runner" / "shim" / "levin_worker.py"


@pytest.fixture(scope="module")
def model_server(tmp_path_factory):
    if not FAKE.exists() or not TINY.is_dir():
        pytest.skip(f"no scripted model server at {FAKE} (LEVIN_SHARED)")
    record = tmp_path_factory.mktemp("record")
    command = [sys.executable, str(FAKE), "--port", "0", "--record", str(record), "--data", str(TINY)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield f"http://127.0.0.1:{server.stdout.readline().split()[-1]}"
    finally:
        server.terminate()
        server.wait(10)


def tasks(count: int) -> list[dict]:
    rows = [json.loads(line) for line in (TINY / "val.jsonl").open()][:count]
    return [{**row, "sqlite": str(TINY / row["sqlite"])} for row in rows]


def environment(server: str, client: str, words: str = "agent") -> dict[str, str]:
    return {"OPENAI_BASE_URL": f"{server}/s/{client}/{words}/v1", "OPENAI_API_KEY": f"key-of-{client}"}


def seen(server: str, client: str, words: str = "agent") -> list[dict]:
    with urllib.request.urlopen(f"{server}/s/{client}/{words}/_log", timeout=10) as answer:
        return [entry for entry in json.load(answer) if entry["path"].endswith("/chat/completions")]


def rows(task: dict, query: str) -> list[tuple]:
    with contextlib.closing(sqlite3.connect(f"file:{task['sqlite']}?mode=ro", uri=True)) as database:
        return database.execute(query).fetchall()


def run_agent(task: dict, env: dict[str, str]) -> str:
    done = subprocess.run([sys.executable, str(AGENT)], input=json.dumps(task), stdout=subprocess.PIPE, text=True,
                          env={**os.environ, **env}, timeout=60, check=True)
    return json.loads(done.stdout.splitlines()[-1])["output"]


class Worker:
    """A warm worker and both ends of its pipes."""

    def __init__(self, target: str, *, errors=None):
        self.process = subprocess.Popen([sys.executable, str(SHIM), target], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=errors, text=True)
        self.first = json.loads(self.process.stdout.readline())

    def ask(self, number: int, task, env: dict[str, str] | None = None) -> dict:
        self.process.stdin.write(json.dumps({"id": number, "task": task, "env": env or {}}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        assert self.process.wait(10) is not None


def worker_for(folder: Path, source: str, name: str = "solve", **options) -> Worker:
    (folder / "user_agent.py").write_text(source)
    return Worker(f"{folder / 'user_agent.py'}:{name}", **options)


def test_command_rewrites_after_an_error_and_prints_the_query(model_server):
    task = tasks(1)[0]
    output = run_agent(task, environment(model_server, "command"))
    assert rows(task, output) == rows(task, task["gold_sql"])
    calls = seen(model_server, "command")
    assert len(calls) == 2, "a first query that fails, then the right one"
    first, second = (call["body"]["messages"] for call in calls)
    assert first == [{"role": "system", "content": "Answer with one SQLite query and nothing else."},
                     {"role": "user", "content": f"{task['ddl']}\n{task['question']}"}]
    assert second[:2] == first and second[2]["role"] == "assistant"
    assert second[3]["content"].startswith("Error: ")
    assert calls[0]["body"]["model"] == "policy"


def test_command_gives_up_after_three_turns(model_server):
    task = tasks(1)[0]
    output = run_agent(task, environment(model_server, "stubborn", "text=SELECT%20nothing%20FROM%20nowhere"))
    assert output == "SELECT nothing FROM nowhere"
    assert len(seen(model_server, "stubborn", "text=SELECT%20nothing%20FROM%20nowhere")) == 3


def test_command_cannot_change_the_database(model_server, tmp_path):
    path = tmp_path / "own.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript("CREATE TABLE t (a); INSERT INTO t VALUES (1)")
    task = {"question": "How many?", "ddl": "CREATE TABLE t (a)", "sqlite": str(path)}
    words = "text=DELETE%20FROM%20t"
    assert run_agent(task, environment(model_server, "deleting", words)) == "DELETE FROM t"
    assert rows(task, "SELECT * FROM t") == [(1,)]
    assert "readonly" in seen(model_server, "deleting", words)[1]["body"]["messages"][3]["content"]


def test_command_interrupts_a_query_without_end(model_server):
    task = tasks(1)[0]
    endless = "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i FROM r) SELECT count(*) FROM r"
    words = "text=" + urllib.request.quote(endless, safe="")
    assert run_agent(task, environment(model_server, "endless", words)) == endless
    assert "interrupted" in seen(model_server, "endless", words)[2]["body"]["messages"][5]["content"]


def test_warm_worker_solves_task_after_task_each_at_its_own_url(model_server):
    with Worker(f"{AGENT}:solve") as worker:
        assert worker.first == {"ready": True}
        for number, task in enumerate(tasks(12)):
            answer = worker.ask(number, task, environment(model_server, f"warm{number}"))
            assert (answer["id"], answer["ok"]) == (number, True), answer
            assert rows(task, answer["output"]) == rows(task, task["gold_sql"])
            calls = seen(model_server, f"warm{number}")
            assert len(calls) == 2


def test_warm_worker_sends_the_key_of_each_task(model_server):
    keys = []

    class Model(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            keys.append(self.headers["authorization"])
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "SELECT 1"}}
            body = json.dumps({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model) as server, Worker(f"{AGENT}:solve") as worker:
        server.daemon_threads = server.block_on_close = False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        for number, task in enumerate(tasks(3)):
            env = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": f"key-{number}"}
            assert worker.ask(number, task, env)["output"] == "SELECT 1"
        server.shutdown()
    assert keys == ["Bearer key-0", "Bearer key-1", "Bearer key-2"]


def test_warm_worker_reports_a_failed_call_and_goes_on(model_server):
    task = tasks(1)[0]
    with Worker(f"{AGENT}:solve") as worker:
        failed = worker.ask(1, task, environment(model_server, "failing", "e400"))
        assert failed["ok"] is False and failed["error"].startswith("BadRequestError: ")
        assert "solve" in failed["traceback"]
        assert worker.ask(2, task, environment(model_server, "recovered"))["ok"] is True


def test_shim_keeps_prints_out_of_the_protocol(tmp_path):
    source = "import os, subprocess\ndef solve(task):\n    print('noise'); os.write(1, b'raw\\n')\n" \
             "    subprocess.run(['echo', 'child'])\n    return {'got': task, 'rest': input.__name__}\n"
    with (tmp_path / "errors").open("w+") as errors:
        with worker_for(tmp_path, source, errors=errors) as worker:
            assert worker.ask(7, {"é": [1, None]}) == {"id": 7, "ok": True, "output": {"got": {"é": [1, None]}, "rest": "input"}}
        errors.seek(0)
        assert sorted(errors.read().split()) == ["child", "noise", "raw"]


def test_shim_gives_the_user_an_empty_standard_input(tmp_path):
    with worker_for(tmp_path, "import sys\ndef solve(task):\n    return sys.stdin.read() + 'end'\n") as worker:
        assert worker.ask(1, None)["output"] == "end"
        assert worker.ask(2, None)["output"] == "end"


def test_shim_reports_exceptions_exits_and_what_is_not_json(tmp_path):
    source = "import sys\ndef solve(task):\n    if task == 1: raise ValueError('bad')\n    if task == 2: sys.exit(3)\n" \
             "    return object() if task == 3 else 'fine'\n"
    with worker_for(tmp_path, source, errors=subprocess.DEVNULL) as worker:
        assert worker.ask(1, 1)["error"] == "ValueError: bad"
        assert worker.ask(2, 2)["error"] == "SystemExit: 3"
        assert worker.ask(3, 3)["error"].startswith("TypeError: ")
        assert worker.ask(4, 4) == {"id": 4, "ok": True, "output": "fine"}


def test_shim_sets_variables_for_one_task_only(tmp_path):
    source = "import os\ndef solve(task):\n    return [os.environ.get('A'), os.environ.get('HOME')]\n"
    with worker_for(tmp_path, source) as worker:
        home = os.environ.get("HOME")
        assert worker.ask(1, None, {"A": "1", "HOME": "/elsewhere"})["output"] == ["1", "/elsewhere"]
        assert worker.ask(2, None)["output"] == [None, home]


def test_shim_awaits_an_async_function_and_imports_neighbours(tmp_path):
    (tmp_path / "neighbour.py").write_text("WORD = 'near'\n")
    source = "import asyncio, neighbour\nasync def solve(task):\n    await asyncio.sleep(0)\n    return neighbour.WORD\n"
    with worker_for(tmp_path, source) as worker:
        assert worker.ask(1, None)["output"] == "near"


@pytest.mark.parametrize("source, name, error", [
    ("raise RuntimeError('no')\n", "solve", "RuntimeError: no"),
    ("def solve(task): pass\n", "sovle", "AttributeError: "),
    ("def solve(task:\n", "solve", "SyntaxError: "),
], ids=["raises", "no such function", "syntax"])
def test_shim_says_why_it_cannot_start(tmp_path, source, name, error):
    with worker_for(tmp_path, source, name, errors=subprocess.DEVNULL) as worker:
        assert worker.first["ready"] is False and worker.first["error"].startswith(error)
    assert worker.process.returncode == 1

"""kill -9 at random moments while many clients work: nothing acknowledged is lost, nothing happens twice.

LEVIN_CRASH_KILLS=200 is the long form; LEVIN_CRASH_SEED repeats a run."""
import collections
import http.client
import json
import os
import random
import socket
import subprocess
import threading
import time

from conftest import BIN

KILLS = int(os.environ.get("LEVIN_CRASH_KILLS", "12"))
SEED = int(os.environ.get("LEVIN_CRASH_SEED", str(random.randrange(10 ** 6))))
CLIENTS = 8


class Gone(Exception):
    """The server went away before it answered: the request may have happened or not."""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(store, port):
    process = subprocess.Popen([str(BIN), "serve", "--store", f"sqlite:{store}", "--port", str(port)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    assert "http://" in line, process.stderr.read()
    return process


class Client:
    def __init__(self, port):
        self.port = port
        self.connection = None

    def __call__(self, method, path, body=None):
        try:
            if not self.connection:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            self.connection.request(method, "/v1/agl" + path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
            answer = self.connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.connection = None
            raise Gone from error
        assert answer.status < 300, (answer.status, text)
        return json.loads(text)

    def until_it_answers(self, method, path, body=None):
        while True:
            try:
                return self(method, path, body)
            except Gone:
                time.sleep(0.01)


class Record:
    """What was acknowledged. Each client writes its own; they are read when all have stopped or under the lock."""

    def __init__(self):
        self.lock = threading.Lock()
        self.enqueued, self.finished, self.spans = {}, set(), collections.defaultdict(set)
        self.claims = []  # (rollout, attempt)
        self.numbers = collections.defaultdict(list)


def span(rollout_id, attempt_id, name, number):
    return {"rollout_id": rollout_id, "attempt_id": attempt_id, "sequence_id": number, "trace_id": "t", "span_id": name, "parent_id": None,
            "name": "step", "status": {"status_code": "OK"}, "attributes": {"text": "x" * 500}, "events": [], "links": [], "start_time": 1.0,
            "end_time": 2.0, "context": None, "parent": None, "resource": {"attributes": {}, "schema_url": ""}}


def work(port, number, record, stop):
    ask, turn = Client(port), 0
    while not stop.is_set():
        turn += 1
        try:
            name = f"{number}-{turn}"
            rollout, = ask("POST", "/queues/rollouts/enqueue", {"rollouts": [{"input": name}]})
            with record.lock:
                record.enqueued[rollout["rollout_id"]] = name
            taken = ask("POST", "/queues/rollouts/dequeue", {"limit": 1, "worker_id": f"w{number}"})
            for claimed in taken:
                ids = claimed["rollout_id"], claimed["attempt"]["attempt_id"]
                with record.lock:
                    record.claims.append(ids)
                for i in range(2):
                    issued = ask("POST", "/spans/next", {"rollout_id": ids[0], "attempt_id": ids[1]})["sequence_id"]
                    with record.lock:
                        record.numbers[ids[0]].append(issued)
                    wanted = span(*ids, f"{name}-{i}", issued)
                    try:
                        ask("POST", "/spans", wanted)
                    except Gone:
                        ask.until_it_answers("POST", "/spans", wanted)  # again: it must be there once
                    with record.lock:
                        record.spans[ids[0]].add(f"{name}-{i}")
                ask("POST", f"/rollouts/{ids[0]}/attempts/{ids[1]}", {"status": "succeeded"})
                with record.lock:
                    record.finished.add(ids[0])
        except Gone:
            time.sleep(0.01)


def check(port, record):
    ask = Client(port)
    with record.lock:
        enqueued, finished, claims = dict(record.enqueued), set(record.finished), list(record.claims)
    there = {r["rollout_id"]: r for r in ask.until_it_answers("GET", "/rollouts?limit=-1")["items"]}
    for rollout_id, name in enqueued.items():
        assert there[rollout_id]["input"] == name
    inputs = collections.Counter(r["input"] for r in there.values())
    assert max(inputs.values(), default=1) == 1, "a rollout was made twice"
    for rollout_id in finished:
        assert there[rollout_id]["status"] == "succeeded", there[rollout_id]
    assert len(set(claims)) == len(claims), "two were given the same attempt"
    assert len({rollout for rollout, _ in claims}) == len(claims), "two were given the same rollout"
    for rollout_id, attempt_id in claims:
        assert there[rollout_id]["attempt"]["attempt_id"] == attempt_id
        assert there[rollout_id]["status"] in ("preparing", "running", "succeeded")


def check_spans(port, record):
    ask = Client(port)
    for rollout_id, names in record.spans.items():
        stored = [s["span_id"] for s in ask("GET", f"/spans?rollout_id={rollout_id}")["items"]]
        assert len(stored) == len(set(stored)) and names <= set(stored), (rollout_id, names, stored)
    for issued in record.numbers.values():
        assert len(set(issued)) == len(issued), "a number was given twice"


def check_queue(port, record):
    """What is left comes in the order in which each client had put it in, once."""
    ask, seen = Client(port), []
    while got := ask("POST", "/queues/rollouts/dequeue", {"limit": 50, "worker_id": "last"}):
        seen += [r["rollout_id"] for r in got]
    assert len(seen) == len(set(seen)) and not set(seen) & {rollout for rollout, _ in record.claims}
    turns = collections.defaultdict(list)
    for rollout_id in seen:
        if rollout_id in record.enqueued:
            client, turn = record.enqueued[rollout_id].split("-")
            turns[client].append(int(turn))
    for order in turns.values():
        assert order == sorted(order)


def test_nothing_acknowledged_is_lost_and_nothing_happens_twice(tmp_path):
    print(f"LEVIN_CRASH_SEED={SEED}")
    rng, record, stop, port, store = random.Random(SEED), Record(), threading.Event(), free_port(), tmp_path / "levin.db"
    server = start(store, port)
    failures = []

    def guarded(number):
        try:
            work(port, number, record, stop)
        except BaseException as error:  # shown by the test, which goes on meanwhile
            failures.append(error)

    clients = [threading.Thread(target=guarded, args=(i,)) for i in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        for _ in range(KILLS):
            time.sleep(rng.uniform(0.02, 0.5))
            server.kill()
            server.wait()
            server = start(store, port)
            if rng.random() < 0.3:
                check(port, record)
            assert not failures
    finally:
        stop.set()
        for client in clients:
            client.join(60)
    assert not failures, failures
    check(port, record)
    check_spans(port, record)
    check_queue(port, record)
    server.terminate()
    assert server.wait(20) == 0
    print(f"{len(record.enqueued)} enqueued, {len(record.claims)} claimed, {len(record.finished)} finished, {KILLS} kills")
    assert len(record.finished) > KILLS

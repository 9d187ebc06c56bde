"""What the store's server can do beyond the protocol of Agent-Lightning v0.3."""
import json
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest

from conftest import BIN


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path):
    store = "memory" if request.param == "memory" else f"sqlite:{tmp_path}/levin.db"
    process = subprocess.Popen([str(BIN), "serve", "--store", store, "--port", "0"], stdout=subprocess.PIPE, text=True)
    address = re.search(r"http://\S+", process.stdout.readline())
    assert address
    yield address.group(0)
    begin = time.monotonic()
    process.terminate()
    assert process.wait(timeout=20) == 0
    assert time.monotonic() - begin < 4  # less than the grace for requests in flight: there are none, whoever has left meanwhile


def call(url, path, body=None, **headers):
    data = None if body is None else json.dumps(body).encode()
    headers = {name.replace("_", "-"): value for name, value in headers.items()} | {"Content-Type": "application/json"}
    request = urllib.request.Request(url + path, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def span(rollout, number, **changes):
    return {"rollout_id": rollout["rollout_id"], "attempt_id": rollout["attempt"]["attempt_id"], "sequence_id": number, "trace_id": "t",
            "span_id": f"s{number}", "parent_id": None, "name": "step", "status": {"status_code": "OK"}, "attributes": {"n": number},
            "events": [], "links": [], "start_time": 1.0, "end_time": 2.0, "context": None, "parent": None,
            "resource": {"attributes": {}, "schema_url": ""}} | changes


def test_many_spans_in_one_request_are_those_of_many_requests(url):
    _, rollout = call(url, "/v1/agl/rollouts", {"input": 1})
    one, _ = call(url, "/v1/agl/spans", span(rollout, 3))
    assert one == 201
    status, stored = call(url, "/v1/agl/spans/batch", {"spans": [span(rollout, n) for n in (1, 2, 3, 4)]})
    assert status == 201
    assert [s and s["sequence_id"] for s in stored] == [1, 2, None, 4]  # the third was there
    _, page = call(url, f"/v1/agl/spans?rollout_id={rollout['rollout_id']}&sort_by=sequence_id")
    assert [s["attributes"]["n"] for s in page["items"]] == [1, 2, 3, 4]
    assert call(url, "/v1/agl/spans/batch", {"spans": []}) == (201, [])
    # The next number goes on behind the highest that was given.
    _, following = call(url, "/v1/agl/spans/next", {"rollout_id": rollout["rollout_id"], "attempt_id": rollout["attempt"]["attempt_id"]})
    assert following["sequence_id"] == 5


def test_a_wrong_span_among_many_is_named_and_nothing_is_stored(url):
    _, rollout = call(url, "/v1/agl/rollouts", {"input": 1})
    status, told = call(url, "/v1/agl/spans/batch", {"spans": [span(rollout, 1), span(rollout, "x")]})
    assert status == 422 and told["detail"][0]["loc"] == ["body", "spans", 1, "sequence_id"]
    status, told = call(url, "/v1/agl/spans/batch", {"spans": [span(rollout, 1), span(rollout, 10 ** 30)]})
    assert status == 422 and told["detail"][0]["loc"] == ["body", "spans", 1, "sequence_id"]
    assert call(url, f"/v1/agl/spans?rollout_id={rollout['rollout_id']}")[1]["total"] == 0


def test_a_dequeue_waits_for_work(url):
    begin = time.monotonic()
    assert call(url, "/v1/agl/queues/rollouts/dequeue?wait=0.3", {"limit": 1}) == (200, [])
    assert time.monotonic() - begin >= 0.29
    threading.Timer(0.2, call, (url, "/v1/agl/queues/rollouts/enqueue", {"rollouts": [{"input": 7}]})).start()
    status, got = call(url, "/v1/agl/queues/rollouts/dequeue?wait=20", {"limit": 1})
    assert status == 200 and [r["input"] for r in got] == [7]
    assert time.monotonic() - begin < 15
    assert call(url, "/v1/agl/queues/rollouts/dequeue?wait=soon", {"limit": 1})[0] == 422


def test_an_enqueue_with_a_key_happens_once(url):
    enqueue, two = "/v1/agl/queues/rollouts/enqueue", {"rollouts": [{"input": 1}, {"input": 2}]}
    first = call(url, enqueue, two, Idempotency_Key="a")
    assert first[0] == 201
    taken = call(url, "/v1/agl/queues/rollouts/dequeue", {"limit": 1})[1][0]
    again = call(url, enqueue, two, Idempotency_Key="a")
    assert again[0] == 201 and [r["rollout_id"] for r in again[1]] == [r["rollout_id"] for r in first[1]]
    assert [r["status"] for r in again[1]] == ["preparing", "queuing"] and again[1][0]["rollout_id"] == taken["rollout_id"]
    assert call(url, "/v1/agl/rollouts")[1]["total"] == 2
    other = call(url, enqueue, {"rollouts": [{"input": 3}]}, Idempotency_Key="a")
    assert other[0] == 422 and "another request" in other[1]["detail"]
    assert call(url, enqueue, two, Idempotency_Key="b")[1][0]["rollout_id"] != taken["rollout_id"]
    assert call(url, enqueue, {"rollouts": [{"input": 1}, {"input": {"no": "mode"}, "mode": "x"}]}, Idempotency_Key="c")[0] == 422
    assert call(url, enqueue, two, Idempotency_Key="c")[0] == 201  # a refused request uses no key
    assert call(url, enqueue, two, Idempotency_Key="k" * 256)[0] == 400
    assert call(url, "/v1/agl/rollouts")[1]["total"] == 6


def test_a_key_outlives_the_server(tmp_path):
    ids = []
    for _ in range(2):
        process = subprocess.Popen([str(BIN), "serve", "--store", f"sqlite:{tmp_path}/levin.db", "--port", "0"], stdout=subprocess.PIPE, text=True)
        url = re.search(r"http://\S+", process.stdout.readline()).group(0)
        ids.append(call(url, "/v1/agl/queues/rollouts/enqueue", {"rollouts": [{"input": 1}]}, Idempotency_Key="a")[1][0]["rollout_id"])
        process.kill()
        process.wait()
    assert ids[0] == ids[1]


class Events:
    """A stream of server-sent events, read line by line."""

    def __init__(self, url, query="", last=None):
        headers = {} if last is None else {"Last-Event-ID": last}
        self.answer = urllib.request.urlopen(urllib.request.Request(f"{url}/v1/agl/events{query}", headers=headers), timeout=20)
        assert self.answer.headers["Content-Type"] == "text/event-stream"

    def next(self):
        event = {}
        while True:
            line = self.answer.readline().decode()
            if not line:
                return None
            line = line.rstrip("\n")
            if not line and event:
                return event["id"], event["event"], json.loads(event["data"])
            if line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                event[name] = value


def finish_one(url, text, worker="w"):
    rollout = call(url, "/v1/agl/queues/rollouts/enqueue", {"rollouts": [{"input": text}]})[1][0]["rollout_id"]
    taken = call(url, "/v1/agl/queues/rollouts/dequeue", {"limit": 1, "worker_id": worker})[1][0]
    attempt = taken["attempt"]["attempt_id"]
    call(url, f"/v1/agl/rollouts/{rollout}/attempts/{attempt}", {"status": "running"})
    call(url, f"/v1/agl/rollouts/{rollout}/attempts/{attempt}", {"last_heartbeat_time": 5.0})  # no change of a status
    call(url, f"/v1/agl/rollouts/{rollout}/attempts/{attempt}", {"status": "succeeded"})
    return rollout, attempt


def test_every_change_of_a_status_is_told_once_and_in_order(url):
    events = Events(url)
    assert events.next()[1:] == ("ready", {})
    rollout, attempt = finish_one(url, "a")
    seen = []
    while seen[-1:] != [("rollout", "succeeded")]:
        _, name, data = events.next()
        if name in ("rollout", "attempt"):
            assert data["rollout_id"] == rollout and data.get("attempt_id", attempt) == attempt
            seen.append((name, data["status"]))
    assert [s for n, s in seen if n == "rollout"] == ["queuing", "preparing", "running", "succeeded"]
    assert [s for n, s in seen if n == "attempt"] == ["preparing", "running", "succeeded"]
    call(url, "/v1/agl/resources", {"p": {"resource_type": "prompt_template", "template": "x", "engine": "jinja"}})
    while (event := events.next())[1] != "resources":
        assert event[1] == "worker"
    assert event[2]["version"] == 1 and event[2]["resources_id"]


def test_a_client_that_comes_back_misses_nothing(url):
    events = Events(url)
    last = events.next()[0]
    rollouts = [finish_one(url, str(i))[0] for i in range(5)]
    events.answer.close()
    again = Events(url, last=last)
    finished = []
    while len(finished) < 5:
        number, name, data = again.next()
        assert int(number.split("-")[1]) == int(last.split("-")[1]) + 1  # none left out
        last = number
        if (name, data.get("status")) == ("rollout", "succeeded"):
            finished.append(data["rollout_id"])
    assert finished == rollouts
    # A number of another process, or one that was never sent, can't be gone on from.
    for unknown in ("123-5", last.split("-")[0] + "-999999", "x", last + "0" * 30):
        assert Events(url, last=unknown).next()[1] == "reset"


def test_a_stream_of_one_rollout_has_only_its_events(url):
    first = call(url, "/v1/agl/rollouts", {"input": 1})[1]["rollout_id"]
    events = Events(url, f"?rollout_id={first}")
    assert events.next()[1] == "ready"
    finish_one(url, "other")
    call(url, f"/v1/agl/rollouts/{first}/attempts/latest", {"status": "failed"})
    _, name, data = events.next()
    assert data["rollout_id"] == first and name in ("rollout", "attempt") and data["status"] == "failed"


def test_who_was_away_for_long_is_told_to_ask(url):
    events = Events(url)
    last = events.next()[0]
    for _ in range(9):  # 1,000 rollouts each, an event a rollout
        call(url, "/v1/agl/queues/rollouts/enqueue", {"rollouts": [{"input": 1}] * 1000})
    number, name, _ = Events(url, last=last).next()
    assert name == "reset" and int(number.split("-")[1]) == 9000
    # Who has read on is given all of them, however slowly it reads.
    seen = 0
    while seen < 9000:
        _, name, _ = events.next()
        if name == "reset":
            break
        seen += name == "rollout"
    assert seen == 9000 or name == "reset"


def test_the_streams_end_when_the_server_does(tmp_path):
    process = subprocess.Popen([str(BIN), "serve", "--store", "memory", "--port", "0"], stdout=subprocess.PIPE, text=True)
    url = re.search(r"http://\S+", process.stdout.readline()).group(0)
    streams = [Events(url) for _ in range(3)]
    begin = time.monotonic()
    process.terminate()
    assert process.wait(timeout=20) == 0
    assert time.monotonic() - begin < 3
    for stream in streams:
        assert stream.next()[1] == "ready" and stream.next() is None

"""What spec says about the wire beyond the recordings: content types, null rules, paging errors, waits, OTLP details."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import BIN

API = "/v1/agl"


class Server:
    def __init__(self, store: str) -> None:
        self.process = subprocess.Popen([str(BIN), "serve", "--store", store, "--port", "0"], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "http://" in line, line
        self.port = int(line.rsplit(":", 1)[1])

    def raw(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None,
            timeout: float = 30) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def call(self, method: str, path: str, body: Any = ..., **more: Any) -> tuple[int, Any]:
        data = None if body is ... else json.dumps(body).encode()
        headers = {} if body is ... else {"Content-Type": "application/json"}
        status, _, answer = self.raw(method, API + path, data, headers, **more)
        return status, json.loads(answer)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(20)


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    store = "memory" if request.param == "memory" else f"sqlite:{tmp_path_factory.mktemp('store') / 'levin.db'}"
    running = Server(store)
    yield running
    assert running.stop() == 0


def start(server: Server) -> tuple[str, str]:
    status, rollout = server.call("POST", "/rollouts", {"input": 1})
    assert status == 201
    return rollout["rollout_id"], rollout["attempt"]["attempt_id"]


def types(detail: list[dict[str, Any]]) -> list[tuple[str, list[Any]]]:
    return [(e["type"], e["loc"]) for e in detail]


def last_line(answer: dict[str, Any]) -> str:
    return answer["traceback"].strip().splitlines()[-1]


@pytest.mark.parametrize("content_type, status", [
    ("application/json", 201), ("application/json; charset=utf-8", 201), ("application/vnd.x+json", 201), ("APPLICATION/JSON", 201),
    ("text/json", 422), ("text/plain", 422), ("application/x-json", 422), (None, 422),
])
def test_content_types(server: Server, content_type: str | None, status: int) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    got, _, body = server.raw("POST", API + "/rollouts", b'{"input": 1}', headers)
    assert got == status
    if status == 422:
        assert types(json.loads(body)["detail"]) == [("model_attributes_type", ["body"])]


def test_a_compressed_json_body_is_not_understood(server: Server) -> None:
    status, _, body = server.raw("POST", API + "/rollouts", gzip.compress(b'{"input": 1}'),
                                 {"Content-Type": "application/json", "Content-Encoding": "gzip"})
    assert (status, json.loads(body)) == (400, {"detail": "There was an error parsing the body"})


def test_null_is_no_body_where_one_is_optional(server: Server) -> None:
    assert server.call("POST", "/queues/rollouts/dequeue", None)[0] == 200
    status, answer = server.call("POST", "/rollouts", None)
    assert status == 422 and types(answer["detail"]) == [("model_attributes_type", ["body"])]
    status, _, body = server.raw("POST", API + "/rollouts", b"", {"Content-Type": "application/json"})
    assert status == 422 and types(json.loads(body)["detail"]) == [("missing", ["body"])]


def test_first_null_field_in_the_order_of_the_model_is_named(server: Server) -> None:
    rollout, attempt = start(server)
    assert server.call("POST", f"/rollouts/{rollout}", {"config": None, "status": None}) == (
        400, {"detail": "status is invalid; it cannot be a null value."})
    assert server.call("POST", f"/rollouts/{rollout}/attempts/{attempt}", {"metadata": None, "worker_id": None}) == (
        400, {"detail": "worker_id is invalid; it cannot be a null value."})


def test_validation_comes_before_the_null_rule(server: Server) -> None:
    rollout, _ = start(server)
    status, answer = server.call("POST", f"/rollouts/{rollout}", {"status": None, "mode": "x"})
    assert status == 422 and types(answer["detail"]) == [("literal_error", ["body", "mode"])]


def test_not_found_is_told_in_the_last_line_of_the_traceback(server: Server) -> None:
    rollout, attempt = start(server)
    queued = server.call("POST", "/queues/rollouts/enqueue", {"rollouts": [{"input": 1}]})[1][0]["rollout_id"]
    cases = [
        (f"/rollouts/nope/attempts", {}, "ValueError: Rollout nope not found"),
        (f"/rollouts/nope/attempts/at-1", {"status": "running"}, "ValueError: Rollout nope not found"),
        (f"/rollouts/{rollout}/attempts/at-1", {}, f"ValueError: Attempt at-1 not found for rollout {rollout}"),
        (f"/rollouts/{queued}/attempts/latest", {}, f"ValueError: No attempts found for rollout {queued}"),
        ("/rollouts/nope", {}, "ValueError: Item does not exist with primary key(s): rollout_id='nope'"),
    ]
    for path, body, want in cases:
        status, answer = server.call("POST", path, body)
        assert status == 500 and answer["detail"] == "Internal server error"
        assert last_line(answer) == want
    status, answer = server.call("GET", "/rollouts/nope")
    assert status == 500 and answer["error_type"] == "ResponseValidationError"


@pytest.mark.parametrize("query, detail", [
    ("limit=0", "Limit must be greater than 0 or -1 for no limit"),
    ("limit=-2", "Limit must be greater than 0 or -1 for no limit"),
    ("offset=-1", "Offset must be greater than or equal to 0"),
    ("sort_by=nope", "Invalid sort_by: nope, allowed fields are: rollout_id, input, start_time, end_time, mode, resources_id, status, "
                     "config, metadata"),
])
def test_bad_pages(server: Server, query: str, detail: str) -> None:
    assert server.call("GET", f"/rollouts?{query}") == (400, {"detail": detail})


def test_an_empty_sort_field_is_unknown(server: Server) -> None:
    for path in ("/rollouts", "/workers", "/resources", "/spans?rollout_id=x"):
        status, answer = server.call("GET", path + ("&" if "?" in path else "?") + "sort_by=")
        assert status == 400 and answer["detail"].startswith("Invalid sort_by: ,")


def test_query_numbers_are_converted(server: Server) -> None:
    status, page = server.call("GET", "/rollouts?limit=%202%20&offset=1_0.0&sort_order=desc&sort_by=start_time")
    assert status == 200 and (page["limit"], page["offset"]) == (2, 10)
    status, answer = server.call("GET", "/rollouts?limit=x&offset=1.5&sort_order=up&status_in=queuing&status_in=bad")
    assert status == 422 and types(answer["detail"]) == [
        ("literal_error", ["query", "status_in", 1]), ("int_parsing", ["query", "limit"]),
        ("int_parsing", ["query", "offset"]), ("literal_error", ["query", "sort_order"])]


def test_things_that_cannot_be_compared(server: Server) -> None:
    start(server), start(server)
    status, answer = server.call("GET", "/rollouts?sort_by=config")
    assert status == 500 and answer["error_type"] in ("TypeError", "ValueError")


def test_methods(server: Server) -> None:
    status, headers, _ = server.raw("DELETE", API + "/rollouts")
    assert status == 405 and set(headers["allow"].split(", ")) == {"GET", "POST"}
    status, headers, body = server.raw("HEAD", API + "/health")
    assert (status, body, headers["content-length"]) == (200, b"", "15")


def test_literal_segments_win_per_method(server: Server) -> None:
    assert server.call("GET", "/workers/search") == (200, None)
    template = {"p": {"resource_type": "prompt_template", "template": "a", "engine": "jinja"}}
    assert server.call("POST", "/resources/latest", template)[1]["resources_id"] == "latest"
    assert server.call("POST", "/resources/search", template)[1]["resources_id"] == "search"
    assert server.call("GET", "/resources/latest")[1]["resources_id"] == "search"
    status, answer = server.call("POST", "/workers/caf%C3%A9%20x", {})
    assert status == 200 and answer["worker_id"] == "café x"


def test_a_wait_that_is_abandoned_leaves_the_server_well(server: Server) -> None:
    rollout, _ = start(server)
    body = json.dumps({"rollout_ids": [rollout], "timeout": None}).encode()
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port)) as s:
            s.sendall(b"POST /v1/agl/waits/rollouts HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                      b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    assert server.call("GET", "/health") == (200, {"status": "ok"})
    assert server.call("POST", f"/rollouts/{rollout}", {"status": "cancelled"})[0] == 200
    status, done = server.call("POST", "/waits/rollouts", {"rollout_ids": [rollout, "nope", rollout]})
    assert status == 200 and [r["rollout_id"] for r in done] == [rollout, rollout]


def test_a_dequeue_may_wait(server: Server) -> None:
    while server.call("POST", "/queues/rollouts/dequeue", {"limit": 1000})[1]:
        pass
    begin = time.monotonic()
    assert server.call("POST", "/queues/rollouts/dequeue?wait=0.2", {"worker_id": "w"}) == (200, [])
    assert 0.15 < time.monotonic() - begin < 5
    box: list[Any] = []
    waiting = threading.Thread(target=lambda: box.append(server.call("POST", "/queues/rollouts/dequeue?wait=20")))
    waiting.start()
    time.sleep(0.1)
    queued = server.call("POST", "/queues/rollouts/enqueue", {"rollouts": [{"input": "late"}]})[1][0]
    waiting.join(20)
    assert box[0][0] == 200 and box[0][1][0]["rollout_id"] == queued["rollout_id"]
    status, answer = server.call("POST", "/queues/rollouts/dequeue?wait=soon")
    assert status == 422 and types(answer["detail"]) == [("float_parsing", ["query", "wait"])]


def test_parked_requests_do_not_hold_up_the_end(tmp_path: Path) -> None:
    server = Server(f"sqlite:{tmp_path / 'levin.db'}")
    rollout, _ = start(server)
    answers: list[Any] = []
    waiting = [threading.Thread(target=lambda p=path, b=body: answers.append(server.call("POST", p, b))) for path, body in (
        ("/waits/rollouts", {"rollout_ids": [rollout], "timeout": None}), ("/queues/rollouts/dequeue?wait=50", {"limit": 1}))]
    for thread in waiting:
        thread.start()
    time.sleep(0.3)
    begin = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - begin < 3
    for thread in waiting:
        thread.join(10)
    assert [status for status, _ in answers] == [503, 503]


def test_too_many_values_are_refused(server: Server) -> None:
    status, _, body = server.raw("POST", API + "/rollouts", b'{"input": [' + b"0," * 5_000_000 + b"0]}",
                                 {"Content-Type": "application/json"})
    assert status == 413 and b"Too many values" in body


def test_a_big_body_is_taken_whole(server: Server) -> None:
    text = "x" * 3_000_000
    status, rollout = server.call("POST", "/rollouts", {"input": text})
    assert status == 201 and rollout["input"] == text
    assert server.call("GET", f"/rollouts/{rollout['rollout_id']}")[1]["input"] == text
    status, answer = server.call("POST", "/rollouts", {"inputs": text})
    assert status == 422 and types(answer["detail"]) == [("missing", ["body", "input"])]


def test_deep_json_is_refused_not_fatal(server: Server) -> None:
    status, _, _ = server.raw("POST", API + "/rollouts", b'{"input": ' + b"[" * 100000 + b"]" * 100000 + b"}",
                              {"Content-Type": "application/json"})
    assert status == 400


def test_numbers_keep_their_kind(server: Server) -> None:
    text = b'{"input": [1, 1.0, 1e3, -0.0, 12345678901234567890123, 1e-7, 1.5e300, NaN], "config": {"timeout_seconds": 5}}'
    _, _, body = server.raw("POST", API + "/rollouts", text, {"Content-Type": "application/json"})
    assert b'"input":[1,1.0,1000.0,-0.0,12345678901234567890123,1e-07,1.5e+300,null]' in body
    assert b'"timeout_seconds":5.0' in body


def test_gzip_traces(server: Server) -> None:
    headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "GZIP", "Accept-Encoding": "gzip;q=0"}
    status, answer, body = server.raw("POST", "/v1/traces", gzip.compress(b""), headers)
    assert (status, answer["content-encoding"], gzip.decompress(body)) == (200, "gzip", b"")
    status, answer, body = server.raw("POST", "/v1/traces", b"", {"Accept-Encoding": "gzip"})
    assert status == 400 and gzip.decompress(body).endswith(b"Unsupported Content-Type '', expected 'application/x-protobuf'")
    status, answer, body = server.raw("POST", "/v1/traces", b"abc", {"Content-Type": "application/x-protobuf",
                                                                     "Content-Encoding": "gzip"})
    assert (status, body) == (500, b"Internal Server Error") and answer["content-type"].startswith("text/plain")


def test_the_port_in_use_is_said(server: Server) -> None:
    result = subprocess.run([str(BIN), "serve", "--store", "memory", "--port", str(server.port)], capture_output=True, text=True,
                            timeout=20, check=False)
    assert result.returncode == 1 and "in use" in result.stderr and result.stderr.count("\n") == 1


def test_wrong_usage_is_2() -> None:
    for arguments in (["serve", "--port", "x"], ["serve", "extra"], ["serve", "--nope"], ["nonsense"], []):
        result = subprocess.run([str(BIN), *arguments], capture_output=True, text=True, timeout=20, check=False)
        assert result.returncode == 2, arguments

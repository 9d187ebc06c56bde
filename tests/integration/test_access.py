"""Who may ask `levin serve` what: tokens and roles, web pages, addresses."""
import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

from conftest import BIN

ADMIN, RUNNER, ALGORITHM, READER = (name * 4 for name in ("admin", "runner", "algor", "reader"))


def start(*args, **kwargs):
    process = subprocess.Popen([str(BIN), "serve", "--store", "memory", "--port", "0", *map(str, args)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, **kwargs)
    line = process.stdout.readline()
    address = re.search(r"http://\S+", line)
    return process, address and address.group(0)


@pytest.fixture
def serve():
    started = []

    def run(*args, **kwargs):
        process, url = start(*args, **kwargs)
        assert url, process.stderr.read()
        started.append(process)
        return process, url

    yield run
    for process in started:
        if process.poll() is None:
            process.terminate()
        assert process.wait(timeout=20) == 0


def ask(url, path, body=None, method=None, **headers):
    data = None if body is None else json.dumps(body).encode()
    headers = {name.replace("_", "-"): value for name, value in headers.items()} | {"Content-Type": "application/json"}
    request = urllib.request.Request(url + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), dict(error.headers)


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"# who may\nadmin {ADMIN}\nrunner {RUNNER}\n\n  algorithm\t{ALGORITHM}\nread-only {READER}\n")
    return path


ENQUEUE = ("/v1/agl/queues/rollouts/enqueue", {"rollouts": [{"input": 1}]})
DEQUEUE = ("/v1/agl/queues/rollouts/dequeue", {"limit": 1})
RESOURCES = ("/v1/agl/resources", {"prompt": {"resource_type": "prompt_template", "template": "x", "engine": "jinja"}})
QUERY = ("/v1/agl/rollouts", None)
SEARCH = ("/v1/agl/rollouts/search", {})
HEARTBEAT = ("/v1/agl/workers/w", {})
MODELS = ("/v1/chat/completions", {"model": "policy", "messages": []})


@pytest.mark.parametrize("token, may, may_not", [
    (ADMIN, [ENQUEUE, DEQUEUE, RESOURCES, QUERY, SEARCH, HEARTBEAT], []),
    (RUNNER, [DEQUEUE, QUERY, SEARCH, HEARTBEAT], [ENQUEUE, RESOURCES]),
    (ALGORITHM, [ENQUEUE, QUERY, SEARCH, RESOURCES], [DEQUEUE, HEARTBEAT]),
    (READER, [QUERY, SEARCH], [ENQUEUE, DEQUEUE, RESOURCES, HEARTBEAT, MODELS]),
])
def test_a_role_may_do_its_own_and_nothing_else(serve, tokens, token, may, may_not):
    _, url = serve("--token-file", tokens)
    for path, body in may:
        assert ask(url, path, body, Authorization=f"Bearer {token}")[0] in (200, 201), path
    for path, body in may_not:
        status, text, _ = ask(url, path, body, Authorization=f"Bearer {token}")
        assert status == 403 and "may not" in text, path
        # The path decides, however it is written.
        assert ask(url, path.replace("/v1", "/v1/."), body, Authorization=f"Bearer {token}")[0] >= 400


def test_without_or_with_a_wrong_token_only_health_answers(serve, tokens):
    _, url = serve("--token-file", tokens)
    assert ask(url, "/v1/agl/health")[0] == 200
    for headers in ({}, {"Authorization": "Bearer " + "x" * 20}, {"Authorization": f"Basic {ADMIN}"}, {"Authorization": f"Bearer {ADMIN}x"},
                    {"Authorization": "Bearer "}):
        status, _, answer = ask(url, QUERY[0], **headers)
        assert status == 401 and answer["WWW-Authenticate"] == "Bearer"
        assert ask(url, "/v1/agl/nothing/here", **headers)[0] == 401
        assert ask(url, "/v1/traces", {}, **headers)[0] == 401
    assert ask(url, QUERY[0], x_api_key=READER)[0] == 200


def test_tokens_are_read_again_without_a_restart_and_a_broken_file_changes_nothing(serve, tokens):
    process, url = serve("--token-file", tokens)

    def status_becomes(token, wanted):
        deadline = time.monotonic() + 5
        while (status := ask(url, QUERY[0], Authorization=f"Bearer {token}")[0]) != wanted and time.monotonic() < deadline:
            time.sleep(0.02)
        return status == wanted

    tokens.write_text("admin " + "n" * 20 + "\n")
    process.send_signal(signal.SIGHUP)
    assert status_becomes("n" * 20, 200)
    assert status_becomes(ADMIN, 401)
    tokens.write_text("root " + "m" * 20 + "\n")
    process.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    assert status_becomes("n" * 20, 200)
    assert ask(url, QUERY[0], Authorization="Bearer " + "m" * 20)[0] == 401


@pytest.mark.parametrize("text, complaint", [
    ("root abcdefghijklmnopqrst\n", ":1: a line is ROLE TOKEN"), ("admin short\n", ":1: a token has at least 16"),
    ("# a\nadmin abcdefghijklmnop qrst\n", ":2: a token has at least 16"), ("# nothing\n", "no token in it"), (None, "No such file"),
])
def test_a_wrong_token_file_is_refused_at_the_start(tmp_path, text, complaint):
    path = tmp_path / "tokens"
    if text is not None:
        path.write_text(text)
    process, url = start("--token-file", path)
    assert url is None and process.wait(timeout=10) == 1
    told = process.stderr.read()
    assert complaint in told and "abcdefghijklmnop" not in told


def test_an_address_that_others_reach_wants_tokens(serve, tokens):
    process, url = start("--host", "0.0.0.0")
    assert url is None and process.wait(timeout=10) == 1
    assert "--token-file" in process.stderr.read()
    serve("--host", "0.0.0.0", "--insecure")
    serve("--host", "0.0.0.0", "--token-file", tokens)
    _, url = serve("--host", "0.0.0.0", "--key", "k" * 16)
    port = url.rsplit(":", 1)[1]
    assert ask(f"http://127.0.0.1:{port}", *ENQUEUE, Authorization="Bearer " + "k" * 16)[0] == 201
    assert ask(f"http://127.0.0.1:{port}", QUERY[0])[0] == 401


def test_web_pages_of_the_named_origins_may_call(serve, tokens):
    _, url = serve("--cors-origin", "https://a.example", "--cors-origin", "https://b.example", "--token-file", tokens)
    good = {"Origin": "https://b.example"}
    status, body, answer = ask(url, QUERY[0], method="OPTIONS", Access_Control_Request_Method="POST",
                               Access_Control_Request_Headers="authorization", **good)
    assert (status, body) == (200, "OK")
    assert answer["Access-Control-Allow-Origin"] == "https://b.example" and answer["Access-Control-Max-Age"] == "600"
    assert answer["Access-Control-Allow-Headers"] == "authorization" and "POST" in answer["Access-Control-Allow-Methods"]
    status, _, answer = ask(url, QUERY[0], Authorization=f"Bearer {READER}", **good)
    assert status == 200 and answer["Access-Control-Allow-Origin"] == "https://b.example"
    assert answer["Access-Control-Allow-Credentials"] == "true" and answer["Access-Control-Expose-Headers"] == "*"
    # A page must be able to read why it was refused.
    status, _, answer = ask(url, QUERY[0], **good)
    assert status == 401 and answer["Access-Control-Allow-Origin"] == "https://b.example"
    _, _, answer = ask(url, QUERY[0], Authorization=f"Bearer {READER}", Origin="https://c.example")
    assert "Access-Control-Allow-Origin" not in answer
    _, url = serve("--cors-origin", "*")
    assert ask(url, QUERY[0], Origin="https://c.example")[2]["Access-Control-Allow-Origin"] == "https://c.example"
    _, url = serve()
    assert not any(name.startswith("Access-Control") for name in ask(url, QUERY[0], **good)[2])


def test_a_service_manager_is_told(serve, tmp_path):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(tmp_path / "notify"))
    listener.settimeout(10)
    process, _ = serve(env=os.environ | {"NOTIFY_SOCKET": str(tmp_path / "notify")})
    assert listener.recv(100) == b"READY=1"
    process.terminate()
    assert listener.recv(100) == b"STOPPING=1"
    assert process.wait(timeout=10) == 0

"""The gateway with the official OpenAI SDK, on the real model."""
import json
import re
import subprocess
import time
import urllib.request

import pytest

from conftest import BIN

openai = pytest.importorskip("openai")


@pytest.fixture(scope="module")
def url():
    process = subprocess.Popen([str(BIN), "serve", "--store", "memory", "--model", "auto", "--port", "0"], stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    address = re.search(r"http://\S+", line)
    assert address, line
    yield address.group(0)
    process.terminate()
    assert process.wait(timeout=20) == 0


def call(url, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=30))


@pytest.fixture()
def attempt(url):
    rollout = call(url, "/v1/agl/rollouts", {"input": {}, "mode": "val"})
    return rollout["rollout_id"], rollout["attempt"]["attempt_id"]


@pytest.fixture()
def client(url, attempt):
    return openai.OpenAI(base_url=f"{url}/rollout/{attempt[0]}/attempt/{attempt[1]}/v1", api_key="x", max_retries=0)


ASK = [{"role": "user", "content": "Say hello in one word."}]


def spans(url, attempt):
    return call(url, f"/v1/agl/spans?rollout_id={attempt[0]}")["items"]


def test_a_call_is_answered_and_recorded_before_the_answer_ends(url, client, attempt):
    answer = client.chat.completions.create(model="policy", messages=ASK, max_tokens=8)
    choice = answer.choices[0]
    assert choice.message.content and choice.finish_reason in ("stop", "length")
    span, = spans(url, attempt)
    a = span["attributes"]
    assert a["gen_ai.completion.0.content"] == choice.message.content
    assert len(a["response_token_ids"]) == answer.usage.completion_tokens == len(a["levin.logprobs"])
    assert len(a["prompt_token_ids"]) == answer.usage.prompt_tokens
    assert a["gen_ai.request.temperature"] == 0.0  # validation is greedy unless the agent says otherwise
    assert span["status"]["status_code"] == "OK" and span["sequence_id"] == 1


def test_a_stream_has_the_same_text_and_ends_as_the_sdk_expects(url, client, attempt):
    whole = client.chat.completions.create(model="policy", messages=ASK, max_tokens=12).choices[0].message.content
    stream = client.chat.completions.create(model="policy", messages=ASK, max_tokens=12, stream=True,
                                            stream_options={"include_usage": True})
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] in ("stop", "length")
    assert chunks[-1].usage.completion_tokens > 0
    first, second = spans(url, attempt)
    assert first["attributes"]["response_token_ids"] == second["attributes"]["response_token_ids"]


def test_a_later_turn_continues_the_tokens_exactly(url, client, attempt):
    first = client.chat.completions.create(model="policy", messages=ASK, max_tokens=8, temperature=1, seed=3).choices[0].message.content
    client.chat.completions.create(model="policy", max_tokens=4, messages=[
        *ASK, {"role": "assistant", "content": first}, {"role": "user", "content": "Again."}])
    one, two = (s["attributes"] for s in spans(url, attempt))
    begin = one["prompt_token_ids"] + one["response_token_ids"]
    assert two["prompt_token_ids"][:len(begin)] == begin


def test_log_probs_choices_seed_and_stop(client):
    answer = client.chat.completions.create(model="policy", messages=ASK, max_tokens=6, n=2, temperature=1, seed=5, logprobs=True,
                                            top_logprobs=3)
    assert [c.index for c in answer.choices] == [0, 1]
    content = answer.choices[0].logprobs.content
    assert len(content[0].top_logprobs) == 3 and content[0].logprob <= 0
    full = client.chat.completions.create(model="policy", messages=ASK, max_tokens=12).choices[0].message.content
    stop = full[2]
    cut = client.chat.completions.create(model="policy", messages=ASK, max_tokens=12, stop=stop).choices[0]
    assert cut.message.content == full.split(stop)[0] and cut.finish_reason == "stop"


def test_errors_are_those_the_sdk_knows(url, client):
    with pytest.raises(openai.NotFoundError) as e:
        client.chat.completions.create(model="gpt-none", messages=ASK)
    assert e.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model="policy", messages=[{"role": "user", "content": "word " * 3000}])
    assert e.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="policy", messages=[])
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="policy", messages=ASK, temperature=9)
    lost = openai.OpenAI(base_url=f"{url}/rollout/ro-none/attempt/at-none/v1", api_key="x", max_retries=0)
    with pytest.raises(openai.NotFoundError) as e:
        lost.chat.completions.create(model="policy", messages=ASK)
    assert e.value.code == "attempt_not_found"
    assert [m.id for m in client.models.list().data] == ["policy"]


def test_a_client_that_goes_away_ends_the_decoding(url, client, attempt):
    stream = client.chat.completions.create(model="policy", messages=[{"role": "user", "content": "Tell a very long story."}],
                                            max_tokens=900, temperature=1, stream=True)
    next(iter(stream))
    stream.close()
    deadline = time.monotonic() + 20
    while not (found := spans(url, attempt)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert found[0]["status"]["status_code"] == "ERROR"
    assert len(found[0]["attributes"]["response_token_ids"]) < 800


def test_thirty_calls_at_once_are_all_answered(client):
    from concurrent.futures import ThreadPoolExecutor

    def ask(i):
        return client.chat.completions.create(model="policy", messages=[{"role": "user", "content": f"Count to {i}."}], max_tokens=5)

    with ThreadPoolExecutor(30) as pool:
        answers = list(pool.map(ask, range(30)))
    assert all(a.choices[0].message.content for a in answers)

"""Streams of what a hot sampler writes: broken characters, stops in any place. The official SDK on the real model."""
import json
import re
import subprocess
import urllib.request

import openai
import pytest

from conftest import BIN

ASK = [{"role": "user", "content": "Write emoji, Chinese and Hindi words."}]


def call(url, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=30))


@pytest.fixture(scope="module")
def url():
    process = subprocess.Popen([str(BIN), "serve", "--store", "memory", "--model", "auto", "--port", "0"],
                               stdout=subprocess.PIPE, text=True)
    address = re.search(r"http://\S+", process.stdout.readline())
    assert address
    yield address.group(0)
    process.terminate()
    assert process.wait(timeout=20) == 0


def ask(url, **options):
    """A call under an attempt of its own: the SDK's answer or stream, and a function that gives its spans' attributes."""
    rollout = call(url, "/v1/agl/rollouts", {"input": {}, "mode": "train"})
    rollout_id, attempt_id = rollout["rollout_id"], rollout["attempt"]["attempt_id"]
    client = openai.OpenAI(base_url=f"{url}/rollout/{rollout_id}/attempt/{attempt_id}/v1", api_key="x", max_retries=0)
    answer = client.chat.completions.create(model="policy", messages=ASK, **options)
    return answer, lambda: [s["attributes"] for s in call(url, f"/v1/agl/spans?rollout_id={rollout_id}")["items"]]


@pytest.mark.parametrize("seed", range(6))
def test_the_pieces_of_a_stream_are_what_was_recorded(url, seed):
    stream, spans = ask(url, temperature=2, seed=seed, max_tokens=60, stream=True, logprobs=True)
    pieces, logprobs = [], []
    for chunk in stream:
        pieces.append(chunk.choices[0].delta.content or "")
        logprobs += chunk.choices[0].logprobs.content if chunk.choices[0].logprobs else []
    span, = spans()
    assert "".join(pieces) == span["gen_ai.completion.0.content"]
    assert [t.logprob for t in logprobs] == pytest.approx(span["levin.logprobs"], abs=1e-5)
    # The bytes of the tokens are the text, also where a character spans several of them.
    assert b"".join(bytes(t.bytes) for t in logprobs).decode(errors="replace").replace("\ufffd", "") == \
        "".join(pieces).replace("\ufffd", "")


@pytest.mark.parametrize("stops", [["a"], ["e ", "th"], [" the", "\n"], ["zzzzqqqq", "i"]])
def test_no_piece_holds_any_of_a_stop(url, stops):
    for seed in range(3):
        stream, spans = ask(url, temperature=1.2, seed=seed, max_tokens=40, stream=True, stop=stops)
        chunks = list(stream)
        text = "".join(c.choices[0].delta.content or "" for c in chunks)
        span, = spans()
        assert text == span["gen_ai.completion.0.content"]
        assert not any(s in text for s in stops)
        assert chunks[-1].choices[0].finish_reason == span["gen_ai.completion.0.finish_reason"]
        # Tokens are recorded whole, those that made the stop included.
        assert len(span["response_token_ids"]) == span["gen_ai.usage.output_tokens"] == len(span["levin.logprobs"])


def test_choices_of_a_stream_do_not_mix(url):
    stream, spans = ask(url, temperature=1.5, seed=1, max_tokens=24, n=4, stream=True, stream_options={"include_usage": True})
    texts, ends, usage = [""] * 4, [None] * 4, None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            assert ends[choice.index] is None, "nothing follows a choice's end"
            texts[choice.index] += choice.delta.content or ""
            ends[choice.index] = choice.finish_reason
    recorded = sorted(spans(), key=lambda a: a["levin.choice"])
    assert texts == [a["gen_ai.completion.0.content"] for a in recorded]
    assert ends == [a["gen_ai.completion.0.finish_reason"] for a in recorded]
    assert usage.completion_tokens == sum(len(a["response_token_ids"]) for a in recorded)

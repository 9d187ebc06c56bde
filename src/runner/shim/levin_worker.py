"""Keeps a user's Python function warm: python3 levin_worker.py FILE.py:FUNCTION

Imports FILE.py once, says {"ready": true}, then answers each line of standard input
    {"id": n, "task": ..., "env": {"NAME": "value", ...}}
with one line
    {"id": n, "ok": true, "output": what FUNCTION(task) returned}
    {"id": n, "ok": false, "error": "Type: message", "traceback": "..."}
The variables of "env" are set while the function runs. An async function is awaited. End of input ends the worker.

The protocol has descriptors of its own: what the user's code (or a child of it) prints goes to standard error, and its
standard input is empty.
"""
import asyncio
import importlib.util
import inspect
import json
import os
import sys
import traceback

requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(2, 1)
sys.stdout.reconfigure(line_buffering=True)


def say(message: dict) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def failure(error: BaseException) -> dict:
    return {"ok": False, "error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}


def load(target: str):
    path, _, name = target.rpartition(":")
    sys.argv = [path]
    sys.path[0] = os.path.dirname(os.path.abspath(path))  # as for a script: its neighbours can be imported
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(path))[0], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


def answer(function, request: dict) -> dict:
    before = dict(os.environ)
    os.environ.update(request.get("env") or {})
    try:
        output = function(request["task"])
        if inspect.isawaitable(output):
            output = asyncio.run(output)
        json.dumps(output)  # what can't be written is the function's failure, not ours
        return {"ok": True, "output": output}
    except (Exception, SystemExit) as error:
        return failure(error)
    finally:
        for name in request.get("env") or {}:
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)


def main() -> int:
    try:
        function = load(sys.argv[1])
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        say({"ready": False, "error": f"{type(error).__name__}: {error}"})
        return 1
    say({"ready": True})
    for line in requests:
        request = json.loads(line)
        say({"id": request["id"], **answer(function, request)})
    return 0


if __name__ == "__main__":
    sys.exit(main())

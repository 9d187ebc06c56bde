"""Keeps a user's Python function warm: python3 levin_worker.py [--fork] FILE.py:FUNCTION

Imports FILE.py once, says {"ready": true}, then answers each line of standard input
    {"id": n, "task": ..., "env": {"NAME": "value", ...}}
with one line
    {"id": n, "ok": true, "output": what FUNCTION(task) returned}
    {"id": n, "ok": false, "error": "Type: message", "traceback": "..."}
The variables of "env" are set while the function runs. An async function is awaited. End of input ends the worker.

The protocol has descriptors of its own: what the user's code (or a child of it) prints goes to standard error, and its
standard input is empty.

With --fork it takes no tasks itself but forks workers that do: it says {"ready": true, "fork": true} (false when the imports
have started threads, which a fork would lose), and each message on the socket that is descriptor 3 asks for one. The message is
NAME=VALUE for the worker's environment and carries its three standard descriptors; the answer is its pid.
"""
import asyncio
import importlib.util
import inspect
import json
import os
import sys
import traceback

requests = answers = None


def take_over_descriptors() -> None:
    global requests, answers
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 0)
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


def become_worker(marker: str, descriptors: list[int], prctl, parent: int) -> None:
    """In a grandchild: a session of its own, its descriptors, and a death with Levin's."""
    import time

    os.setsid()
    while os.getppid() == parent:  # it is ending; then this is Levin's child
        time.sleep(0.0005)
    prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    name, _, value = marker.partition("=")
    os.environ[name] = value
    take_over_descriptors()


def fork_workers() -> bool:
    """Forks workers as they are asked for. True: this is one of them; False: nobody will ask any more."""
    import ctypes
    import gc
    import socket

    prctl = ctypes.CDLL(None).prctl
    channel = socket.socket(fileno=3)
    channel.set_inheritable(False)
    gc.collect()
    gc.freeze()  # a collection in a worker must not touch, and so copy, every page
    say({"ready": True, "fork": len(os.listdir("/proc/self/task")) == 1})
    while True:
        marker, descriptors, _, _ = socket.recv_fds(channel, 256, 3)
        if not marker:
            return False
        told, tell = os.pipe()
        middle = os.fork()
        if middle == 0:
            parent = os.getpid()
            if os.fork() > 0:
                os._exit(0)
            channel.close()
            os.close(told)
            become_worker(marker.decode(), descriptors, prctl, parent)
            os.write(tell, str(os.getpid()).encode())
            os.close(tell)
            return True
        for descriptor in descriptors:
            os.close(descriptor)
        os.close(tell)
        os.waitpid(middle, 0)
        pid = os.read(told, 32)
        os.close(told)
        channel.send(pid or b"0")


def main() -> int:
    take_over_descriptors()
    is_nursery = sys.argv[1] == "--fork"
    try:
        function = load(sys.argv[-1])
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        say({"ready": False, "error": f"{type(error).__name__}: {error}"})
        return 1
    if is_nursery and not fork_workers():
        return 0
    say({"ready": True})
    for line in requests:
        request = json.loads(line)
        say({"id": request["id"], **answer(function, request)})
    return 0


if __name__ == "__main__":
    sys.exit(main())

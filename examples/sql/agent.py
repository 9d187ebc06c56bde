"""A text-to-SQL agent: writes a query, runs it, and rewrites it when SQLite complains; at most three turns.

    echo '{"question": "...", "ddl": "CREATE TABLE ...", "sqlite": "path/to.sqlite"}' | python3 agent.py

prints {"output": "SELECT ..."}. The OpenAI SDK reads OPENAI_BASE_URL and OPENAI_API_KEY; LLM_MODEL names the model.
"""
import contextlib
import json
import os
import re
import sqlite3
import sys
import time
from pathlib import Path

from openai import DefaultHttpxClient, OpenAI

SYSTEM = "Answer with one SQLite query and nothing else."
TURNS = 3
MAX_TOKENS = 48
QUERY_SECONDS = 3.0
# One pool of connections for every task of this process: making one costs some 50 ms of CPU time (certificates).
http = DefaultHttpxClient()


def run_query(path: str, query: str) -> list[tuple]:
    """The first rows of a query. The database can't be changed, and a query that takes too long is interrupted."""
    uri = Path(path).resolve().as_uri() + "?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as database:
        limit = time.monotonic() + QUERY_SECONDS
        database.set_progress_handler(lambda: time.monotonic() > limit, 10_000)
        return database.execute(query).fetchmany(20)


def find_query(text: str) -> str:
    """The query in a reply: the reply itself, or what stands in its code fence."""
    fenced = re.search(r"```(?:sql|sqlite)?\s*(.*?)(?:```|$)", text, re.DOTALL | re.IGNORECASE)
    return (fenced.group(1) if fenced else text).strip().rstrip(";").rstrip()


def complaint(path: str, query: str) -> str | None:
    """What is wrong with a query, in words for the model; None when it runs."""
    if not query:
        return "there is no query"
    try:
        run_query(path, query)
        return None
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        return str(error)


def solve(task: dict) -> str:
    client = OpenAI(http_client=http)
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"{task['ddl']}\n{task['question']}"},
    ]
    query = ""
    for _ in range(TURNS):
        answer = client.chat.completions.create(
            model=os.environ.get("LLM_MODEL", "policy"), messages=messages, max_tokens=MAX_TOKENS
        )
        reply = answer.choices[0].message.content or ""
        query = find_query(reply)
        error = complaint(task["sqlite"], query)
        if error is None:
            break
        messages.append({"role": "assistant", "content": reply})
        messages.append({"role": "user", "content": f"Error: {error}. Write the query again."})
    return query


if __name__ == "__main__":
    print(json.dumps({"output": solve(json.load(sys.stdin))}))

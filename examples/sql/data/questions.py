"""Questions and their golds, by kind. Each kind yields (gold, [phrasings]) for one table; what is ambiguous or empty is thrown out by the
caller, who runs the gold. Written so that a person could ask them; the phrasings of one gold mean the same."""
import random

QUOTE = '"'


def quoted(name):
    return name if name not in {"class", "group", "order", "match"} else f'"{name}"'


def lit(value):
    return "'" + str(value).replace("'", "''") + "'"


def shown(value, column):
    if isinstance(value, float) and (column.whole or value == int(value)):
        return str(int(round(value)))
    return str(value)


class Data:
    """A table's rows with what the kinds need to draw values from."""

    def __init__(self, table, rows, rng):
        self.t, self.rows, self.rng = table, rows, rng
        self.name = quoted(table.name)
        self.labels = [c for c in table.columns if c.kind == "label"]
        self.texts = [c for c in table.columns if c.kind == "text"]
        self.nums = [c for c in table.columns if c.kind == "num"]

    def values(self, column):
        return [r[column.name] for r in self.rows if r[column.name] is not None]

    def common(self, column, most=6):
        counts = {}
        for v in self.values(column):
            counts[v] = counts.get(v, 0) + 1
        good = [v for v, n in counts.items() if n >= 2 and 1 < len(str(v)) < 30]
        good.sort(key=lambda v: (-counts[v], str(v)))
        good = good[:12]
        self.rng.shuffle(good)
        return good[:most]

    def cut(self, column, share):
        values = sorted(float(v) for v in self.values(column))
        v = values[min(len(values) - 1, int(share * len(values)))]
        if column.name == "year" or column.name.endswith("_year"):
            return int(v)
        size = abs(v)
        for step in (1000000, 100000, 10000, 1000, 100, 10, 5):
            if size >= 8 * step:
                return int(round(v / step) * step)
        return int(round(v)) if column.whole or size >= 20 else round(v, 1)


def n(value):
    return str(value)


def count_all(d):
    yield f"SELECT count(*) FROM {d.name}", [f"How many {d.t.many} are there?", f"Count the {d.t.many}.", f"What is the total number of {d.t.many}?"]


def count_where_text(d):
    for c in d.texts:
        for v in d.common(c, 5):
            where = c.where.format(v=v)
            yield f"SELECT count(*) FROM {d.name} WHERE {c.name} = {lit(v)}", [
                f"How many {d.t.many} {where} are there?", f"Count the {d.t.many} {where}.", f"Find the number of {d.t.many} {where}."]


def count_where_num(d):
    for c in d.nums:
        for share, op, words in ((0.4, ">", "more than"), (0.6, "<", "less than"), (0.75, ">", "above"), (0.25, "<", "below")):
            x = d.cut(c, share)
            over = "above" if op == ">" else "below"
            yield f"SELECT count(*) FROM {d.name} WHERE {c.name} {op} {n(x)}", [
                f"How many {d.t.many} have a {c.say} {over} {x}?", f"Find the number of {d.t.many} whose {c.say} is {'greater' if op == '>' else 'less'} than {x}.",
                f"Count the {d.t.many} with a {c.say} of {'more' if op == '>' else 'less'} than {x}."]


def list_where_text(d):
    for l in d.labels[:2]:
        for c in d.texts:
            for v in d.common(c, 4):
                where = c.where.format(v=v)
                yield f"SELECT {l.name} FROM {d.name} WHERE {c.name} = {lit(v)}", [
                    f"What are the {l.plural} of the {d.t.many} {where}?", f"List the {l.plural} of {d.t.many} {where}.",
                    f"Show the {l.say} of every {d.t.one} {where}."]


def list_where_num(d):
    for l in d.labels[:2]:
        for c in d.nums:
            for share, op in ((0.85, ">"), (0.15, "<"), (0.7, ">")):
                x = d.cut(c, share)
                word = "greater" if op == ">" else "less"
                over = "above" if op == ">" else "below"
                yield f"SELECT {l.name} FROM {d.name} WHERE {c.name} {op} {n(x)}", [
                    f"What are the {l.plural} of the {d.t.many} with a {c.say} {over} {x}?", f"List the {l.plural} of {d.t.many} whose {c.say} is {word} than {x}.",
                    f"Find the {l.say} of each {d.t.one} that has a {c.say} {over} {x}."]


AGGREGATES = (("avg", ("average", "mean")), ("max", ("maximum", "highest", "largest")), ("min", ("minimum", "lowest", "smallest")))


def aggregate(d):
    for c in d.nums:
        for function, words in AGGREGATES:
            yield f"SELECT {function}({c.name}) FROM {d.name}", [
                f"What is the {words[0]} {c.say} of all {d.t.many}?", f"Find the {words[-1]} {c.say} of the {d.t.many}.", f"Return the {words[0]} {c.say}."]
        if c.adds:
            yield f"SELECT sum({c.name}) FROM {d.name}", [f"What is the total {c.say} of all {d.t.many}?", f"Find the sum of the {c.say} over all {d.t.many}."]


def aggregate_where(d):
    for c in d.nums:
        for t in d.texts:
            for v in d.common(t, 3):
                where = t.where.format(v=v)
                function, words = d.rng.choice(AGGREGATES)
                yield f"SELECT {function}({c.name}) FROM {d.name} WHERE {t.name} = {lit(v)}", [
                    f"What is the {words[0]} {c.say} of the {d.t.many} {where}?", f"Find the {words[-1]} {c.say} of {d.t.many} {where}.",
                    f"For {d.t.many} {where}, what is the {words[0]} {c.say}?"]


def min_max(d):
    for c in d.nums:
        yield f"SELECT min({c.name}), max({c.name}) FROM {d.name}", [
            f"What are the minimum and maximum {c.say} of the {d.t.many}?", f"Find the lowest and the highest {c.say}."]


def group_count(d):
    for t in d.texts:
        yield f"SELECT {t.name}, count(*) FROM {d.name} GROUP BY {t.name}", [
            f"How many {d.t.many} are there for each {t.say}?", f"Show each {t.say} and the number of {d.t.many}.", f"For each {t.say}, count the {d.t.many}."]


def group_aggregate(d):
    for t in d.texts:
        for c in d.nums:
            for function, words in AGGREGATES:
                yield f"SELECT {t.name}, {function}({c.name}) FROM {d.name} GROUP BY {t.name}", [
                    f"What is the {words[0]} {c.say} for each {t.say}?", f"Show each {t.say} and its {words[0]} {c.say}.",
                    f"For each {t.say}, find the {words[-1]} {c.say} of the {d.t.many}."]


def top_one(d):
    for l in d.labels[:2]:
        for c in d.nums:
            for order, word, special in (("DESC", "highest", c.top), ("ASC", "lowest", c.low)):
                phrases = [f"What is the {l.say} of the {d.t.one} with the {word} {c.say}?", f"Which {d.t.one} has the {word} {c.say}? Give its {l.say}.",
                           f"Find the {l.say} of the {d.t.one} that has the {word} {c.say}."]
                if special:
                    phrases.append(f"What is the {l.say} of the {special} {d.t.one}?")
                yield f"SELECT {l.name} FROM {d.name} ORDER BY {c.name}{' DESC' if order == 'DESC' else ''} LIMIT 1", phrases


def top_some(d):
    for l in d.labels[:1]:
        for c in d.nums:
            for k in (3, 5):
                yield f"SELECT {l.name} FROM {d.name} ORDER BY {c.name} DESC LIMIT {k}", [
                    f"What are the {l.plural} of the {k} {d.t.many} with the highest {c.say}?", f"List the {l.plural} of the top {k} {d.t.many} by {c.say}.",
                    f"Find the {k} {d.t.many} with the largest {c.say} and show their {l.plural}."]


def ordered(d):
    for l in d.labels[:1]:
        for c in d.nums:
            yield f"SELECT {l.name} FROM {d.name} ORDER BY {c.name}", [
                f"List the {l.plural} of all {d.t.many} in ascending order of {c.say}.", f"Show the {l.plural} of the {d.t.many} sorted by {c.say} from lowest to highest."]
            yield f"SELECT {l.name} FROM {d.name} ORDER BY {c.name} DESC", [
                f"List the {l.plural} of all {d.t.many} in descending order of {c.say}.", f"Show the {l.plural} of the {d.t.many} sorted by {c.say} from highest to lowest."]


def distinct(d):
    for t in d.texts:
        yield f"SELECT DISTINCT {t.name} FROM {d.name}", [
            f"What are the different {t.plural}?", f"List all distinct {t.plural} of the {d.t.many}.", f"Show the different {t.plural} of the {d.t.many}."]
        yield f"SELECT count(DISTINCT {t.name}) FROM {d.name}", [
            f"How many different {t.plural} are there?", f"Count the distinct {t.plural} of the {d.t.many}."]


def having(d):
    for t in d.texts:
        counts = sorted(sum(r[t.name] == v for r in d.rows) for v in set(d.values(t)))
        for share in (0.4, 0.7):
            x = counts[int(share * len(counts))]
            yield f"SELECT {t.name} FROM {d.name} GROUP BY {t.name} HAVING count(*) > {x}", [
                f"Which {t.plural} have more than {x} {d.t.many}?", f"List the {t.plural} that have more than {x} {d.t.many}."]


def most_common(d):
    for t in d.texts:
        yield f"SELECT {t.name} FROM {d.name} GROUP BY {t.name} ORDER BY count(*) DESC LIMIT 1", [
            f"Which {t.say} has the most {d.t.many}?", f"What is the most common {t.say} of the {d.t.many}?", f"Find the {t.say} with the largest number of {d.t.many}."]


def between(d):
    for c in d.nums:
        low, high = d.cut(c, 0.3), d.cut(c, 0.6)
        yield f"SELECT count(*) FROM {d.name} WHERE {c.name} BETWEEN {n(low)} AND {n(high)}", [
            f"How many {d.t.many} have a {c.say} between {low} and {high}?", f"Count the {d.t.many} whose {c.say} is between {low} and {high}."]
        for l in d.labels[:1]:
            low, high = d.cut(c, 0.45), d.cut(c, 0.6)
            yield f"SELECT {l.name} FROM {d.name} WHERE {c.name} BETWEEN {n(low)} AND {n(high)}", [
                f"What are the {l.plural} of the {d.t.many} with a {c.say} between {low} and {high}?", f"List the {l.plural} of {d.t.many} whose {c.say} is between {low} and {high}."]


def like(d):
    for l in d.labels[:1]:
        starts = sorted({str(v)[0] for v in d.values(l) if str(v)[:1].isalpha()})
        d.rng.shuffle(starts)
        for s in starts[:2]:
            yield f"SELECT {l.name} FROM {d.name} WHERE {l.name} LIKE '{s}%'", [
                f"List the {l.plural} of {d.t.many} that start with {s}.", f"Which {d.t.many} have a {l.say} starting with the letter {s}?"]
            yield f"SELECT count(*) FROM {d.name} WHERE {l.name} LIKE '{s}%'", [f"How many {d.t.many} have a {l.say} that starts with {s}?"]


def lookup(d):
    for l in d.labels[:1]:
        names = sorted({str(v) for v in d.values(l) if 2 < len(str(v)) < 28 and "'" not in str(v)})
        d.rng.shuffle(names)
        others = d.nums + d.texts
        for i, v in enumerate(names[:2 * len(others)]):
            c = others[i % len(others)]
            key = lit(v) if not str(v).isdigit() else str(v)
            yield f"SELECT {c.name} FROM {d.name} WHERE {l.name} = {key}", [
                f"What is the {c.say} of {v}?", f"Find the {c.say} of the {d.t.one} {v}.", f"Show the {c.say} for {v}."]


def two_columns(d):
    for l in d.labels[:1]:
        for c in d.nums + d.texts:
            yield f"SELECT {l.name}, {c.name} FROM {d.name}", [
                f"Show the {l.say} and {c.say} of each {d.t.one}.", f"What are the {l.say} and the {c.say} of every {d.t.one}?", f"List the {l.plural} and {c.say} of all {d.t.many}."]


def above_average(d):
    for c in d.nums:
        for l in d.labels[:1]:
            yield f"SELECT {l.name} FROM {d.name} WHERE {c.name} > (SELECT avg({c.name}) FROM {d.name})", [
                f"List the {l.plural} of {d.t.many} with a {c.say} above the average.", f"Which {d.t.many} have a {c.say} greater than the average? Show their {l.plural}."]
        yield f"SELECT count(*) FROM {d.name} WHERE {c.name} > (SELECT avg({c.name}) FROM {d.name})", [
            f"How many {d.t.many} have a {c.say} above the average?"]


def both(d):
    for l in d.labels[:1]:
        for t in d.texts:
            for v in d.common(t, 2):
                for c in d.nums[:2]:
                    x = d.cut(c, 0.5)
                    yield f"SELECT {l.name} FROM {d.name} WHERE {t.name} = {lit(v)} AND {c.name} > {n(x)}", [
                        f"List the {l.plural} of {d.t.many} {t.where.format(v=v)} with a {c.say} above {x}."]


KINDS = {f.__name__: f for f in (count_all, count_where_text, count_where_num, list_where_text, list_where_num, aggregate, aggregate_where, min_max,
                                 group_count, group_aggregate, top_one, top_some, ordered, distinct, having, most_common, between, like, lookup,
                                 two_columns, above_average, both)}


# Two tables: {gold, phrasings} written out, for the pairs that are made beside the single tables.
JOINS = [
    ("state_capital", ("state", "capital"), "state.name = capital.state", [
        ("SELECT capital.city FROM state JOIN capital ON state.name = capital.state ORDER BY state.population DESC LIMIT 1",
         ["What is the capital of the state with the largest population?", "Find the capital city of the most populous state."]),
        ("SELECT capital.city FROM state JOIN capital ON state.name = capital.state WHERE state.hurricanes > 30",
         ["What are the capitals of states with more than 30 hurricanes?", "List the capital cities of states that had over 30 hurricanes."]),
        ("SELECT state.population FROM state JOIN capital ON state.name = capital.state WHERE capital.city = 'Austin'",
         ["What is the population of the state whose capital is Austin?", "Find the population of the state with the capital Austin."]),
        ("SELECT avg(state.population) FROM state JOIN capital ON state.name = capital.state WHERE capital.latitude > 40",
         ["What is the average population of states whose capital lies north of latitude 40?"]),
        ("SELECT count(*) FROM state JOIN capital ON state.name = capital.state WHERE state.hurricanes = 0",
         ["How many capitals lie in states without hurricanes?", "Count the capitals of states that had no hurricane."]),
    ]),
    ("income_capital", ("income", "capital"), "income.state = capital.state", [
        ("SELECT income.region FROM income JOIN capital ON income.state = capital.state WHERE capital.city = 'Boston'",
         ["In which region is the state whose capital is Boston?", "Find the region of the state with the capital Boston."]),
        ("SELECT capital.city FROM income JOIN capital ON income.state = capital.state WHERE income.region = 'west'",
         ["List the capitals of the states in the west region.", "What are the capital cities in the west region?"]),
        ("SELECT income.region, count(*) FROM income JOIN capital ON income.state = capital.state GROUP BY income.region",
         ["How many capitals are there in each region?", "For each region, count the capitals."]),
        ("SELECT capital.city FROM income JOIN capital ON income.state = capital.state ORDER BY income.poor DESC LIMIT 1",
         ["What is the capital of the state with the highest number of poor households?"]),
    ]),
]

"""The tables: where each comes from, which rows and columns are kept, and how a person speaks of them.

A column is Text (a category), Num (a measure) or Label (the name of a row). `say` is the noun used in questions, `plural` its plural,
`where` how a row with value {v} is described after the noun of the table.
"""
from dataclasses import dataclass, field
from typing import Callable


@dataclass
class Column:
    name: str
    source: str | Callable
    say: str
    kind: str                      # "label", "text", "num"
    plural: str = ""
    where: str = ""
    whole: bool = True             # num: shown without decimals
    adds: bool = False             # num: a sum makes sense
    top: str = ""                  # num: "heaviest" for the row with the largest value
    low: str = ""


def label(name, source, say="name", plural=""):
    return Column(name, source, say, "label", plural or say + "s")


def text(name, source, say, plural="", where=""):
    return Column(name, source, say, "text", plural or say + "s", where or f"whose {say} is {{v}}")


def num(name, source, say, whole=True, adds=False, top="", low=""):
    return Column(name, source, say, "num", "", "", whole, adds, top, low)


@dataclass
class Table:
    name: str
    file: str
    one: str
    many: str
    columns: list[Column]
    keep: Callable = lambda row: True
    most: int = 150
    unseen: bool = False
    rows: Callable | None = None   # from the file's content to rows, when it is no plain list of records
    joins: list = field(default_factory=list)


def year_of(key):
    return lambda r: int(str(r[key])[:4])


def last_year(key):
    return lambda r: int(str(r[key])[-4:])


def title(key):
    return lambda r: str(r[key]).title()


def quakes(content):
    rows = []
    for f in content["features"]:
        place = f["properties"].get("place") or ""
        if " of " in place and "," in place and f["properties"].get("mag") is not None:
            region = place.rsplit(",", 1)[1].strip()
            rows.append({"place": place.rsplit(" of ", 1)[1].rsplit(",", 1)[0].strip(), "region": region,
                         "magnitude": f["properties"]["mag"], "depth": f["geometry"]["coordinates"][2]})
    common = {r["region"] for r in rows if sum(o["region"] == r["region"] for o in rows) >= 8}
    return [r for r in rows if r["region"] in common]


def men_and_women(content):
    by_job = {}
    for r in content:
        if r["year"] == 2000:
            by_job.setdefault(r["job"], {})[r["sex"]] = r["count"]
    return [{"job": j, "men": c.get("men", 0), "women": c.get("women", 0)} for j, c in sorted(by_job.items())]


def agencies(content):
    money = {}
    for r in content:
        try:
            money[r["Agency name"]] = money.get(r["Agency name"], 0) + int(str(r["2015"]).replace(",", ""))
        except (KeyError, ValueError):
            continue
    old = {}
    for r in content:
        try:
            old[r["Agency name"]] = old.get(r["Agency name"], 0) + int(str(r["1985"]).replace(",", ""))
        except (KeyError, ValueError):
            continue
    return [{"agency": a, "in_2015": m // 1000, "in_1985": old.get(a, 0) // 1000} for a, m in sorted(money.items())
            if m and len(a) < 40]


def novel(content):
    return content["nodes"]


def yearly(key, value, digits):
    def rows(content):
        years = {}
        for r in content:
            try:
                years.setdefault(int(str(r[key])[:4]), []).append(float(r[value]))
            except ValueError:
                continue
        return [{"year": y, "value": round(sum(v) / len(v), digits), "decade": f"{y // 10 * 10}s"} for y, v in sorted(years.items())]
    return rows


def cars_once(content):
    seen = {}
    for r in content:
        if None in (r["Miles_per_Gallon"], r["Horsepower"]) or r["Name"] in seen:
            continue
        seen[r["Name"]] = r
    return list(seen.values())


def stock_years(content):
    best = {}
    for r in content:
        key = (r["symbol"], int(r["date"][-4:]))
        best.setdefault(key, []).append(float(r["price"]))
    return [{"symbol": s, "year": y, "high": max(p), "low": min(p)} for (s, y), p in sorted(best.items())]


def movie_rows(content):
    rows = []
    for r in content:
        need = ("Title", "US Gross", "Production Budget", "Major Genre", "MPAA Rating", "IMDB Rating", "Running Time min")
        if any(r.get(k) in (None, "", "Not Rated") for k in need):
            continue
        rows.append(r)
    return [r for r in rows if sum(o["Title"] == r["Title"] for o in rows) == 1 and isinstance(r["Title"], str)]


TABLES = [
    Table("movie", "movies.json", "movie", "movies", [
        label("title", "Title", "title"), text("genre", "Major Genre", "genre", where="of the genre {v}"),
        text("rating", "MPAA Rating", "rating", where="rated {v}"), num("minutes", "Running Time min", "running time", top="longest", low="shortest"),
        num("budget", "Production Budget", "budget", adds=True, top="most expensive", low="cheapest"),
        num("imdb", "IMDB Rating", "IMDB score", whole=False)], rows=movie_rows, most=160),
    Table("car", "cars.json", "car", "cars", [
        label("name", "Name"), text("origin", "Origin", "origin", where="from {v}"), num("cylinders", "Cylinders", "number of cylinders"),
        num("horsepower", "Horsepower", "horsepower", top="most powerful"), num("weight", "Weight_in_lbs", "weight", top="heaviest", low="lightest"),
        num("year", year_of("Year"), "year", top="newest", low="oldest")], rows=cars_once, most=140),
    Table("penguin", "penguins.json", "penguin", "penguins", [
        text("species", "Species", "species", "species", "of the species {v}"), text("island", "Island", "island", where="on the island {v}"),
        text("sex", lambda r: (r["Sex"] or "").lower(), "sex", "sexes", "whose sex is {v}"),
        num("body_mass", "Body Mass (g)", "body mass", top="heaviest", low="lightest"), num("flipper", "Flipper Length (mm)", "flipper length"),
        num("beak", "Beak Length (mm)", "beak length", whole=False)], keep=lambda r: r["Sex"] in ("MALE", "FEMALE"), most=200),
    Table("country", "countries.json", "country", "countries", [
        label("name", "country"), num("fertility", "fertility", "fertility", whole=False),
        num("life_expectancy", "life_expect", "life expectancy", whole=False)], keep=lambda r: r["year"] == 2000),
    Table("job", "jobs.json", "job", "jobs", [
        label("name", "job"), num("men", "men", "number of men", adds=True), num("women", "women", "number of women", adds=True)],
        rows=men_and_women, keep=lambda r: len(r["job"]) < 28, most=90),
    Table("earthquake", "earthquakes.json", "earthquake", "earthquakes", [
        label("place", "place", "place"), text("region", "region", "region", where="in {v}"),
        num("magnitude", "magnitude", "magnitude", whole=False, top="strongest", low="weakest"), num("depth", "depth", "depth", whole=False, top="deepest")],
        rows=quakes, most=120),
    Table("flight", "flights-2k.json", "flight", "flights", [
        text("origin", "origin", "origin", where="from {v}"), text("destination", "destination", "destination", where="to {v}"),
        num("distance", "distance", "distance", adds=True), num("delay", "delay", "delay")],
        keep=lambda r: r["origin"] in ("LAX", "SFO", "SAN", "PHX", "LAS", "OAK") and r["destination"] in ("LAX", "SFO", "SAN", "PHX", "LAS", "OAK")),
    Table("capital", "us-state-capitals.json", "capital", "capitals", [
        label("city", "city", "city", "cities"), label("state", "state", "state"), num("latitude", "lat", "latitude", whole=False, top="northernmost", low="southernmost"),
        num("longitude", "lon", "longitude", whole=False)]),
    Table("airport", "airports.csv", "airport", "airports", [
        label("name", "name"), text("city", "city", "city", "cities", "in the city {v}"), text("state", "state", "state", where="in {v}"),
        num("latitude", lambda r: round(float(r["latitude"]), 2), "latitude", whole=False, top="northernmost", low="southernmost")],
        keep=lambda r: r["state"] in ("HI", "NJ", "MA", "CT", "NV", "VT", "MD")),
    Table("bird_strike", "birdstrikes.csv", "bird strike", "bird strikes", [
        text("species", "Wildlife Species", "species", "species", "with the species {v}"), text("phase", "Phase of flight", "phase", where="in the phase {v}"),
        text("size", "Wildlife Size", "size", where="of size {v}"), text("daytime", "Time of day", "time of day", "times of day", "at {v}"),
        num("speed", "Speed IAS in knots", "speed", top="fastest")],
        keep=lambda r: r["Speed IAS in knots"] and r["Origin State"] in ("Texas", "Florida") and r["Time of day"] and r["Wildlife Size"]
        and r["Phase of flight"] and "Unknown" not in r["Wildlife Species"], most=120),
    Table("weather", "seattle-weather.csv", "day", "days", [
        label("date", lambda r: r["date"][:10], "date"), text("weather", "weather", "weather", "kinds of weather", "with {v}"), num("rain", "precipitation", "amount of rain", whole=False, adds=True, top="wettest"),
        num("high", "temp_max", "highest temperature", whole=False, top="hottest"), num("wind", "wind", "wind speed", whole=False, top="windiest")],
        keep=lambda r: r["date"][:4] == "2015", most=180),
    Table("wheat", "wheat.json", "record", "records", [
        label("year", lambda r: int(r["year"]), "year"), num("price", "wheat", "wheat price", whole=False), num("wages", "wages", "wage", whole=False)],
        keep=lambda r: r.get("wages")),
    Table("driving", "driving.json", "record", "records", [
        label("year", "year", "year"), num("miles", "miles", "number of miles", adds=True), num("gas_price", "gas", "gas price", whole=False)]),
    Table("climate", "global-temp.csv", "record", "records", [
        label("year", "year", "year"), text("decade", "decade", "decade", where="in the {v}"), num("temperature", "value", "temperature", whole=False, top="warmest", low="coldest")],
        rows=yearly("year", "temp", 2)),
    Table("carbon", "co2-concentration.csv", "record", "records", [
        label("year", "year", "year"), text("decade", "decade", "decade", where="in the {v}"), num("co2", "value", "CO2 level", whole=False)],
        rows=yearly("Date", "CO2", 1)),
    Table("zip_code", "zipcodes.csv", "zip code", "zip codes", [
        label("code", "zip_code", "code"), text("city", "city", "city", "cities", "in the city {v}"), text("county", "county", "county", "counties", "in {v} County")],
        keep=lambda r: r["state"] == "DE" or (r["state"] == "RI")),
    Table("income", "income.json", "state", "states", [
        label("state", "name", "name"), text("region", "region", "region", where="in the {v} region"), num("poor", "total", "number of poor households", adds=True),
        num("share", lambda r: round(r["pct"] * 100, 1), "share", whole=False)], keep=lambda r: r["group"] == "<10000"),
    Table("war_month", "crimea.json", "record", "records", [
        label("month", lambda r: r["date"][:7], "month"), num("wounds", "wounds", "number of deaths by wounds", adds=True),
        num("disease", "disease", "number of deaths by disease", adds=True), num("army_size", "army_size", "army size")]),
    Table("stock", "stocks.csv", "stock record", "stock records", [
        text("symbol", "symbol", "symbol", where="of {v}"), num("year", "year", "year"), num("high", "high", "highest price", whole=False),
        num("low", "low", "lowest price", whole=False)], rows=stock_years),
    Table("trading_day", "ohlc.json", "trading day", "trading days", [
        label("date", "date", "date"), text("signal", "signal", "signal", where="with the signal {v}"), num("open", "open", "opening price", whole=False),
        num("close", "close", "closing price", whole=False)]),
    Table("character", "miserables.json", "character", "characters", [
        label("name", "name"), num("group_number", "group", "group number")], rows=novel),
    Table("employment", "us-employment.csv", "record", "records", [
        label("month", lambda r: r["month"][:7], "month"), num("construction", lambda r: float(r["construction"]), "number of construction jobs", top=""),
        num("manufacturing", lambda r: float(r["manufacturing"]), "number of manufacturing jobs"), num("government", lambda r: float(r["government"]), "number of government jobs")]),
    Table("population", "population.json", "group", "groups", [
        num("age", "age", "age"), text("sex", lambda r: {1: "male", 2: "female"}[r["sex"]], "sex", "sexes", "whose sex is {v}"),
        num("people", "people", "number of people", adds=True)], keep=lambda r: r["year"] == 2000),
    Table("disaster", "disasters.csv", "disaster record", "disaster records", [
        text("type", "Entity", "type", where="of the type {v}"), num("year", "Year", "year"), num("deaths", "Deaths", "number of deaths", adds=True, top="deadliest")],
        keep=lambda r: r["Entity"] != "All natural disasters" and int(r["Year"]) >= 1990),
    Table("health", "gapminder-health-income.csv", "nation", "nations", [
        label("name", "country"), text("region", "region", "region", where="in the region {v}"), num("income", "income", "income", top="richest", low="poorest"),
        num("population", "population", "population", adds=True)], most=120),

    # never trained on
    Table("bacteria", "burtin.json", "bacteria", "bacteria", [
        label("name", "Bacteria"), text("gram", "Gram_Staining", "gram staining", where="whose gram staining is {v}"), text("genus", "Genus", "genus", "genera", "of the genus {v}"),
        num("penicillin", "Penicillin", "penicillin dose", whole=False), num("neomycin", "Neomycin", "neomycin dose", whole=False)], unseen=True),
    Table("monarch", "monarchs.json", "monarch", "monarchs", [
        label("name", "name"), num("start_year", "start", "start year"), num("end_year", "end", "end year")], unseen=True),
    Table("electricity", "iowa-electricity.csv", "record", "records", [
        num("year", year_of("year"), "year"), text("source", "source", "source", where="of the source {v}"), num("generation", "net_generation", "generation", adds=True)],
        unseen=True),
    Table("candidate", "political-contributions.json", "candidate", "candidates", [
        label("name", title("Candidate_Name")), text("party", "Party_Affiliation", "party", "parties", "of the party {v}"),
        num("receipts", "Total_Receipts", "receipt total", adds=True), num("spending", "Total_Disbursements", "spending total", adds=True)], unseen=True),
    Table("industry", "unemployment-across-industries.json", "industry", "industries", [
        label("name", "series"), num("unemployed", "count", "number of unemployed", adds=True), num("rate", "rate", "unemployment rate", whole=False)],
        keep=lambda r: r["year"] == 2009 and r["month"] == 1, unseen=True),
    Table("state", "population_engineers_hurricanes.csv", "state", "states", [
        label("name", "state"), num("population", "population", "population", adds=True, top="largest", low="smallest"),
        num("hurricanes", "hurricanes", "number of hurricanes", adds=True)], unseen=True),
    Table("match", "football.json", "match", "matches", [
        text("home_team", "home_team", "home team", where="at home to {v}"), text("away_team", "away_team", "away team", where="with the away team {v}"),
        num("home_goals", "home_score", "number of home goals", adds=True), num("away_goals", "away_score", "number of away goals", adds=True)],
        keep=lambda r: r["division"] == "Österreichische Bundesliga" and r["date"][:4] == "2014", unseen=True),
    Table("person", "lookup_people.csv", "person", "people", [
        label("name", "name"), num("age", "age", "age", top="oldest", low="youngest"), num("height", "height", "height", top="tallest", low="shortest")],
        unseen=True),
    Table("agency", "budget.json", "agency", "agencies", [
        label("name", "agency"), num("spending_2015", "in_2015", "2015 spending", adds=True), num("spending_1985", "in_1985", "1985 spending", adds=True)],
        rows=agencies, unseen=True),
    Table("barley", "barley.json", "field", "fields", [
        text("variety", "variety", "variety", "varieties", "of the variety {v}"), text("site", "site", "site", where="at the site {v}"), num("year", "year", "year"),
        num("yield", "yield", "yield", whole=False)], unseen=True),
]

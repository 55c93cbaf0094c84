"""The buses of Reykjavik by their real timetable: one JSON object a line, once a second.

    python docs/examples/vehicles.py | mdserver pub --stdin

The timetable comes with the package straeto (GTFS: stops, trips, the times of each trip). A morning
passes at 30 times its speed and begins anew. `/vehicles/ROUTE/BLOCK` has where a bus is, between
two stops; `/routes/ROUTE` has the stops of a route, once.
"""

import csv
import importlib.metadata
import itertools
import json
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path

CITY = "ST."  # routes of the capital
BEGIN_S, END_S = 7 * 3600, 11 * 3600
SPEED = 30

Stop = tuple[float, float, float, str]  # seconds of the day, latitude, longitude, name


def table(name: str) -> list[dict[str, str]]:
    """The rows of one table of the timetable."""
    package = importlib.metadata.distribution("straeto")
    file = Path(str(package.locate_file(f"straeto/resources/{name}.txt")))
    with file.open(encoding="utf-8-sig", newline="") as stream:
        return list(csv.DictReader(stream))


def seconds(text: str) -> float:
    """`08:30:00` as seconds of the day."""
    hours, minutes, rest = text.split(":")
    return int(hours) * 3600 + int(minutes) * 60 + int(rest)


def busiest_day(trips: list[dict[str, str]]) -> set[str]:
    """The services that run on the day with most trips."""
    services: dict[str, set[str]] = defaultdict(set)
    for row in table("calendar_dates"):
        if row["exception_type"] == "1":
            services[row["date"]].add(row["service_id"])
    return max(services.values(), key=lambda day: sum(t["service_id"] in day for t in trips))


def timetable() -> dict[tuple[str, str], list[Stop]]:
    """The stops of each bus on one day in their order: (route, block) -> stops.

    A block is what one bus does on a day; it may change routes, and is one bus on each of them.
    """
    trips = [trip for trip in table("trips") if trip["route_id"].startswith(CITY)]
    day = busiest_day(trips)
    buses = {
        trip["trip_id"]: (trip["route_id"].removeprefix(CITY), trip["block_id"] or trip["trip_id"])
        for trip in trips
        if trip["service_id"] in day
    }
    where = {row["stop_id"]: row for row in table("stops")}
    found: dict[tuple[str, str], list[Stop]] = defaultdict(list)
    for row in table("stop_times"):
        if bus := buses.get(row["trip_id"]):
            stop = where[row["stop_id"]]
            at = (float(stop["stop_lat"]), float(stop["stop_lon"]), stop["stop_name"])
            found[bus].append((seconds(row["departure_time"]), *at))
    for stops in found.values():
        stops.sort()
    return found


def position(stops: list[Stop], now: float) -> dict[str, str] | None:
    """Where a bus is at a time: the fields of a publication, or None before and after its day."""
    for (left, *start, _), (comes, *end, name) in itertools.pairwise(stops):
        if left <= now < comes:
            share = (now - left) / (comes - left)
            lat, lon = (a + (b - a) * share for a, b in zip(start, end, strict=True))
            return {"lat": f"{lat:.5f}", "lon": f"{lon:.5f}", "next": name}
    return None


def write(publications: list[dict[str, object]]) -> None:
    """Writes publications for `mdserver pub --stdin`."""
    sys.stdout.write("".join(json.dumps(each) + "\n" for each in publications))
    sys.stdout.flush()


def main() -> None:
    """Writes the routes, then where each bus is, once a second."""
    buses = timetable()
    routes: dict[str, list[Stop]] = {}
    for (route, _), stops in buses.items():
        routes[route] = max(routes.get(route, []), stops[:80], key=len)
    lines = {route: [[lon, lat] for _, lat, lon, _ in stops] for route, stops in routes.items()}
    write([{"subject": f"/routes/{r}", "content": json.dumps(p)} for r, p in lines.items()])
    began = time.monotonic()
    while True:
        passed = time.monotonic() - began
        now = BEGIN_S + passed * SPEED % (END_S - BEGIN_S)
        clock = f"{int(now // 3600):02}:{int(now // 60 % 60):02}"
        moved: list[dict[str, object]] = [{"subject": "/vehicles/clock", "content": clock}]
        for (route, block), stops in buses.items():
            if fields := position(stops, now):
                subject = f"/vehicles/{route}/{block}"
                moved.append({"subject": subject, "content": route, "fields": fields})
        write(moved)
        time.sleep(max(0, 1 - (time.monotonic() - began - passed)))


if __name__ == "__main__":
    for ending in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(ending, signal.SIG_DFL)  # ends without a traceback, as other filters do
    main()

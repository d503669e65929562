"""Checks traces for viewers: view_trace.py FILE ... Prints an error and exits with 1 if a file is not a
list of Chrome's complete events with the names of their processes, or if two events of one thread
overlap partly, which viewers draw wrongly."""
import json
import sys


def expect(condition, *what):
    if not condition:
        raise ValueError(" ".join(str(word) for word in what))


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def refuse_constant(name):
    raise ValueError(f"{name} is not JSON")


def once(pairs):
    keys = [key for key, _ in pairs]
    expect(len(set(keys)) == len(keys), "a key twice:", keys)
    return dict(pairs)


def check_event(event):
    expect(isinstance(event.get("name"), str) and event["name"], "no name:", event)
    expect(isinstance(event.get("args"), dict), "no args:", event)
    for key in ("pid", "tid"):
        expect(type(event.get(key)) is int and event[key] >= 0, "no", key + ":", event)
    for key in ("ts", "dur"):
        expect(is_number(event.get(key)) and event[key] >= 0, "no", key + ":", event)


def to_ns(us):
    return round(us * 1000)


def check_nesting(events):
    """Checks the events of one thread."""
    open_ends = []
    for event in sorted(events, key=lambda e: (to_ns(e["ts"]), -to_ns(e["dur"]))):
        start = to_ns(event["ts"])
        end = start + to_ns(event["dur"])
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        expect(not open_ends or end <= open_ends[-1], "overlaps the event before it:", event)
        open_ends.append(end)


def check(name):
    """Returns {pid: name of the process}."""
    with open(name, encoding="utf-8") as file:
        events = json.load(file, parse_constant=refuse_constant, object_pairs_hook=once)
    expect(isinstance(events, list) and all(isinstance(e, dict) for e in events), "not a list of events")
    named, threads = {}, {}
    for event in events:
        if event.get("ph") == "M":
            expect(event.get("name") == "process_name", "metadata of another kind:", event)
            expect(event["pid"] not in named, "a process is named twice:", event)
            named[event["pid"]] = event["args"]["name"]
        else:
            expect(event.get("ph") == "X", "an event of another kind:", event)
            check_event(event)
            threads.setdefault((event["pid"], event["tid"]), []).append(event)
    expect(threads, "no event")
    expect({pid for pid, _ in threads} == set(named), "processes:", named, "threads:", set(threads))
    for thread in threads.values():
        check_nesting(thread)
    return named


def main():
    everyone = {}
    for name in sys.argv[1:]:
        try:
            named = check(name)
            expect(not named.keys() & everyone.keys(), "a rank of another file:", named)
            everyone.update(named)
        except (ValueError, KeyError, TypeError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
    ranks = len(sys.argv) - 1
    if ranks > 1 and everyone != {r: f"cecl rank {r} of {ranks}" for r in range(ranks)}:
        print(f"{ranks} ranks expected: {everyone}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Puts runs of example_fsdp_train --json side by side: training_table.py OUT.json RUN.json ...
Give the runs in the order in which they were made; a round is one run of each --comm. Ratios compare runs
of the same round. Writes OUT.json, which bench/plot.py draws, and prints a table."""
import json
import statistics
import sys

# Runs can be compared only if these are equal.
COMMON = ("device", "ranks", "prefetch", "layers", "width", "heads", "sequence", "batch",
          "parameters", "steps", "warm_up_steps")


class Refused(Exception):
    """The runs cannot be compared; the text says why."""


def read(name):
    try:
        with open(name, encoding="utf-8") as file:
            run = json.load(file)
        _ = [run[key] for key in (*COMMON, "received_bytes", "comm", "tokens_per_second")]
        _ = run["step_ms"]["median"], run["exposed_ms"]["median"], run["losses"][-1]
        return run
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise Refused(f"{name}: not what example_fsdp_train --json writes: {error!r}") from error


def sides_of(runs):
    """{comm: [its run of each round]}; all lists have the same length."""
    sides = {}
    for run in runs:
        sides.setdefault(run["comm"], []).append(run)
    if len({len(rounds) for rounds in sides.values()}) != 1:
        raise Refused("each --comm once a round expected")
    training = [run for run in runs if run["comm"] != "none"]
    for key in (*COMMON, "received_bytes"):
        if len({run[key] for run in (training if key == "received_bytes" else runs)}) > 1:
            raise Refused(f"the runs differ in {key}: "
                          f"{', '.join(sorted({str(run[key]) for run in runs}))}")
    return sides


def spread(values):
    return {"median": statistics.median(values), "least": min(values), "most": max(values),
            "rounds": values}


def side_summary(comm, sides):
    rounds = sides[comm]
    summary = {"comm": comm, "step_ms": spread([run["step_ms"]["median"] for run in rounds]),
               "exposed_ms": spread([run["exposed_ms"]["median"] for run in rounds]),
               "exposed_share": spread([run["exposed_ms"]["median"] / run["step_ms"]["median"]
                                        for run in rounds]),
               "tokens_per_second": spread([run["tokens_per_second"] for run in rounds]),
               "last_loss": rounds[-1]["losses"][-1], "ratio": {}}
    for other, theirs in sides.items():
        if other != comm:
            summary["ratio"][other] = spread([a["step_ms"]["median"] / b["step_ms"]["median"]
                                              for a, b in zip(rounds, theirs)])
    return summary


def summary_of(runs):
    sides = sides_of(runs)
    return {"training": {key: runs[0][key] for key in COMMON}, "rounds": len(runs) // len(sides),
            "sides": [side_summary(comm, sides) for comm in sides]}


def cell(value, digits):
    return f"{value['median']:.{digits}f} ({value['least']:.{digits}f} .. {value['most']:.{digits}f})"


def table(summary):
    what, rivals = summary["training"], [s["comm"] for s in summary["sides"] if s["comm"] != "cecl"]
    device = "GPUs" if what["device"] == "cuda" else "the host device"
    yield (f"{what['parameters'] / 1e6:.2f} million parameters, {what['ranks']} ranks on {device}, "
           f"{summary['rounds']} rounds of {what['steps'] - what['warm_up_steps']} steps after "
           f"{what['warm_up_steps']}")
    yield "medians over the rounds (least .. most); x: this step time / theirs in the same round"
    heads = ["", "a step, ms", "waits, %", *(f"x {rival}" for rival in rivals), "last loss"]
    rows = [heads]
    for side in summary["sides"]:
        share = {key: 100 * side["exposed_share"][key] for key in ("median", "least", "most")}
        ratios = [cell(side["ratio"][r], 3) if r in side["ratio"] else "1" for r in rivals]
        rows.append([side["comm"], cell(side["step_ms"], 2), cell(share, 1), *ratios,
                     "-" if side["comm"] == "none" else f"{side['last_loss']:.4f}"])
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    for row in rows:
        yield "  ".join(word.ljust(width) for word, width in zip(row, widths)).rstrip()


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    names = sys.argv[2:]
    try:
        if len(set(names)) < len(names):  # for example of cecl,cecl: a second run would have replaced the first one
            raise Refused("a run is given twice")
        summary = summary_of([read(name) for name in names])
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            json.dump(summary, file, indent=1)
            file.write("\n")
    except (Refused, OSError, ZeroDivisionError) as error:
        print(f"training_table.py: {error}", file=sys.stderr)
        return 1
    print("\n".join(table(summary)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

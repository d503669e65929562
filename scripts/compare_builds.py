#!/usr/bin/env python3
"""Runs cecl_perf of two builds in turn and compares their times: before and after a change.
    compare_builds.py BEFORE AFTER [--rounds N] [--ranks N] [--case "OPTIONS OF cecl_perf"]... [-- MPIRUN...]
BEFORE and AFTER are folders with cecl_perf in bench/. A round runs each case once with each build. The builds take
turns in being first, because a GPU gets slower as it warms up. (Times of one build may differ by 10 % between
processes.) Prints each case's medians, and the mean of after / before with its 95 % interval.
Without --case: all-gather, all-to-all, all-reduce and reduce-scatter of 4 KiB, 1 MiB and 64 MiB a rank, in memory of
ceclMemAlloc ("cecl") and of malloc (on GPUs cudaMalloc). A case has a line for each of its sizes, placements and sides.
Ends with 1 if a run failed, if the builds measured different things, or if no case ran."""
import argparse
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

MPIRUN = "mpirun --oversubscribe --bind-to none --mca btl self,vader"
OPERATIONS = (("all_gather", "--in-place"), ("alltoall", "--out-of-place"),
              ("all_reduce", "--in-place --type bfloat16"), ("reduce_scatter", "--out-of-place --type bfloat16"))
SIZES = (("4K", 200), ("1M", 100), ("64M", 10))


def usual_cases():
    return [f"--op {op} {options} --memory malloc -b {size} -e {size} -n {times} --rounds 9 -c 0"
            for op, options in OPERATIONS for size, times in SIZES]


def times_of(build, case, mpirun):
    """{(bytes, placement, side): us of a call}, or None, with the run's first error on stderr."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [*mpirun, os.path.join(build, "bench", "cecl_perf"), *shlex.split(case), "--json", file.name]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            said = [line for line in (run.stderr + run.stdout).splitlines() if "cecl" in line]
            print(f"{build}: {case}: ended with {run.returncode}: {said[0] if said else run.stderr[:200]}",
                  file=sys.stderr)
            return None
        rows = json.load(file)["rows"]
        return {(row["bytes"], "in" if row["in_place"] else "out", side): us for row in rows for side, us in row["us"].items()}


# Student's t for 95 %, by the number of rounds. For more rounds the last value gives a slightly too wide interval.
STUDENT = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}


def interval(ratios):
    """The mean of the logarithms, and half of its 95 % interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.mean(logs)
    if len(logs) < 2:
        return mean, math.inf
    t = STUDENT.get(len(logs), STUDENT[10])
    return mean, t * statistics.stdev(logs) / math.sqrt(len(logs))


def compare(builds, cases, rounds, mpirun):
    times = {}
    failed = False
    for number in range(rounds):
        for case in cases:
            pair = [None, None]
            for side in (0, 1) if number % 2 == 0 else (1, 0):
                pair[side] = times_of(builds[side], case, mpirun)
            if None in pair:
                failed = True
                continue
            for what in pair[0].keys() ^ pair[1].keys():
                print(f"{case}: {' '.join(map(str, what))}: measured by one build alone", file=sys.stderr)
                failed = True
            for what in pair[0].keys() & pair[1].keys():
                times.setdefault((case, *what), []).append((pair[0][what], pair[1][what]))
    return times, failed


def line_of(case, size, place, side, pairs):
    mean, half = interval([after / before for before, after in pairs])
    before, after = (statistics.median(side) for side in zip(*pairs))
    span = "" if math.isinf(half) else f" [{math.exp(mean - half):.3f}, {math.exp(mean + half):.3f}]"
    return f"| {case} | {size} | {place} | {side} | {before:.2f} | {after:.2f} | {math.exp(mean):.3f}{span} |"


def main():
    words = sys.argv[1:]
    mpirun = shlex.split(MPIRUN)
    if "--" in words:
        words, mpirun = words[:words.index("--")], words[words.index("--") + 1:]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--case", action="append")
    options = parser.parse_args(words)
    cases = options.case or usual_cases()
    times, failed = compare((options.before, options.after), cases, options.rounds,
                            [*mpirun, "-n", str(options.ranks)])
    print("| cecl_perf | bytes a rank | place | side | before, us | after, us | after / before |\n"
          "| --- | --- | --- | --- | --- | --- | --- |")
    for (case, *what), pairs in sorted(times.items(), key=lambda item: (cases.index(item[0][0]), item[0][1:])):
        print(line_of(case, *what, pairs))
    return int(failed or not times)


if __name__ == "__main__":
    sys.exit(main())

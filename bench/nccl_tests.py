#!/usr/bin/env python3
"""Runs nccl-tests with NCCL and with cecl in its place, in turn, and compares the times of each size.

    bench/nccl_tests.py --programs ~/nccl-tests/build --cecl-run /opt/cecl/bin/cecl-run \\
        all_gather alltoall -- -b 8 -e 1G -f 2 -n 20 -w 5

Arguments after -- go to the programs. Build nccl-tests with MPI=1 (or use --one-process). Times are medians
over --rounds; each process keeps to a part of the processors of its own, the same one on both sides. Exits
with 1 if a value was wrong or a program failed, or, with --most, if a size took more than that times NCCL's
time; with 2 for a wrong argument.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

# Columns of a line of results: two placements, each with the time, two bandwidths, and the wrong values.
PLACES = {"out": (5, 8), "in": (9, 12)}
FIELDS = 13
NONE_WRONG = ("0", "N/A")
FEWEST_BYTES = 1  # nccl-tests prints sizes that it rounded down to 0; nothing moves then
# Run by each process: takes its part of the processors that it may use.
PINNED = 'r=${OMPI_COMM_WORLD_LOCAL_RANK:-0}; exec taskset -c "$((r * %d))-$((r * %d + %d))" "$@"'


def rows_of(text):
    """Of a program's output: {(bytes, place): us}, and how many results were wrong."""
    times, wrong = {}, 0
    for line in text.splitlines():
        fields = line.split()
        if len(fields) != FIELDS or not fields[0].isdigit() or int(fields[0]) < FEWEST_BYTES:
            continue
        for place, (time, errors) in PLACES.items():
            times[int(fields[0]), place] = float(fields[time])
            wrong += fields[errors] not in NONE_WRONG
    return times, wrong


def command_of(args, op, side, rest):
    program = [os.path.join(args.programs, f"{op}_perf"), *rest]
    if side == "cecl":
        program = [args.cecl_run, "--policy", args.policy, *program]
    if args.one_process:
        return [*program, "-g", str(args.ranks)]
    each = max(1, (os.cpu_count() or 1) // args.ranks)
    pinned = ["sh", "-c", PINNED % (each, each, each - 1), "pinned"]
    return [*args.mpirun.split(), "-n", str(args.ranks), *pinned, *program, "-g", "1"]


def run_once(args, op, side, rest):
    command = command_of(args, op, side, rest)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=args.timeout)
    except subprocess.TimeoutExpired:
        return {}, 0, f"{' '.join(command)}: not ended after {args.timeout} s"
    times, wrong = rows_of(done.stdout)
    if done.returncode != 0 and wrong == 0 or not times:
        return times, wrong, f"{' '.join(command)}: ended with {done.returncode}\n{done.stdout}{done.stderr}"
    return times, wrong, None


def compare(args, op, rest):
    """All rounds of a program: its rows, the wrong values, and what went wrong besides."""
    sides = {"nccl": {}, "cecl": {}}
    wrong, failures = dict.fromkeys(sides, 0), []
    for _ in range(args.rounds):
        for side, all_times in sides.items():
            times, errors, failure = run_once(args, op, side, rest)
            wrong[side] += errors
            failures += [failure] if failure else []
            for key, time in times.items():
                all_times.setdefault(key, []).append(time)
    rows = []
    for key in sorted(sides["nccl"].keys() & sides["cecl"].keys()):
        nccl, cecl = (statistics.median(sides[side][key]) for side in sides)
        rounds = {side: sides[side][key] for side in sides}
        rows.append({"bytes": key[0], "place": key[1], "nccl": nccl, "cecl": cecl, "rounds": rounds})
    return rows, wrong, failures


def show(op, rows, most):
    for row in rows:
        ratio = row["nccl"] / row["cecl"] if row["cecl"] > 0 else float("nan")
        mark = "  over" if most and row["cecl"] > most * row["nccl"] else ""
        times = f"nccl {row['nccl']:9.2f} us  cecl {row['cecl']:9.2f} us  nccl / cecl {ratio:.3f}"
        print(f"{op:16s} {row['bytes']:11d} bytes {row['place']:>3s}  {times}{mark}", flush=True)


def parse():
    own, rest = sys.argv[1:], []
    if "--" in own:
        own, rest = own[: own.index("--")], own[own.index("--") + 1 :]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="+", metavar="OP", help="all_gather, alltoall, ...: OP_perf is run")
    parser.add_argument("--programs", required=True, metavar="FOLDER", help="where nccl-tests was built")
    parser.add_argument("--cecl-run", default="cecl-run", help="where cecl-run is")
    parser.add_argument("--policy", default="auto", help="the policy that cecl-run gets")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one-process", action="store_true", help="one process for all GPUs, without MPI")
    parser.add_argument("--mpirun", default="mpirun --bind-to none", help="the command that starts processes")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for each run")
    parser.add_argument("--most", type=float, metavar="X", help="how much longer than NCCL a size may take")
    parser.add_argument("--json", metavar="FILE", help="write the results")
    args = parser.parse_args(own)
    for op in args.ops:
        if not os.access(os.path.join(args.programs, f"{op}_perf"), os.X_OK):
            parser.error(f"{args.programs} has no program {op}_perf")
    return args, rest


def main():
    args, rest = parse()
    results, bad = {}, 0
    for op in args.ops:
        rows, wrong, failures = compare(args, op, rest)
        show(op, rows, args.most)
        over = [row for row in rows if args.most and row["cecl"] > args.most * row["nccl"]]
        gains = sum(row["cecl"] * 1.03 < row["nccl"] for row in rows)
        print(f"{op}: {len(rows)} sizes, {gains} at least 1.03 x faster, {len(over)} over; "
              f"wrong: nccl {wrong['nccl']}, cecl {wrong['cecl']}", flush=True)
        for failure in failures:
            print(failure, file=sys.stderr)
        bad += len(over) + wrong["nccl"] + wrong["cecl"] + len(failures)
        results[op] = {"rows": rows, "wrong": wrong}
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"nccl_tests": rest, "policy": args.policy, "ranks": args.ranks, "ops": results}, file, indent=1)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

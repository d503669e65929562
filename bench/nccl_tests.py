#!/usr/bin/env python3
"""Runs nccl-tests with NCCL and with cecl in its place, in turn, and compares the times of each result.

    bench/nccl_tests.py --programs ~/nccl-tests/build --cecl-run /opt/cecl/bin/cecl-run \\
        all_gather alltoall -- -b 8 -e 1G -f 2 -n 20 -w 5

Arguments after -- go to the programs. Build nccl-tests with MPI=1 (or use --one-process). With --nccl FILE both
sides use that NCCL. A result is a time of a row, out of place or in place; its median over --rounds is compared.
Each MPI process keeps to a part of the processors that this script may use, the same one on both sides; where
there are fewer processors than ranks, ranks share them. Exits with 1 if a program failed or ran too long, if a
value was wrong, if cecl served no call (unless --may-pass-all), if a row was printed twice or not in every run,
or if, with --most N, a result took more than N times NCCL's time; with 2 for a wrong argument.
"""
import argparse
import collections
import dataclasses
import itertools
import json
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys

# Columns of a row: size, count, type, redop (hypercube leaves it out), root; then for each place the time, two
# bandwidths, and the wrong values. PLACES has each place's columns of time and wrong values, from the row's end.
PLACES = {"out": (-8, -5), "in": (-4, -1)}
FIELDS = (12, 13)
NOT_CHECKED = "N/A"
NONE_WRONG = ("0", NOT_CHECKED)
FEWEST_BYTES = 1  # nccl-tests prints sizes that it rounded down to 0; nothing moves then
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
# A row of cecl's table of calls: how many calls, and who carried them out.
CALLS = re.compile(r"cecl: nccl\w+ +.*? +(\d+) +(?:\d+|unknown) +(cecl|NCCL|refused) +(?:yes|no|unknown|-) ")
LOCAL_RANK = "OMPI_COMM_WORLD_LOCAL_RANK"
# Each process runs this, and so keeps to its part of the processors.
PINNED = ('case ${%s:?is not set, so processors cannot be chosen; --local-rank names it for other launchers} in '
          '%s *) echo "%s: $%s: more local ranks than --ranks" >&2; exit 1;; esac; exec taskset -c "$part" "$@"')
END_S, KILL_S = 5, 30  # how long processes have to end after SIGTERM and after SIGKILL

Key = collections.namedtuple("Key", "bytes type redop root place")


@dataclasses.dataclass
class Run:
    """The results of one run of a program."""

    times: dict  # {Key: us}
    wrong: int  # results with wrong values
    checked: int  # results whose values the program checked
    served: int  # calls that cecl carried out
    calls: int  # all calls in cecl's tables
    failures: list


def words_of(key):
    """Names the row."""
    return f"{key.bytes} bytes, {key.type}, {key.redop}, root {key.root}"


def is_row(fields):
    return len(fields) in FIELDS and fields[0].isdigit() and int(fields[0]) >= FEWEST_BYTES


def rows_of(text):
    """Reads a program's output: {Key: us}, how many results were wrong, and the keys that came twice."""
    times, wrong, twice = {}, 0, []
    for line in text.splitlines():
        fields = line.split()
        if not is_row(fields):
            continue
        for place, (time, errors) in PLACES.items():
            redop = fields[3] if len(fields) == max(FIELDS) else "none"
            key = Key(int(fields[0]), fields[2], redop, fields[-9], place)
            twice += [key] if key in times else []
            times.setdefault(key, float(fields[time]))
            wrong += fields[errors] not in NONE_WRONG
    return times, wrong, twice


def checked_of(text):
    """How many results in a program's output were checked. With -c 0 none is."""
    rows = [line.split() for line in text.splitlines()]
    return sum(row[errors] != NOT_CHECKED for row in rows if is_row(row) for _, errors in PLACES.values())


def calls_of(text):
    """Reads from cecl's tables how many calls cecl carried out, and how many there were in all."""
    counts = [(int(calls), by) for calls, by in CALLS.findall(text)]
    return sum(calls for calls, by in counts if by == "cecl"), sum(calls for calls, _ in counts)


# ---- commands


def list_of(numbers):
    """A list of processors for taskset: 0, 1, 2, 8 become 0-2,8-8."""
    groups = itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    spans = [[number for _, number in group] for _, group in groups]
    return ",".join(f"{span[0]}-{span[-1]}" for span in spans)


def pinned(args):
    processors = sorted(os.sched_getaffinity(0))
    each = max(1, len(processors) // args.ranks)
    cases = []
    for rank in range(args.ranks):
        part = [processors[(rank * each + i) % len(processors)] for i in range(each)]
        cases.append(f"{rank}) part={list_of(part)};;")
    return ["sh", "-c", PINNED % (args.local_rank, " ".join(cases), args.local_rank, args.local_rank), "pinned"]


def prefix_of(args, side):
    if side == "cecl":
        nccl = ["--nccl", args.nccl] if args.nccl else []
        return [args.cecl_run, "--stats", *nccl, "--policy", args.policy]
    if not args.nccl:
        return []
    inherited = os.environ.get("LD_PRELOAD")
    return ["env", "LD_PRELOAD=" + ":".join([args.nccl, *([inherited] if inherited else [])])]


def command_of(args, op, side, rest):
    program = [*prefix_of(args, side), os.path.join(args.programs, f"{op}_perf"), *rest]
    if args.one_process:
        return [*program, "-g", str(args.ranks)]
    return [*args.mpirun.split(), "-n", str(args.ranks), *pinned(args), *program, "-g", "1"]


# ---- processes


def output_of(process, seconds):
    """Waits until the process has ended. Returns both outputs, or None if that takes longer than the limit."""
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None


def signal_group(group, number):
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass


def kill_session(session):
    """Kills all process groups of a session: Open MPI gives each rank a group of its own."""
    groups = set()
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.getsid(int(name)) == session:
                groups.add(os.getpgid(int(name)))
        except ProcessLookupError:
            pass
    for group in groups:
        signal_group(group, signal.SIGKILL)


def end(process):
    """Ends a command and all that it started. Returns both outputs up to then."""
    signal_group(process.pid, signal.SIGTERM)  # mpirun ends its ranks then
    output = output_of(process, END_S)
    kill_session(process.pid)
    return output or output_of(process, KILL_S) or ("", "")


def run_command(command, seconds):
    """Runs a command. Returns its exit status (None: it took too long, and was killed) and both outputs."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "errors": "replace"}
    with subprocess.Popen(command, start_new_session=True, **pipes) as process:
        try:
            output = output_of(process, seconds)
        except BaseException:  # Ctrl-C does not reach another session
            end(process)
            raise
        if output is None:
            return None, *end(process)
        return process.returncode, *output


# ---- runs


def failures_of(args, side, status, out, err):
    """What went wrong in a run, except wrong values."""
    times, wrong, twice = rows_of(out)
    served, calls = calls_of(err)
    if status is None:
        return [f"timed out after {args.timeout:g} s and was killed\n{out}{err}"]
    if status != 0 and wrong == 0:
        return [f"ended with {status}\n{out}{err}"]
    if not times:
        return [f"printed no row of results\n{out}{err}"]
    failures = list(dict.fromkeys(f"printed two rows for {words_of(key)}" for key in twice))
    if args.nccl and f"object '{args.nccl}' from LD_PRELOAD cannot be preloaded" in err:
        failures.append(f"{args.nccl} cannot be preloaded, so another NCCL was used")
    if side == "cecl" and calls == 0:
        failures.append("printed no table of calls, so cecl was not in NCCL's place")
    elif side == "cecl" and served == 0 and not args.may_pass_all:
        failures.append(f"cecl served none of {calls} calls; --may-pass-all allows this")
    return failures


def run_once(args, op, side, rest):
    command = command_of(args, op, side, rest)
    status, out, err = run_command(command, args.timeout)
    failures = [f"{shlex.join(command)}: {words}" for words in failures_of(args, side, status, out, err)]
    return Run(*rows_of(out)[:2], checked_of(out), *calls_of(err), failures)


def results_of(op, runs):
    """The results that both sides have, and what is not in every run."""
    keys = dict.fromkeys(key for side in runs.values() for run in side for key in run.times)
    results, lost = [], []
    for key in keys:
        rounds = {side: [run.times[key] for run in of_side if key in run.times] for side, of_side in runs.items()}
        if any(len(rounds[side]) < len(runs[side]) for side in runs):
            lost.append(f"{op}: the row for {words_of(key)} is not in every run")
        if all(rounds.values()):
            medians = {side: statistics.median(times) for side, times in rounds.items()}
            results.append({**key._asdict(), **medians, "rounds": rounds})
    return results, list(dict.fromkeys(lost))


def compare(args, op, rest):
    """Runs all rounds of a program. Returns its results, the runs of each side, and what failed, except wrong values."""
    runs = {"nccl": [], "cecl": []}
    for _ in range(args.rounds):
        for side, of_side in runs.items():
            of_side.append(run_once(args, op, side, rest))
    failures = [failure for of_side in runs.values() for run in of_side for failure in run.failures]
    results, lost = results_of(op, runs)
    return results, runs, failures or lost


def is_over(result, most):
    return most is not None and result["cecl"] > most * result["nccl"]


def show(op, results, most):
    for result in results:
        ratio = result["nccl"] / result["cecl"] if result["cecl"] > 0 else float("nan")
        row = f"{result['bytes']:11d} bytes {result['type']:>8s} {result['redop']:>6s} root {result['root']:>2s}"
        times = f"nccl {result['nccl']:9.2f} us  cecl {result['cecl']:9.2f} us  nccl / cecl {ratio:.3f}"
        mark = "  over" if is_over(result, most) else ""
        print(f"{op:16s} {row} {result['place']:>3s}  {times}{mark}", flush=True)


def words_of_wrong(runs, wrong):
    if not all(run.checked for of_side in runs.values() for run in of_side):
        return "values were not checked in every run"
    return f"wrong results in all rounds: nccl {wrong['nccl']}, cecl {wrong['cecl']}"


def summarize(op, results, wrong, calls, most):
    rows = len({(result["bytes"], result["type"], result["redop"], result["root"]) for result in results})
    gains = sum(result["cecl"] * 1.03 < result["nccl"] for result in results)
    over = sum(is_over(result, most) for result in results)
    limit = "" if most is None else f"; over {most:g} x NCCL's time: {over}"
    print(f"{op}: {len(results)} results of {rows} rows compared; cecl at least 1.03 x faster: {gains}{limit}; "
          f"{wrong}; "
          f"cecl served {calls['served']} of {calls['all']} calls", flush=True)
    return over


# ---- arguments


def starts_at_zero(rest):
    """Whether the smallest size that a program's arguments ask for is 0 bytes."""
    values = []
    for i, word in enumerate(rest):
        name, is_equal, value = word.partition("=")
        if word == "-b" or len(word) > 3 and "--minbytes".startswith(word):
            values += rest[i + 1 : i + 2]
        elif word.startswith("-b"):
            values.append(word[2:])
        elif is_equal and len(name) > 3 and "--minbytes".startswith(name):
            values.append(value)
    sizes = [re.match(r"(\d+\.?\d*|\.\d+) *([kmg]?)", value.strip().lower()) for value in values]
    return any(size and float(size[1]) * UNITS[size[2]] < 1 for size in sizes)


def check(parser, args, rest):
    for op in args.ops:
        if not os.access(os.path.join(args.programs, f"{op}_perf"), os.X_OK):
            parser.error(f"{args.programs} has no program {op}_perf")
    if args.ranks < 1 or args.rounds < 1:
        parser.error("--ranks and --rounds: 1 or more expected")
    if not args.local_rank.isidentifier():
        parser.error(f"--local-rank {args.local_rank}: the name of a variable expected")
    if starts_at_zero(rest):
        parser.error("-b 0: nccl-tests does not end with -b 0 -f 2; begin with a size above 0")
    if args.nccl and not os.path.isfile(args.nccl):
        parser.error(f"--nccl {args.nccl}: no such file")
    if args.nccl and re.search("[ :]", args.nccl):
        parser.error(f"--nccl {args.nccl}: cannot be preloaded: its path has a space or a colon")


def parse():
    own, rest = sys.argv[1:], []
    if "--" in own:
        own, rest = own[: own.index("--")], own[own.index("--") + 1 :]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="+", metavar="OP", help="all_gather, alltoall, ...: OP_perf is run")
    parser.add_argument("--programs", required=True, metavar="FOLDER", help="where nccl-tests was built")
    parser.add_argument("--cecl-run", default="cecl-run", help="where cecl-run is")
    parser.add_argument("--policy", default="auto", help="the policy that cecl-run gets")
    parser.add_argument("--nccl", metavar="FILE", type=os.path.abspath, help="the NCCL of both sides")
    parser.add_argument("--may-pass-all", action="store_true", help="no failure if cecl serves no call of a run")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one-process", action="store_true", help="one process for all GPUs, without MPI")
    parser.add_argument("--mpirun", default="mpirun --bind-to none", help="the command that starts processes")
    parser.add_argument("--local-rank", default=LOCAL_RANK, metavar="NAME",
                        help=f"the variable that tells a process its rank on this host ({LOCAL_RANK})")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for each run")
    parser.add_argument("--most", type=float, metavar="X", help="how many times NCCL's time a result may take")
    parser.add_argument("--json", metavar="FILE", help="write the results")
    args = parser.parse_args(own)
    check(parser, args, rest)
    return args, rest


def main():
    args, rest = parse()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that run_command ends its command
    of_ops, bad = {}, 0
    for op in args.ops:
        results, runs, failures = compare(args, op, rest)
        wrong = {side: sum(run.wrong for run in of_side) for side, of_side in runs.items()}
        calls = {"served": sum(run.served for run in runs["cecl"]), "all": sum(run.calls for run in runs["cecl"])}
        show(op, results, args.most)
        bad += summarize(op, results, words_of_wrong(runs, wrong), calls, args.most)
        bad += sum(wrong.values()) + len(failures)
        for failure in failures:
            print(failure, file=sys.stderr)
        checked = {side: sum(run.checked for run in of_side) for side, of_side in runs.items()}
        of_ops[op] = {"rows": results, "checked": checked, "wrong": wrong, "calls": calls}
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            settings = {"policy": args.policy, "ranks": args.ranks, "nccl": args.nccl}
            json.dump({"nccl_tests": rest, **settings, "ops": of_ops}, file, indent=1)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Checks cecl-run --policy auto as it learns: what it decides, and that results are right. Each rank has its own GPU if
CUDA shows several; otherwise, and with --share-gpu, all ranks share one.

    scripts/measure_learn.py --cecl-run build/bin/cecl-run [--nccl FILE]
        [--nccl-tests FOLDER] [--keep FOLDER] [PART ...]

These two print, after at most 290 s each, a table of what programs gain that have GPUs of their own:
    scripts/measure_learn.py --cecl-run FILE --nccl-tests FOLDER --seconds 290 --ranks 2,4 rows
    scripts/measure_learn.py --cecl-run FILE --seconds 290 large

Parts (default: all but the last two), each of at most --limit seconds:
  fsdp2, fsdp4  FSDP2 with 2 and 4 ranks and trials until a decision, with reductions: losses within 1e-3 of plain
                NCCL's, alike on all ranks
  moves2, moves4  the same, but cecl serves only gathers (CECL_SM_POLICY=never): bits as with plain NCCL
  loop          a host-bound loop of two streams, in turn with the default waits for late ranks and with two shorter ones
  late          the share of late calls in FSDP2 with 2 ranks, with the same three waits in turn
  one           nccl-tests: an all-gather of one size 3,000 times, until a decision
  programs      the same for all 11 programs of nccl-tests; those of messages alone have no trial
  periods       5 programs of nccl-tests with several sizes and -n 200
  jax           tests/nccl/jax_calls.py under auto with trials
  jax_graphs    the same with --policy all, and collectives in XLA's command buffers, which are CUDA graphs
  large         FSDP2 of 2.4 billion parameters at batch 2 and 1, with NCCL, with cecl-run and with collectives that do
                nothing, in turn; a GPU for each rank
  rows          11 programs of nccl-tests, with NCCL and with cecl-run in turn, up to 3 rounds: the rows' times divided
                by NCCL's, and how much NCCL's own times differ between rounds (NCCL / NCCL). The part fails if a row is
                clearly slower: even the fastest run with cecl takes over 1.03 times NCCL's slowest
Times on a shared GPU say nothing about NVLink; NCCL's ranks use sockets there. Ends with 1 if a part fails. The last
lines are a table.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "bench"))
sys.path.insert(0, os.path.join(ROOT, "examples/pytorch"))
import compare  # noqa: E402
import nccl_tests as rows_reader  # noqa: E402
STEPS = os.path.join(ROOT, "tests/gpu/learn_steps.py")
# Programs of nccl-tests. MESSAGES: programs of sends and receives, for which there are no trials.
COLLECTIVES = ("all_gather", "all_reduce", "reduce_scatter", "broadcast", "reduce", "alltoall", "gather", "scatter")
MESSAGES = ("sendrecv", "hypercube", "alltoallv")
OWN_HOST = ["sh", "-c", 'NCCL_HOSTID="rank $OMPI_COMM_WORLD_RANK" exec "$@"', "own_host"]
ROW_ROUNDS = 3
ROWS = []
SHARING = {"CECL_SHARE_GPU": "1"}  # set_gpus empties it
BEGAN = time.monotonic()


class Wrong(Exception):
    """A part found something wrong; the text says what."""


def need(condition, words):
    if not condition:
        raise Wrong(words)


def note(part, what, words):
    ROWS.append((part, what, words))
    print(f"{part}: {what}: {words}", flush=True)


class Clock:
    """How much of a part's time is left."""

    def __init__(self, limit):
        self.limit, self.began = limit, time.monotonic()

    def left(self):
        return max(5.0, self.limit - (time.monotonic() - self.began))


def end(process):
    """Ends a launcher that takes too long, and what it started."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, signum)
            process.communicate(timeout=10)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def run(command, environment, clock, log):
    """Runs a command. Returns its output, and keeps it in a file."""
    full = {**os.environ, **SHARING, "NCCL_NVLS_ENABLE": "0", "OMP_NUM_THREADS": "2", **environment}
    with open(log, "w+", encoding="utf-8") as file:
        print(" ".join(command), file=file, flush=True)
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=full, start_new_session=True)
        try:
            process.wait(timeout=clock.left())
        except subprocess.TimeoutExpired as error:
            end(process)
            raise Wrong(f"not done after {clock.limit} s: {' '.join(command)}") from error
        file.seek(0)
        said = file.read()
    need(process.returncode == 0, f"ended with {process.returncode}: {' '.join(command)}\n{said[-3000:]}")
    return said


def start(args, ranks):
    """The command that starts ranks by MPI. NCCL accepts ranks on one GPU if they seem to be on different hosts."""
    return [*args.mpirun.split(), "-n", str(ranks), *(OWN_HOST if SHARING else [])]


def device_of_tests():
    return {"NCCL_TESTS_DEVICE": "0"} if SHARING else {}


def cecl(args, *options):
    return [args.cecl_run, *options] if options else []


def program(args, what, ranks, steps, name, prefix, environment, clock):
    """Runs learn_steps.py. Returns each rank's results, the output, and what --stats reports on communicators."""
    result, stats = (os.path.join(args.keep, f"{name}.{kind}") for kind in ("json", "stats"))
    for path in (result, stats):
        if os.path.exists(path):
            os.remove(path)
    if prefix:
        prefix = [*prefix, f"--stats={stats}"]
    command = [*prefix, sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command += ["--standalone", STEPS, what, "--steps", str(steps), "--json", result]
    said = run(command, environment, clock, os.path.join(args.keep, f"{name}.log"))
    with open(result, encoding="utf-8") as file:
        got = json.load(file)
    return got, said, comms_of(stats)


def comms_of(stats):
    if not os.path.exists(stats):
        return []
    with open(stats, encoding="utf-8") as file:
        return [comm for line in file for comm in json.loads(line)["communicators"]]


def decided(comms):
    return [comm for comm in comms if comm["state"] == "decided"]


def decision_lines(said):
    return [line for line in said.splitlines() if line.startswith("cecl: ") and " steps): " in line or " calls): " in line]


def auto(args):
    return cecl(args, "--policy", "auto")


# ---- parts


def losses_of(got):
    need(all(one["losses"] == got[0]["losses"] for one in got), "losses differ between ranks")
    return got[0]["losses"]


def hashes_of(got):
    return [one["hash"] for one in got]


def train_plain(args, part, ranks, steps, clock):
    plain, _, _ = program(args, "train", ranks, steps, f"{part}_plain", [], {}, clock)
    note(part, "plain NCCL", f"a step {plain[0]['step_ms']:.1f} ms, last loss {plain[0]['losses'][-1]:.5f}")
    return plain


def need_decision(comms, ranks):
    """Checks that the communicator of all ranks has a decision, the same on all ranks."""
    whole = [comm for comm in comms if comm["ranks"] == ranks]
    need(len(decided(whole)) == ranks, f"not decided on all ranks: {states(comms)}")
    need(len({comm["decision"] for comm in whole}) == 1, f"ranks differ in what is decided: {states(comms)}")


def states(comms):
    return "; ".join(f"rank {comm['rank']}: {comm['state']}, {comm['trials']} trials, {comm['period_calls']} calls, "
                     f"{comm['decision']}" for comm in comms)


def fsdp(args, part, ranks, clock):
    steps = 120
    plain = train_plain(args, part, ranks, steps, clock)
    full, said, comms = program(args, "train", ranks, steps, f"{part}_auto", auto(args), {}, clock)
    furthest = max(abs(a - b) for a, b in zip(losses_of(full), losses_of(plain)))
    need(furthest <= 1e-3, f"losses differ by {furthest:.2g}")
    need_decision(comms, ranks)
    note(part, "with reductions", f"losses within {furthest:.2g}; a step {full[0]['step_ms']:.1f} ms; {'; '.join(decision_lines(said))}")


def moves(args, part, ranks, clock):
    steps = 120
    plain = train_plain(args, part, ranks, steps, clock)
    if ranks == 2:
        again, _, _ = program(args, "train", ranks, steps, f"{part}_again", [], {}, clock)
        need(hashes_of(plain) == hashes_of(again), "two runs of plain NCCL have other bits, so nothing can be compared")
    never = {"CECL_SM_POLICY": "never"}
    served, said, comms = program(args, "train", ranks, steps, f"{part}_auto", auto(args), never, clock)
    need(hashes_of(served) == hashes_of(plain), "other bits than with plain NCCL")
    need_decision(comms, ranks)
    note(part, "gathers alone", f"equal bits; {'; '.join(decision_lines(said))}")


def part_fsdp2(args, clock):
    fsdp(args, "fsdp2", 2, clock)


def part_fsdp4(args, clock):
    fsdp(args, "fsdp4", 4, clock)


def part_moves2(args, clock):
    moves(args, "moves2", 2, clock)


def part_moves4(args, clock):
    moves(args, "moves4", 4, clock)


def by_waits(args, part, what, steps, rounds, clock):
    """Runs a program of 2 ranks in which cecl serves all calls, in turn with the default waits for late ranks and with
    two shorter ones. Yields the side (the setting), what ranks got, and the share of late calls."""
    sides = {"as it is": "", "late.behind_ns 0": "late.behind_ns * any 0\n",
             "and late.pending_ns 0": "late.behind_ns * any 0\nlate.pending_ns * any 0\n"}
    for number in range(rounds):
        for index, (side, rows) in enumerate(sides.items()):
            table = os.path.join(args.keep, f"{part}_{index}.tuning")
            with open(table, "w", encoding="utf-8") as file:
                file.write(f"cecl-tuning 1\n{rows}")
            got, _, comms = program(args, what, 2, steps, f"{part}_{number}_{index}", cecl(args, "--policy", "all"),
                                    {"CECL_TUNING": table}, clock)
            late = sum(comm["late_calls"] for comm in comms) / max(1, sum(comm["told_calls"] for comm in comms))
            yield side, got, f"{100 * late:.0f} % of calls late"


def part_loop(args, clock):
    for side, got, late in by_waits(args, "loop", "loop", 2000, 2, clock):
        need(all(one["wrong"] == 0 for one in got), f"{side}: wrong values")
        note("loop", side, f"0 wrong; {max(one['us'] for one in got):.0f} us a turn of two gathers, {late}")


def part_late(args, clock):
    for side, got, late in by_waits(args, "late", "train", 60, 1, clock):
        losses_of(got)
        note("late", f"FSDP2, {side}", f"{got[0]['step_ms']:.1f} ms a step, {late}")


def nccl_tests(args, op, clock, name, *rest):
    """Runs a program of nccl-tests under auto with trials, with 2 ranks. Returns the output, and what --stats reports on
    communicators."""
    stats = os.path.join(args.keep, f"{name}.stats")
    if os.path.exists(stats):
        os.remove(stats)
    command = [*start(args, 2), *auto(args), f"--stats={stats}"]
    command += [os.path.join(args.nccl_tests, f"{op}_perf"), "-g", "1", "-c", "1", *rest]
    said = run(command, device_of_tests(), clock, os.path.join(args.keep, f"{name}.log"))
    need("Out of bounds values : 0 OK" in said, f"{op}: wrong values, or no result\n{said[-2000:]}")
    return said, comms_of(stats)


def repeat(args, op, clock, times=3000):
    """Runs one size again and again. Returns the output, and what --stats reports on communicators."""
    return nccl_tests(args, op, clock, f"one_{op}", "-b", "64K", "-e", "64K", "-n", str(times), "-w", "5")


def part_one(args, clock):
    said, comms = repeat(args, "all_gather", clock)
    need_decision(comms, 2)
    note("one", "all_gather, 64 KiB, -n 3000", f"0 wrong; {'; '.join(decision_lines(said))}")


def part_programs(args, clock):
    undecided = []
    for op in (*MESSAGES, *COLLECTIVES):
        said, comms = repeat(args, op, clock, 3000 if op in COLLECTIVES else 100)
        if op in COLLECTIVES and len(decided(comms)) != 2:
            undecided.append(op)
        note("programs", op, f"0 wrong; {'; '.join(decision_lines(said)) or states(comms)}")
    need(not undecided, f"no decision of both ranks: {', '.join(undecided)}")


def part_periods(args, clock):
    for op in ("all_gather", "all_reduce", "reduce_scatter", "alltoall", "broadcast"):
        nccl_tests(args, op, clock, f"periods_{op}", "-b", "64K", "-e", "1M", "-f", "4", "-n", "200", "-w", "5")
    note("periods", "5 programs, -n 200, 64 KiB to 1 MiB", "0 wrong")


def jax_calls(args, clock, name, policy, flags, steps):
    """Runs jax_calls.py with 2 ranks. Returns what rank 0 printed; None: there is no JAX for GPUs."""
    test = os.path.join(ROOT, "tests/nccl/jax_calls.py")
    missing = subprocess.run([sys.executable, "-c", 'import jax; assert jax.default_backend() == "gpu"'], capture_output=True, check=False)
    if missing.returncode != 0:
        note(name, "skipped", f"{sys.executable} has no JAX for GPUs")
        return None
    address = f"127.0.0.1:{29900 + os.getpid() % 90}"
    environment = {**os.environ, **SHARING, "NCCL_NVLS_ENABLE": "0", "XLA_FLAGS": flags}
    both = []
    for rank in (1, 0):
        log = open(os.path.join(args.keep, f"{name}_{rank}.log"), "w", encoding="utf-8")
        command = [*cecl(args, "--policy", policy), "--stats", sys.executable, test, str(rank), "2", address, str(steps)]
        both.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment))
    try:
        ends = [process.wait(timeout=clock.left()) for process in both]
    except subprocess.TimeoutExpired:
        for process in both:
            process.kill()
        raise Wrong(f"not done after {clock.limit} s") from None
    with open(os.path.join(args.keep, f"{name}_0.log"), encoding="utf-8") as file:
        said = file.read()
    need(ends == [0, 0], f"ended with {ends}\n{said[-3000:]}")
    return said


def part_jax(args, clock):
    # without command buffers, because captured calls have no trials
    said = jax_calls(args, clock, "jax", "auto", "--xla_gpu_enable_command_buffer=", 600)
    if said is None:
        return
    need(decision_lines(said), f"600 steps, and no decision\n{said[-3000:]}")
    note("jax", "calls under auto, and 600 steps", f"0 wrong; {'; '.join(decision_lines(said))}")


def part_jax_graphs(args, clock):
    flags = "--xla_gpu_enable_command_buffer=+COLLECTIVES --xla_gpu_graph_min_graph_size=1"
    said = jax_calls(args, clock, "jax_graphs", "all", flags, 100)
    if said is None:
        return
    calls = [line.split() for line in said.splitlines() if line.startswith("cecl: nccl")]
    # a row is: cecl: ncclAllGather  to 4 KiB  CALLS  BYTES  BY ...
    gathers = [int(row[5]) for row in calls if row[1] == "ncclAllGather" and row[7] == "cecl"]
    need(gathers, f"no all-gather was served\n{said[-3000:]}")
    # a replayed call counts once, when it is captured
    note("jax_graphs", "calls under all, and 100 steps, in command buffers", f"0 wrong; {sum(gathers)} all-gathers counted as served")


def large_once(args, side, batch, number, clock):
    """Runs one side once. Returns what fsdp2.py wrote, and what was decided."""
    name = f"large_{batch}_{side}_{number}"
    result = os.path.join(args.keep, f"{name}.json")
    command = [*(auto(args) if side == "cecl" else []), sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(args.ranks[-1]), os.path.join(ROOT, "examples/pytorch/fsdp2.py"), "--json", result]
    command += ["--batch", str(batch), "--warm", str(args.warm), "--steps", "20"]
    command += ["--no-bytes"] if side == "no_bytes" else []
    said = run(command, {}, clock, os.path.join(args.keep, f"{name}.log"))
    with open(result, encoding="utf-8") as file:
        return json.load(file), "; ".join(decision_lines(said))


def write_chart(args, batch, runs):
    """Writes what docs/data keeps of a batch size. Returns each side's median in ms."""
    kept = compare.chart(runs)
    times = {side: got["median"] for side, got in kept["step_ms"].items()}
    del kept["step_ms"]["no_bytes"]
    kept["line"] = {"label": "no bytes moved", "ms": round(times["no_bytes"], 2)}
    with open(os.path.join(args.keep, f"fsdp2_{batch}.json"), "w", encoding="utf-8") as file:
        json.dump(kept, file, indent=1)
    return times


def part_large(args, clock):
    need(not SHARING, "it needs a GPU for each rank")
    for batch in (2, 1):
        got = {"nccl": [], "cecl": [], "no_bytes": []}
        for number in range(args.rounds):
            for side, runs in got.items():
                runs.append(large_once(args, side, batch, number, clock))
        times = write_chart(args, batch, {side: [run for run, _ in runs] for side, runs in got.items()})
        loss = max(abs(a - b) for a, b in zip(got["nccl"][-1][0]["losses"], got["cecl"][-1][0]["losses"]))
        need(loss <= 1e-3, f"batch {batch}: losses differ by {loss:.2g}")
        note("large", f"FSDP2, {args.ranks[-1]} ranks, batch {batch}",
             f"NCCL {times['nccl']:.1f} ms, cecl {times['cecl']:.1f} ms ({times['nccl'] / times['cecl']:.3f} x), "
             f"no bytes moved {times['no_bytes']:.1f} ms ({times['nccl'] / times['no_bytes']:.3f} x), "
             f"losses within {loss:.1g}; {got['cecl'][-1][1] or 'no decision'}")


# -d: reductions of bfloat16, as gradients are; programs that only move bytes are the same with any type
ROW_SIZES = ("-b", "1K", "-e", "256M", "-f", "4", "-n", "20", "-w", "3", "-g", "1", "-d", "bfloat16")
# Under auto cecl may serve calls of these programs. NCCL makes the other programs' calls on both sides.
MAY_BE_SERVED = ("all_gather", "all_reduce", "reduce_scatter", "alltoall", "broadcast")
MOST = 1.03  # how many times NCCL's time a row may take


def time_rows(args, ranks, op, side, number, clock, times):
    """Runs a program once, and adds its times to `times`: {row: {side: {round: us}}}. The first round checks values."""
    pinned = rows_reader.pinned(argparse.Namespace(ranks=ranks, local_rank=rows_reader.LOCAL_RANK))
    command = [*start(args, ranks), *pinned, *(auto(args) if side == "cecl" else [])]
    command += [os.path.join(args.nccl_tests, f"{op}_perf"), *ROW_SIZES, "-c", "0" if number else "1"]
    said = run(command, device_of_tests(), clock, os.path.join(args.keep, f"rows_{ranks}_{op}_{side}_{number}.log"))
    found, wrong, _ = rows_reader.rows_of(said)
    need(found and not wrong, f"{op} by {side}: {wrong} wrong results of {len(found)}")
    for key, us in found.items():
        times.setdefault((ranks, op, key), {"nccl": {}, "cecl": {}})[side][number] = us


def order_of(args):
    """The runs in their order: [(round, ranks, program)]. First each program runs once. While there is time, other rounds
    follow: first of programs that cecl may serve, then of the others."""
    def round_of(number, ops):
        return [(number, ranks, op) for ranks in args.ranks for op in ops]
    others = [op for op in (*COLLECTIVES, *MESSAGES) if op not in MAY_BE_SERVED]
    later = range(1, ROW_ROUNDS)
    return (round_of(0, (*MAY_BE_SERVED, *others)) + [run for number in later for run in round_of(number, MAY_BE_SERVED)]
            + [run for number in later for run in round_of(number, others)])


def against_nccl(sides, side):
    """For each round, the time of `side` divided by the median of NCCL's times in the other rounds. With NCCL as the side,
    these ratios compare NCCL with itself."""
    found = []
    for number, us in sides[side].items():
        others = [other for at, other in sides["nccl"].items() if at != number] or list(sides["nccl"].values())
        if len(sides["nccl"]) > 1 or side == "cecl":
            found.append(us / statistics.median(others))
    return found


def share_over(ratios):
    return f"{100 * sum(ratio > MOST for ratio in ratios) / len(ratios):.0f} %" if ratios else "-"


def span_of(ratios):
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})" if ratios else "-"


def ratio_of(sides):
    return statistics.median(sides["cecl"].values()) / statistics.median(sides["nccl"].values())


def is_clear(sides):
    """Whether cecl's fastest run takes more than MOST times as long as NCCL's slowest. With 3 runs of each, two sides of
    equal speed give this result once in 20 times."""
    return len(sides["nccl"]) >= ROW_ROUNDS and min(sides["cecl"].values()) > MOST * max(sides["nccl"].values())


def note_rows(times):
    """Notes each program's times by cecl against NCCL's, and NCCL's against its own, which shows how much processes differ."""
    for ranks, op in dict.fromkeys((ranks, op) for ranks, op, _ in times):
        rows = [sides for (its_ranks, its, _), sides in times.items() if (its_ranks, its) == (ranks, op)]
        ratios = {side: [ratio for sides in rows for ratio in against_nccl(sides, side)] for side in ("cecl", "nccl")}
        note("rows", f"{op}, {ranks} ranks, {max(len(sides['cecl']) for sides in rows)} rounds, {len(rows)} rows",
             f"cecl / NCCL {span_of(ratios['cecl'])}, {share_over(ratios['cecl'])} over {MOST}; "
             f"NCCL / NCCL {span_of(ratios['nccl'])}, {share_over(ratios['nccl'])} over {MOST}; "
             f"medians over {MOST}: {sum(ratio_of(sides) > MOST for sides in rows)} rows, clearly: {sum(map(is_clear, rows))}")


def note_worst(times):
    """Notes, of each program, the worst of the rows that are clearly slower. If no row is, notes the one row with the
    highest ratio of medians. Returns all rows that are clearly slower."""
    by_ratio = sorted(times, key=lambda row: ratio_of(times[row]))
    clear = [row for row in by_ratio if is_clear(times[row])]
    for row in {row[:2]: row for row in clear or by_ratio[-1:]}.values():
        (ranks, op, key), sides = row, times[row]
        place = {"in": "in place", "out": "out of place"}[key.place]
        note("rows", "clearly slower" if clear else "highest ratio, not clear",
             f"{ratio_of(sides):.3f} x NCCL's time: {op}, {ranks} ranks, {rows_reader.words_of(key)}, {place}, us: "
             + "; ".join(f"{side} {', '.join(f'{us:.1f}' for us in by_round.values())}" for side, by_round in sides.items()))
    return clear


def part_rows(args, clock):
    times, longest, failed = {}, 0.0, {}
    for number, ranks, op in order_of(args):
        begun = time.monotonic()
        if (ranks, op) in failed or (times and clock.left() < 1.3 * longest + 5):
            continue
        try:
            for side in ("nccl", "cecl") if number % 2 == 0 else ("cecl", "nccl"):
                time_rows(args, ranks, op, side, number, clock, times)
        except Wrong as wrong:  # the other programs go on
            failed[ranks, op] = str(wrong)
        longest = max(longest, time.monotonic() - begun)
    times = {row: sides for row, sides in times.items() if all(sides.values()) and min(min(us.values()) for us in sides.values()) > 0}
    need(times, f"no row of both sides: {failed}")
    note_rows(times)
    clear = note_worst(times)
    for (ranks, op), words in failed.items():
        note("rows", f"{op}, {ranks} ranks, FAILED", words)
    need(not failed, f"failed: {', '.join(op for _, op in failed)}")
    need(not clear, f"{len(clear)} rows take clearly more than {MOST} x NCCL's time")


# Parts that run only if they are named; --seconds limits their time.
NAMED_ONLY = {"large": part_large, "rows": part_rows}
PARTS = {"one": part_one, "fsdp2": part_fsdp2, "fsdp4": part_fsdp4, "programs": part_programs, "loop": part_loop, "late": part_late,
         "moves2": part_moves2, "moves4": part_moves4,
         "periods": part_periods, "jax": part_jax, "jax_graphs": part_jax_graphs}
NEEDS = {"rows": "nccl_tests", "one": "nccl_tests", "programs": "nccl_tests", "periods": "nccl_tests"}


def numbers(text):
    return [int(word) for word in text.split(",")]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join([*PARTS, *NAMED_ONLY]))
    parser.add_argument("--cecl-run", default="cecl-run", help="where cecl-run is")
    parser.add_argument("--nccl", metavar="FILE", help="NCCL, if it is not found otherwise (CECL_NCCL_PATH)")
    parser.add_argument("--nccl-tests", metavar="FOLDER", help="where nccl-tests was built, with MPI=1")
    parser.add_argument("--mpirun", default="mpirun --allow-run-as-root --oversubscribe --bind-to none",
                        help="the command that starts nccl-tests' processes")
    parser.add_argument("--limit", type=float, default=150, metavar="S", help="time limit of a part, in seconds (150)")
    parser.add_argument("--share-gpu", action="store_true", help="all ranks share a GPU, also if there are several")
    parser.add_argument("--ranks", type=numbers, metavar="N[,N]", help="of rows and (the last) large; else 2, or 4 if there are as many GPUs")
    parser.add_argument("--rounds", type=int, default=1, help="rounds of large (1)")
    parser.add_argument("--warm", type=int, default=90, help="steps of large before the timed ones, on all sides; with cecl for trials (90)")
    parser.add_argument("--seconds", type=float, help="time limit of all parts together; rows makes as many rounds as fit")
    parser.add_argument("--keep", metavar="FOLDER", help="where logs go; else they are lost")
    args = parser.parse_args()
    if args.nccl:
        os.environ["CECL_NCCL_PATH"] = os.path.abspath(args.nccl)
    unknown = [part for part in args.parts if part not in {**PARTS, **NAMED_ONLY}]
    if unknown:
        parser.error(f"{unknown[0]}: one of {', '.join([*PARTS, *NAMED_ONLY])} expected")
    set_gpus(args)
    return args


def count_gpus():
    """How many GPUs CUDA shows."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([one for one in visible.split(",") if one.strip()])
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return 0
    return sum(line.startswith("GPU") for line in listed.splitlines())


def set_gpus(args):
    gpus = 1 if args.share_gpu else count_gpus()
    if gpus > 1:
        SHARING.clear()
        os.environ.pop("CECL_SHARE_GPU", None)
    args.gpus = gpus
    args.ranks = args.ranks or [4 if gpus >= 4 else 2]


def run_part(args, part):
    """Runs a part. Returns whether all was right."""
    lacks = NEEDS.get(part)
    if lacks and not getattr(args, lacks):
        note(part, "skipped", f"it needs --{lacks.replace('_', '-')}")
        return True
    if not SHARING and part in ("fsdp4", "moves4") and args.gpus < 4:
        note(part, "skipped", f"{args.gpus} GPUs; with --share-gpu ranks share one")
        return True
    left = args.seconds - (time.monotonic() - BEGAN) if args.seconds else args.limit
    clock = Clock(left if part in NAMED_ONLY else min(left, args.limit))
    try:
        {**PARTS, **NAMED_ONLY}[part](args, clock)
    except Wrong as wrong:
        note(part, "FAILED", str(wrong))
        return False
    finally:
        print(f"{part}: {time.monotonic() - clock.began:.0f} s", flush=True)
    return True


def main():
    args = parse()
    with tempfile.TemporaryDirectory() as folder:
        args.keep = os.path.abspath(args.keep or folder)
        os.makedirs(args.keep, exist_ok=True)
        fine = [run_part(args, part) for part in args.parts or PARTS]
    print("\n| part | what | found |\n| --- | --- | --- |")
    for part, what, words in ROWS:
        print(f"| {part} | {what} | {words.splitlines()[0] if words else ''} |")
    sys.exit(0 if all(fine) else 1)


if __name__ == "__main__":
    main()

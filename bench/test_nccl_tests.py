#!/usr/bin/env python3
"""Tests bench/nccl_tests.py with fake nccl-tests programs, mpirun and cecl-run.

test_nccl_tests.py NCCL_TESTS.PY [unittest's arguments]"""
import importlib.util
import io
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

SCRIPT = os.path.abspath(sys.argv.pop(1))
WAIT_S = 60  # a limit for what takes far less
TOGETHER = 6  # tests that run at a time

# Starts ranks, which find their rank in the variable that $FAKE_VARIABLE names (empty: in none).
MPIRUN = """#!/bin/sh
[ "$1 $2 $3" = "--bind-to none -n" ] || { echo "fake mpirun: $*" >&2; exit 8; }
ranks=$4 rank=0 pids= status=0
shift 4
while [ $rank -lt $ranks ]; do
    FAKE_RANK=$rank env ${FAKE_VARIABLE:+$FAKE_VARIABLE=$rank} "$@" &
    pids="$pids $!" rank=$((rank + 1))
done
for pid in $pids; do wait $pid || status=$?; done
exit $status
"""
CECL_RUN = """#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in
    --stats) export CECL_NCCL_STATS=1; shift ;;
    --nccl) export CECL_NCCL_PATH=$2; shift 2 ;;
    --policy) [ "$2" = "$FAKE_POLICY" ] || exit 7; shift 2 ;;
    -*) exit 7 ;;
    *) break ;;
    esac
done
FAKE_SIDE=cecl exec "$@"
"""
# Prints the rows of a side and a run. Runs count from 1; a run without rows of its own prints those of the run before.
PROGRAM = """#!/bin/sh
[ "$*" = "$FAKE_ARGUMENTS" ] || { echo "fake program: $*" >&2; exit 9; }
side=${FAKE_SIDE:-nccl} rank=${FAKE_RANK:-0}
cd "${0%%/*}" || exit 9
%s
if [ "$rank" = 0 ]; then
    echo run >>runs.$side
    run=$(wc -l <runs.$side)
    while [ ! -e rows.$side.$run ]; do run=$((run - 1)); done
    echo "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong"
    cat rows.$side.$run
fi
[ "$side/$CECL_NCCL_STATS" != cecl/1 ] || cat table >&2
exit %d
"""
HEADING = """cecl-run: preloads a file
cecl: rank 0 of 2, process 7: calls of NCCL
cecl: function           bytes         calls     bytes in all  by      zero SM  why
"""


def row(size, out, inside, kind="float", redop="none", root=-1, wrong=0):
    return (f"{size:12d}  {size // 4:12d}  {kind:>8s}  {redop:>6s}  {root:6d}"
            f"  {out:7.2f}    0.10    0.10  {wrong:5g}  {inside:7.2f}    0.10    0.10    N/A\n")


def call(function, size, calls, total, by, zero_sm, why="-"):
    """As print_row of src/nccl/stats.c prints it."""
    return f"cecl: {function:<18s} {size:<10s} {calls:8d} {total:>16s}  {by:<7s} {zero_sm:<8s} {why}\n"


SERVED = call("ncclAllGather", "0", 3, "0", "NCCL", "unknown", "the call moves no bytes")
SERVED += call("ncclAllGather", "to 4 KiB", 20, "20480", "cecl", "yes")
SERVED += call("ncclAllGather", "to 64 KiB", 5, "81920", "cecl", "no")
PASSED = call("ncclAllGather", "to 4 KiB", 11, "11264", "NCCL", "unknown", "no measurement says that cecl is faster")
PASSED += call("ncclSomething", "unknown", 2, "unknown", "refused", "-", "cecl has no such call")
LINE = re.compile(r"^(\w+) +(\d+) bytes +(\w+) +(\w+) root +(-?\d+) +(out|in) +nccl +([\d.]+) us +cecl +([\d.]+) us"
                  r"  nccl / cecl ([\d.]+)(  over)?$")


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.write("mpirun", MPIRUN)
        self.write("cecl-run", CECL_RUN)
        self.environment = {"PATH": f"{self.folder}:{os.environ['PATH']}", "FAKE_POLICY": "auto",
                            "FAKE_VARIABLE": "OMPI_COMM_WORLD_LOCAL_RANK", "FAKE_ARGUMENTS": "-b 8 -g 1"}
        self.program()
        self.rows("nccl", row(1024, 10, 30) + row(2048, 20, 50))
        self.rows("cecl", row(1024, 10, 15) + row(2048, 10, 50))
        self.table(SERVED)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), 0o755)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def program(self, does="", status=0, op="all_gather"):
        self.write(f"{op}_perf", PROGRAM % (does, status))

    def rows(self, side, *of_runs):
        for i, text in enumerate(of_runs):
            self.write(f"rows.{side}.{i + 1}", text)

    def table(self, rows):
        self.write("table", HEADING + rows if rows else "")

    def command(self, options, rest=("-b", "8"), ops=("all_gather",)):
        paths = ["--programs", self.folder, "--cecl-run", self.path("cecl-run")]
        return [sys.executable, SCRIPT, *paths, "--timeout", str(WAIT_S), *options, *ops, "--", *rest]

    def run_script(self, *options, status=0, processors=None, **others):
        """Runs the script, and checks how it ended. Leaves what it printed in self.out and self.err, and returns it."""
        pin = (lambda: os.sched_setaffinity(0, processors)) if processors else None
        done = subprocess.run(self.command(("--rounds", "2", *options), **others), env=self.environment, text=True,
                              capture_output=True, check=False, preexec_fn=pin, timeout=6 * WAIT_S)
        self.out, self.err = done.stdout, done.stderr
        self.assertEqual(done.returncode, status, f"{self.out}{self.err}")
        return self.out + self.err

    def lines(self):
        """The results that the script printed: tuples of words."""
        return [match.groups() for match in map(LINE.match, self.out.splitlines()) if match]

    def assert_killed(self, names):
        pids = [int(self.read(name)) for name in names]
        end = time.monotonic() + WAIT_S  # a process that was killed still needs a moment
        while any(map(is_alive, pids)) and time.monotonic() < end:
            time.sleep(0.05)
        left = [pid for pid in pids if is_alive(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(left, [], f"of {pids} not killed")


class Results(Case):
    def test_each_placement_is_compared_under_mpirun(self):
        self.run_script()
        self.assertEqual(self.err, "")
        self.assertEqual(self.lines(), [
            ("all_gather", "1024", "float", "none", "-1", "out", "10.00", "10.00", "1.000", None),
            ("all_gather", "1024", "float", "none", "-1", "in", "30.00", "15.00", "2.000", None),
            ("all_gather", "2048", "float", "none", "-1", "out", "20.00", "10.00", "2.000", None),
            ("all_gather", "2048", "float", "none", "-1", "in", "50.00", "50.00", "1.000", None)])
        self.assertEqual(self.out.splitlines()[4:], [
            "all_gather: 4 results of 2 rows compared; cecl at least 1.03 x faster: 2; "
            "wrong results in all rounds: nccl 0, cecl 0; cecl served 100 of 112 calls"])

    def test_sides_take_turns_and_medians_are_compared(self):
        self.rows("nccl", row(8, 10, 1), row(8, 30, 1), row(8, 14, 1))
        self.rows("cecl", row(8, 6, 1), row(8, 7, 1), row(8, 2, 1))
        self.program("echo $side >>order")
        self.run_script("--rounds", "3")
        self.assertEqual(self.read("order").split()[::2], ["nccl", "cecl"] * 3)
        self.assertEqual(self.lines()[0][6:9], ("14.00", "6.00", "2.333"))

    def test_one_process_needs_no_mpirun(self):
        self.write("mpirun", "#!/bin/sh\nexit 3\n")
        self.environment["FAKE_ARGUMENTS"] = "-b 8 -g 4"
        self.run_script("--one-process", "--ranks", "4")
        self.assertEqual(len(self.lines()), 4)
        self.assertIn("cecl served 50 of 56 calls", self.out)

    def test_rows_that_differ_in_type_redop_or_root_are_told_apart(self):
        keys = [("float", "sum", "-1"), ("half", "sum", "-1"), ("half", "max", "-1"), ("half", "max", "1")]
        rows = [row(64, i + 1, i + 11, kind, redop, int(root)) for i, (kind, redop, root) in enumerate(keys)]
        self.rows("nccl", "".join(rows))
        self.rows("cecl", "".join(rows))
        self.run_script()
        self.assertEqual([line[2:7] for line in self.lines()], [
            (*key, place, f"{i + least}.00") for i, key in enumerate(keys) for place, least in (("out", 1), ("in", 11))])
        self.assertIn("8 results of 4 rows compared", self.out)

    def test_a_row_printed_twice_is_an_error(self):
        self.rows("nccl", row(64, 10, 30) + row(64, 11, 31))
        self.rows("cecl", row(64, 10, 30))
        self.run_script("--rounds", "1", status=1)
        words = "all_gather_perf -b 8 -g 1: printed two rows for 64 bytes, float, none, root -1\n"
        self.assertEqual(self.err.count(words), 1)
        self.assertEqual([line[6] for line in self.lines()], ["10.00", "30.00"])

    def test_a_row_that_a_run_lacks_is_an_error(self):
        self.rows("cecl", row(1024, 10, 15) + row(2048, 10, 50), row(1024, 10, 15))
        self.run_script(status=1)
        self.assertEqual(self.err, "all_gather: the row for 2048 bytes, float, none, root -1 is not in every run\n")

    def test_a_row_that_a_side_lacks_is_an_error(self):
        self.rows("nccl", row(2048, 10, 50))
        self.run_script(status=1)
        self.assertEqual(self.err, "all_gather: the row for 1024 bytes, float, none, root -1 is not in every run\n")
        self.assertEqual({line[1] for line in self.lines()}, {"2048"})

    def test_rows_of_no_bytes_may_repeat(self):
        self.rows("nccl", row(0, 1, 1) * 2 + row(8, 2, 2))
        self.rows("cecl", row(0, 1, 1) * 2 + row(8, 2, 2))
        self.run_script()
        self.assertEqual({line[1] for line in self.lines()}, {"8"})

    def test_rows_may_lack_the_operation(self):
        self.rows("nccl", row(64, 20, 30, redop="", wrong=2))
        self.rows("cecl", row(64, 10, 10, redop=""))
        self.run_script(status=1)
        self.assertIn("wrong results in all rounds: nccl 2, cecl 0;", self.out)
        self.assertEqual([line[2:4] for line in self.lines()], [("float", "none")] * 2)

    def test_wrong_values_are_counted_and_fail(self):
        self.rows("nccl", row(8, 2, 2))
        self.rows("cecl", row(8, 2, 2), row(8, 2, 2, wrong=3))
        self.run_script(status=1)
        self.assertIn("wrong results in all rounds: nccl 0, cecl 1;", self.out)

    def test_values_that_a_run_did_not_check_are_not_called_right(self):
        unchecked = row(8, 2, 2).replace(" 0  ", " N/A  ")
        self.assertEqual(unchecked.count("N/A"), 2)
        self.rows("nccl", row(8, 2, 2))
        self.rows("cecl", row(8, 2, 2), unchecked)
        self.run_script()
        self.assertIn("1.03 x faster: 0; values were not checked in every run; cecl served", self.out)

    def test_a_result_over_the_limit_fails(self):
        self.rows("cecl", row(1024, 10, 15) + row(2048, 21, 50))
        self.run_script("--most", "1.05")
        self.assertIn("; over 1.05 x NCCL's time: 0;", self.out)
        self.run_script("--most", "1.04", status=1)
        self.assertIn("; over 1.04 x NCCL's time: 1;", self.out)
        self.assertEqual([line[1::4] for line in self.lines() if line[9]], [("2048", "out", "  over")])

    def test_a_program_that_fails_is_named(self):
        self.program("echo why >&2", status=5)
        self.assertRegex(self.run_script(status=1), "all_gather_perf -b 8 -g 1: ended with 5\n(.*\n)*why\n")

    def test_no_rows_is_an_error(self):
        self.rows("nccl", "")
        self.assertIn("-g 1: printed no row of results", self.run_script(status=1))

    def test_results_are_written(self):
        self.run_script("--json", self.path("json"), "--ranks", "2")
        got = json.loads(self.read("json"))
        self.assertEqual({key: got[key] for key in ("nccl_tests", "policy", "ranks", "nccl")},
                         {"nccl_tests": ["-b", "8"], "policy": "auto", "ranks": 2, "nccl": None})
        of_op = got["ops"]["all_gather"]
        self.assertEqual(of_op["rows"][1], {
            "bytes": 1024, "type": "float", "redop": "none", "root": "-1", "place": "in",
            "nccl": 30, "cecl": 15, "rounds": {"nccl": [30, 30], "cecl": [15, 15]}})
        self.assertEqual(of_op["wrong"], {"nccl": 0, "cecl": 0})
        self.assertEqual(of_op["calls"], {"served": 100, "all": 112})

    def test_each_program_is_judged(self):
        self.program(op="fine")
        self.program(status=5)
        self.run_script(status=1, ops=("all_gather", "fine"))
        self.assertRegex(self.out, r"(?m)^fine: 4 results of 2 rows compared")
        self.assertNotIn("fine_perf", self.err)


class Served(Case):
    def test_a_run_in_which_cecl_serves_nothing_fails(self):
        self.table(PASSED)
        self.run_script(status=1)
        self.assertIn("_perf -b 8 -g 1: cecl served none of 26 calls; --may-pass-all allows this\n", self.err)
        self.assertIn("; cecl served 0 of 52 calls\n", self.out)

    def test_it_passes_if_allowed(self):
        self.table(PASSED)
        self.run_script("--may-pass-all")
        self.assertEqual(self.err, "")
        self.assertIn("; cecl served 0 of 52 calls\n", self.out)

    def test_a_run_without_a_table_always_fails(self):
        self.table("")
        for options in [], ["--may-pass-all"]:
            self.run_script(*options, status=1)
            self.assertIn("-g 1: printed no table of calls, so cecl was not in NCCL's place\n", self.err)

    def test_the_policy_reaches_cecl_run(self):
        self.environment["FAKE_POLICY"] = "all"
        self.run_script("--policy", "all")
        self.assertEqual(len(self.lines()), 4)


class OneNccl(Case):
    def setUp(self):
        super().setUp()
        self.program('echo "$LD_PRELOAD|$CECL_NCCL_PATH" >>nccl.$side')

    def library(self):
        """A file that can be preloaded: the C library, which is loaded anyway."""
        with open("/proc/self/maps", encoding="utf-8") as file:
            found = [line.split()[-1] for line in file if re.search(r"/libc[.-].*so", line)]
        if not found:
            self.skipTest("no shared C library")
        os.symlink(found[0], self.path("libnccl.so.2"))
        return self.path("libnccl.so.2")

    def test_both_sides_use_it(self):
        nccl = self.library()
        for options, of_runs in ([], 2), (["--one-process"], 1):
            if options:
                self.environment["FAKE_ARGUMENTS"] = "-b 8 -g 2"
            self.run_script("--nccl", os.path.relpath(nccl), "--rounds", "1", *options)
            for side, words in ("nccl", f"{nccl}|"), ("cecl", f"|{nccl}"):
                self.assertEqual(self.read(f"nccl.{side}").splitlines(), [words] * of_runs)
                os.remove(self.path(f"nccl.{side}"))

    def test_a_preloaded_library_stays(self):
        nccl = self.library()
        os.symlink(os.path.realpath(nccl), self.path("other.so"))
        other = self.environment["LD_PRELOAD"] = self.path("other.so")
        self.run_script("--nccl", nccl, "--rounds", "1")
        self.assertEqual(set(self.read("nccl.nccl").splitlines()), {f"{nccl}:{other}|"})

    def test_without_the_option_nothing_is_preloaded(self):
        self.run_script()
        self.assertEqual(set((self.read("nccl.nccl") + self.read("nccl.cecl")).splitlines()), {"|"})

    def test_a_file_that_cannot_be_preloaded_fails(self):
        self.write("libnccl.so.2", "not a library")
        self.run_script("--nccl", self.path("libnccl.so.2"), status=1)
        self.assertIn(f"{self.path('libnccl.so.2')} cannot be preloaded, so another NCCL was used\n", self.err)

    def test_a_missing_file_is_refused(self):
        for name in "absent", ".":
            said = self.run_script("--nccl", self.path(name), status=2)
            self.assertIn(f"--nccl {os.path.abspath(self.path(name))}: no such file", said)

    def test_a_path_with_a_colon_is_refused(self):
        self.write("a:b", "")
        self.assertIn("its path has a space or a colon", self.run_script("--nccl", self.path("a:b"), status=2))


class Pinning(Case):
    def setUp(self):
        super().setUp()
        self.program('grep Cpus_allowed_list /proc/self/status >>on.$side.$rank')

    def processors_of(self, side, rank):
        """The distinct lists of processors on which this side's rank ran."""
        return {line.split()[1] for line in self.read(f"on.{side}.{rank}").splitlines()}

    def test_ranks_share_the_processors_that_may_be_used(self):
        usable = sorted(os.sched_getaffinity(0))
        if len(usable) < 2:
            self.skipTest("one processor")
        self.run_script(processors={usable[-1]})
        for side in "nccl", "cecl":
            for rank in 0, 1:
                self.assertEqual(self.processors_of(side, rank), {str(usable[-1])})

    def test_each_rank_has_its_own(self):
        usable = sorted(os.sched_getaffinity(0))
        if len(usable) < 2:
            self.skipTest("one processor")
        self.run_script(processors=set(usable[-2:]))
        for side in "nccl", "cecl":
            for rank in 0, 1:
                self.assertEqual(self.processors_of(side, rank), {str(usable[rank - 2])})

    def test_an_unset_local_rank_fails(self):
        self.environment["FAKE_VARIABLE"] = ""
        self.run_script(status=1)
        self.assertIn("OMPI_COMM_WORLD_LOCAL_RANK: is not set, so processors cannot be chosen; --local-rank", self.err)
        self.assertFalse(os.path.exists(self.path("on.nccl.0")))

    def test_the_variable_of_another_launcher_can_be_named(self):
        self.environment["FAKE_VARIABLE"] = "OTHER_RANK"
        self.run_script("--local-rank", "OTHER_RANK")
        self.assertEqual(len(self.lines()), 4)

    def test_one_process_needs_no_local_rank(self):
        self.environment.update(FAKE_VARIABLE="", FAKE_ARGUMENTS="-b 8 -g 2")
        self.run_script("--one-process")
        self.assertEqual(len(self.lines()), 4)

    def test_parts_of_processors_that_begin_anywhere(self):
        sys.dont_write_bytecode = True
        spec = importlib.util.spec_from_file_location("nccl_tests", SCRIPT)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.write("taskset", '#!/bin/sh\necho "$*"\n')
        args = types.SimpleNamespace(ranks=2, local_rank="RANK")
        for usable, rank, status, words in [
            ({4, 5, 6, 9, 12, 13, 20}, "0", 0, "-c 4-6 program -g 1\n"),
            ({4, 5, 6, 9, 12, 13, 20}, "1", 0, "-c 9-9,12-13 program -g 1\n"),
            ({7}, "0", 0, "-c 7-7 program -g 1\n"),
            ({7}, "1", 0, "-c 7-7 program -g 1\n"),
            ({4, 5}, "2", 1, "RANK: 2: more local ranks than --ranks\n"),
        ]:
            with mock.patch.object(os, "sched_getaffinity", return_value=usable):
                command = [*module.pinned(args), "program", "-g", "1"]
            done = subprocess.run(command, env={**self.environment, "RANK": rank}, text=True, check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertEqual((done.returncode, done.stdout), (status, words), f"{usable} {rank}")


class Ends(Case):
    # Rank 1 has a process group of its own, as Open MPI's ranks have; rank 0 has none. A rank writes its pid to pid.RANK.
    HANGS = "exec %s -c 'import os, signal, sys, time" % sys.executable + """
rank, ignores = sys.argv[1:]
if rank == "1":
    os.setpgid(0, 0)
if ignores == "yes":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open("new." + rank, "w") as file:
    file.write(str(os.getpid()))
os.rename("new." + rank, "pid." + rank)
print("before it hangs", flush=True)
time.sleep(300)' $rank %s"""

    def test_after_a_timeout_all_processes_are_killed_and_the_command_is_named(self):
        self.program(self.HANGS % "yes")
        for seconds in ("1.5", "6", "24"):  # on a busy machine the programs may not have begun by then
            began = time.monotonic()
            self.run_script("--timeout", seconds, "--rounds", "1", "--may-pass-all", status=1)
            self.assertLess(time.monotonic() - began, 150)
            if self.err.count("before it hangs\n") == 4:  # of two ranks on each side
                break
        self.assert_killed(["pid.0", "pid.1"])
        self.assertRegex(self.err, r"(?s)mpirun --bind-to none -n 2 .*all_gather_perf -b 8 -g 1: "
                                   f"timed out after {seconds} s and was killed\nbefore it hangs\n")
        self.assertRegex(self.err, r"cecl-run --stats --policy auto \S+_perf -b 8 -g 1: timed out after " + seconds)
        self.assertIn("all_gather: 0 results of 0 rows compared;", self.out)

    def test_a_program_that_ends_on_sigterm_is_not_waited_for(self):
        self.program(self.HANGS % "no")
        self.environment["FAKE_ARGUMENTS"] = "-b 8 -g 2"
        for _ in range(5):  # the machine may stand still meanwhile
            began = time.monotonic()
            self.run_script("--timeout", "1", "--rounds", "1", "--one-process", status=1)
            took = time.monotonic() - began
            if took < 2 * 1 + 5:
                return
        self.fail(f"it took {took:.1f} s")

    def stopped_by(self, number):
        """Sends a signal to the script alone while ranks run, and returns its exit status."""
        self.program(self.HANGS % "no")
        with subprocess.Popen(self.command(()), env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT) as script:
            try:
                end = time.monotonic() + WAIT_S
                while not all(os.path.exists(self.path(f"pid.{rank}")) for rank in (0, 1)):
                    self.assertLess(time.monotonic(), end, "the ranks did not start")
                    time.sleep(0.05)
                script.send_signal(number)
                script.communicate(timeout=WAIT_S)
            finally:
                script.kill()
        self.assert_killed(["pid.0", "pid.1"])
        return script.returncode

    def test_sigterm_ends_the_ranks_too(self):
        self.assertEqual(self.stopped_by(signal.SIGTERM), 128 + signal.SIGTERM)

    def test_ctrl_c_ends_the_ranks_too(self):
        self.assertEqual(self.stopped_by(signal.SIGINT), -signal.SIGINT)


class Arguments(Case):
    def test_sizes_from_zero_are_refused(self):
        for rest in ["-b 0 -f 2", "-b0", "-f 2 -b 0K", "--minbytes 0", "--minbytes=0", "--min 0.0M", "-b .5",
                     "-b 8 -b 0"]:
            said = self.run_script(status=2, rest=rest.split())
            self.assertIn("-b 0: nccl-tests does not end with -b 0 -f 2", said)

    def test_other_sizes_are_not(self):
        for rest in ["-b 8", "-b8", "-b 0.5K", "--minbytes=1M", "-e 0", "-w 0 -b 10", "--maxbytes=0"]:
            self.environment["FAKE_ARGUMENTS"] = f"{rest} -g 1"
            self.run_script("--rounds", "1", rest=rest.split())
            self.assertEqual(len(self.lines()), 4)

    def test_a_missing_program_is_refused(self):
        self.assertIn(f"{self.folder} has no program absent_perf", self.run_script(status=2, ops=("absent",)))

    def test_no_ranks_and_no_rounds_are_refused(self):
        for option in "--ranks", "--rounds":
            self.assertIn("--ranks and --rounds: 1 or more expected", self.run_script(option, "0", status=2))

    def test_a_local_rank_that_names_no_variable_is_refused(self):
        said = self.run_script("--local-rank", "a;b", status=2)
        self.assertIn("--local-rank a;b: the name of a variable expected", said)


def run_one(name):
    """What the test said, and whether it passed."""
    said = io.StringIO()
    test = unittest.defaultTestLoader.loadTestsFromName(name, sys.modules["__main__"])
    return said, unittest.TextTestRunner(said).run(test).wasSuccessful()


def run_each_apart():
    """Runs each test in a process of its own, several at a time, because they mostly wait. Returns the exit status."""
    cases = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
    names = [test.id().partition(".")[2] for case in cases for test in case]
    with multiprocessing.get_context("fork").Pool(TOGETHER, maxtasksperchild=1) as pool:
        ended = pool.map(run_one, names, chunksize=1)
    failed = [said.getvalue() for said, passed in ended if not passed]
    print("\n".join([*failed, f"{len(names)} tests, {len(failed)} failed"]))
    return min(len(failed), 1)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        unittest.main()
    sys.exit(run_each_apart())

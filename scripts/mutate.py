"""Changes src/ (or tests/verify/) in one place at a time, and sees whether a test notices. mutate.sh calls it.

A mutant is drawn from the lines that the tests run (coverage.json of coverage.sh; without it, from all
lines inside functions). Comments, texts and the arguments of messages never change. Each worker has a
copy of the tree and a build of its own, so the working tree stays as it is.
"""
import argparse
import collections
import ctypes
import difflib
import json
import multiprocessing
import os
import queue
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORK = os.path.join(ROOT, "build", "mutate")
KNOWN = os.path.join(ROOT, "scripts", "mutants_known.txt")
COVERED = os.path.join(ROOT, "build", "coverage", "coverage.json")

# Which tests are likely to notice a change of a folder: ctest's names, as a regular expression. They run first; mutants
# that survive them run against all other tests.
TESTS = {
    "util": "^test_(settings|siphash|failure|tuning|error|file|limits|forked|bad_input_3)$",
    "boot": "^(fuzz_corpus_(bootstrap|mesh)|test_(rank_words|boot_.*|inbox|meeting|lifeline|(join|recovery|shrink|split)_3|"
            "failure)|net_carried|exhaust_over_hosts_join)$",
    "device": "^(fuzz_corpus_api|test_(host_.*|(pool|collectives|graphs|streams)_3)|exhaust_over_hosts_join)$",
    "alloc": "^test_(blocks|places|posts|registry|rendezvous|peer_table|host_region|"
             "(pool|register|memory|mixed|changed|freed)_3)$",
    "plan": "^(fuzz_corpus_plan|test_(.*_verified|verifier_.*|plan_.*|blocks_defined|apart|key|fuse|refusals|"
            "tuning.*|(bad_input|all_to_all_v|changed|check|experts|explain|splits|tuning_file)_3))$",
    "verify": "^(fuzz_corpus_plan|test_(.*_verified|verifier_.*))$",
    "flags": "^(fuzz_corpus_api|test_(flags|waits|turns|release|failure|"
             "(collectives|recovery|device_comm|pairs)_3))$",
    "ce": "^(fuzz_corpus_(api|plan)|test_(.*_verified|fuse|plan_.*|steady_state|pairs_.*|graphs_end|"
          "(collectives|mixed|reduce|group|explain|graphs)_3|(collectives|group|mixed)_3_urgent))$",
    "sm": "^test_(number|reduce_host|small_host|host_small|splits_host|"
          "(collectives|determinism|mixed|splits)_3)$",
    "comm": "^test_(release|one_thread.*|history|blame|split_threads|threads|flags|turns|waits|splits_behind|"
            "one_sided_failure|messages_captured_failure|"
            "(bad_input|check|differ|explain|group|pairs|split|shrink|register|recovery)_3)$",
    "launch": "^(fuzz_corpus_api|test_(launch|one_thread.*|pairs_one_thread|one_sided.*|messages_.*|"
              "refusals|shared_gpu|(collectives|group|bad_input|all_to_all_v|explain|check|put|mixed|pairs|graphs|"
              "graphs_trouble|register)_3)|net_carried)$",
    "api": "^(fuzz_corpus_api|net_carried|test_(refusals|one_thread.*|two_threads|failure|one_sided_failure|hosts|blame|limits|"
           "(join|split|shrink|register|memory|bad_input|group|check|put|many_ranks)_3))$",
    "net": "^(net_|test_net_map|test_carried_calls_4)",
    "nccl": "^(nccl_|test_learn_|fuzz_corpus_(nccl|trials))",
}
REST = "^(test_|nccl_|fuzz_|fault_|exhaust_)"
REST_LABELS = "unit|plan|multi|fault|exhaust"
LEFT_OUT = "^install_|^guide_|^plot_|^script_|pytorch"  # these tests do not test src/, or take long

Mutant = collections.namedtuple("Mutant", "file start end text kind")


# ---- what may be changed

def masked(source):
    """The source, in which comments, texts, lines of the preprocessor and messages are blank."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group())
    code = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, source,
                  flags=re.S)
    code = re.sub(r"^#(?:[^\n]*\\\n)*[^\n]*", blank, code, flags=re.M)
    for match in re.finditer(r"\b(cecl_fail|cecl_fail_with|VERIFY_FAULT|cecl_log|_Static_assert)\(",
                             code):
        end = closing(code, match.end() - 1)
        code = code[:match.start()] + re.sub(r"[^\n]", " ", code[match.start():end]) + code[end:]
    return code


def closing(code, at):
    """The offset behind the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(code)):
        depth += {"(": 1, ")": -1}.get(code[i], 0)
        if depth == 0:
            return i + 1
    return len(code)


SWAPS = [
    ("comparison", r" (<=|>=|==|!=|<|>) ",
     {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}),
    ("and, or", r" (&&|\|\|)(?=\s)", {"&&": "||", "||": "&&"}),
    ("arithmetic", r" ([-+*/%]) ", {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/"}),
    ("assignment", r" ([-+|]=) ", {"+=": "-=", "-=": "+=", "|=": "="}),
    ("truth", r"\b(true|false)\b", {"true": "false", "false": "true"}),
]


def swaps(code):
    for kind, pattern, other in SWAPS:
        for m in re.finditer(pattern, code):
            yield m.start(1), m.end(1), other[m.group(1)], kind


def constants(code):
    for m in re.finditer(r"(?<![\w.])(\d+)(?![\w.])", code):
        value = int(m.group())
        yield m.start(), m.end(), "0" if value == 1 else str(value + 1), "constant"


def conditions(code):
    for m in re.finditer(r"\b(?:if|while) \(", code):
        end = closing(code, m.end() - 1)
        yield m.end(), end - 1, "!(%s)", "condition negated"


def statements(code):
    """Whole calls and assignments."""
    for m in re.finditer(r"^ +(?:\(void\)!?)?(?:\*+)?[\w.>\[\]-]+"
                         r"(?:\(|(?: [-+|&^*/]?= |\+\+;|--;))", code, re.M):
        first = m.start() + len(m.group()) - len(m.group().lstrip())
        word = re.match(r"\w*", code[first:]).group()
        before = code[:first].rstrip()[-1:]
        if word in ("if", "while", "for", "switch", "return", "case", "sizeof", "else", "do") or \
                before not in ";{})":
            continue
        end = code.find(";", first)
        if end > 0 and "{" not in code[first:end] and "}" not in code[first:end]:
            yield first, end, "(void)0", "statement dropped"


def returns(code):
    """Makes functions that return a result or a bool return early."""
    for m in re.finditer(r"^(?:static )?(?:inline )?(?:CECL_API )?(ceclResult_t|bool) \**\w+"
                         r"\([^;{]*\)\n{", code, re.M):
        end = code.find("\n}", m.end())
        for r in re.finditer(r"\breturn ([^;]+);", code[m.end():end]):
            at, value = m.end() + r.start(1), r.group(1)
            if m.group(1) == "bool":
                yield at, at + len(value), "!(%s)", "answer turned round"
            elif value.strip() not in ("", "ceclSuccess"):
                yield at, at + len(value), "ceclSuccess", "success returned"


def mutants_of(file, source, is_run):
    """All mutants of those lines of a file that tests run."""
    code = masked(source)
    found = []
    for make in (swaps, constants, conditions, statements, returns):
        for start, end, text, kind in make(code):
            line = source.count("\n", 0, start) + 1
            if is_run(file, line) and "\n#" not in source[start:end]:
                text = text % source[start:end] if "%s" in text else text
                found.append(Mutant(file, start, end, text, kind))
    return found


def lines_run():
    """Returns a function of file and line that tells whether the tests run the line."""
    if not os.path.exists(COVERED):
        print("no %s: lines that no test runs are drawn too (coverage.sh makes it)"
              % os.path.relpath(COVERED, ROOT))
        return inside_functions
    with open(COVERED) as f:
        files = json.load(f)["files"]
    lines = [(f["file"], l) for f in files for l in f["lines"] if not l.get("gcovr/noncode")]
    run = {(file, l["line_number"]) for file, l in lines if l["count"] > 0}
    # Only the first line of a statement has a count.
    counted = {(file, l["line_number"]) for file, l in lines}

    def is_run(file, line):
        while line > 0 and (file, line) not in counted and source_line(file, line)[:1] != "}":
            line -= 1
        return (file, line) in run
    return is_run


SOURCES = {}


def source_of(file):
    if file not in SOURCES:
        with open(os.path.join(ROOT, file)) as f:
            SOURCES[file] = f.read()
    return SOURCES[file]


def source_line(file, line):
    return source_of(file).split("\n")[line - 1]


def inside_functions(file, line):
    return source_line(file, line).startswith(" ")


def draw(count, seed, under):
    """Draws `count` mutants, each of another line. The same seed and sources give the same mutants."""
    files = subprocess.run(["git", "-C", ROOT, "ls-files", "src", "tests/verify"],
                           capture_output=True, text=True, check=True).stdout.split()
    files = [f for f in files if f.endswith(".c") and f.startswith(under) and
             not re.search(r"/cuda[^/]*$|_cuda\.c$|/absent|/mpi/", f) and
             f.split("/")[1] in TESTS]
    is_run = lines_run()
    lines = collections.defaultdict(list)
    for file in files:
        for m in mutants_of(file, source_of(file), is_run):
            lines[file, source_of(file).count("\n", 0, m.start) + 1].append(m)
    chance = random.Random(seed)
    places = chance.sample(sorted(lines), min(count, len(lines)))
    return [chance.choice(lines[place]) for place in places]


# ---- judging a mutant

def changed(mutant):
    source = source_of(mutant.file)
    return source[:mutant.start] + mutant.text + source[mutant.end:]


def line_of(mutant):
    return source_of(mutant.file).count("\n", 0, mutant.start) + 1


def function_of(mutant):
    before = source_of(mutant.file)[:mutant.start]
    heads = re.findall(r"^\w[^\n;=]*?(\w+)\([^;{]*\)\n{", before, re.M)
    return heads[-1] if heads else ""


def diff_of(mutant):
    lines = difflib.unified_diff(source_of(mutant.file).splitlines(), changed(mutant).splitlines(),
                                 mutant.file, mutant.file, n=2, lineterm="")
    return "\n".join("    " + l for l in lines)


def limits_of_a_sanitizer():
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (300, 300))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limits():
    """Limits a test's process, because a mutant may allocate or compute without end."""
    limits_of_a_sanitizer()
    resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))


def end_orphans():
    """Ends processes that tests left behind, which are children of this process now."""
    mine = os.getpid()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid) as f:
                parent = int(f.read().rsplit(")", 1)[1].split()[1])
            if parent == mine:
                os.kill(int(pid), signal.SIGKILL)
                os.waitpid(int(pid), 0)
        except (OSError, ValueError):
            pass


class Worker:
    """A copy of the tree and its build, in a process of its own."""

    def __init__(self, number, options):
        self.tree = os.path.join(WORK, "tree%d%s" % (number, options.sanitize))
        self.build = os.path.join(self.tree, "build")
        self.folder_only = options.folder_only
        self.limits = limits_of_a_sanitizer if options.sanitize else limits
        self.labels = "unit" if options.sanitize == "thread" else REST_LABELS  # as in sanitize.sh
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
        self.copy_tree()
        self.call(["cmake", "-S", self.tree, "-B", self.build, "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                   "-DCECL_CUDA=OFF", "-DCECL_MPI=ON", "-DCECL_EXAMPLES=OFF", "-DCECL_BENCH=OFF",
                   "-DCECL_TEST_RANKS=3", "-DCECL_TEST_LEAST_TIMEOUT=%d" % options.limit,
                   "-DCECL_SANITIZE=" + options.sanitize])
        if self.make().returncode != 0:
            sys.exit("the tree does not build: " + self.build)

    def call(self, command, **more):
        return subprocess.run(command, cwd=self.build, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", **more)

    def copy_tree(self):
        """Copies the tree. Files that have not changed keep their times, so that little is built again."""
        files = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z"],
                               capture_output=True, text=True, check=True).stdout.split("\0")
        os.makedirs(self.build, exist_ok=True)
        for name in filter(None, files):
            here, there = os.path.join(ROOT, name), os.path.join(self.tree, name)
            os.makedirs(os.path.dirname(there), exist_ok=True)
            if not os.path.isfile(here):
                continue
            with open(here, "rb") as f:
                wanted = f.read()
            if not os.path.exists(there) or open(there, "rb").read() != wanted:
                shutil.copy(here, there)

    def make(self):
        return self.call(["cmake", "--build", self.build, "-j2"])

    def run(self, pattern):
        """Runs tests. Returns None if all passed, or how the first one that did not pass has ended."""
        out = self.call(["ctest", "--stop-on-failure", "-j2", "-R", pattern, "-E", LEFT_OUT,
                         "-L", self.labels], preexec_fn=self.limits).stdout
        end_orphans()
        out = re.sub(r"[^\n]*\*\*\*Skipped[^\n]*", "", out)
        bad = re.search(r"Test +#\d+: (\S+) \.*([^.\n]*\*\*\*\S+)", out)
        if not bad:
            return None
        return ("timed out in " if "Timeout" in bad.group(2) else "killed by ") + bad.group(1)

    def run_all(self):
        return self.run(REST)

    def judge(self, mutant):
        path = os.path.join(self.tree, mutant.file)
        with open(path, "w") as f:
            f.write(changed(mutant))
        try:
            built = self.make()
            if built.returncode != 0:
                return "did not compile"
            end = self.run(TESTS[mutant.file.split("/")[1]])
            if end is None and not self.folder_only:
                end = self.run_all()
            return end or "survived"
        finally:
            with open(path, "w") as f:
                f.write(source_of(mutant.file))


def work(number, todo, done, options):
    worker = Worker(number, options)
    if number == 0 and not options.folder_only:
        done.put((None, worker.run_all(), 0))
    while True:
        index, mutant = todo.get()
        if mutant is None:
            return
        begin = time.monotonic()
        done.put((index, worker.judge(mutant), time.monotonic() - begin))


# ---- the report

def known_mutants():
    """The known mutants that change nothing that counts: (file, function, a part of the line, reason)."""
    rows = []
    with open(KNOWN) as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                rows.append([field.strip() for field in line.split(" | ")])
    return rows


def why_known(mutant):
    line = source_line(mutant.file, line_of(mutant))
    for file, function, part, reason in known_mutants():
        if file == mutant.file and function == function_of(mutant) and part in line:
            return reason
    return None


def report(mutants, ends):
    counts = collections.Counter()
    print("\nsurvivors:")
    for index, mutant in enumerate(mutants):
        end = ends[index]
        kind = end.split(" by ")[0].split(" in ")[0]
        reason = why_known(mutant) if end == "survived" else None
        counts["explained" if reason else kind] += 1
        if end == "survived":
            print("\n#%d %s:%d in %s, %s%s\n%s" % (
                index + 1, mutant.file, line_of(mutant), function_of(mutant), mutant.kind,
                "; known: " + reason if reason else "", diff_of(mutant)))
    print("\n" + ", ".join("%d %s" % (n, kind) for kind, n in sorted(counts.items())))
    return counts["survived"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, usage="mutate.sh [options]",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=60, help="number of mutants (60)")
    parser.add_argument("-j", type=int, default=max(1, (os.cpu_count() or 2) // 2),
                        help="workers (half of the processors)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="(the time)")
    parser.add_argument("--under", default="src/", help="only files whose path begins so (src/; or tests/verify/)")
    parser.add_argument("--only", type=int, default=0, help="only mutant number ONLY of the seed")
    parser.add_argument("--folder-only", action="store_true",
                        help="run only the tests of the mutant's folder")
    parser.add_argument("--sanitize", choices=["address", "thread"], default="",
                        help="with a sanitizer, as in CI; it finds lost memory or locks")
    parser.add_argument("--limit", type=int, default=90, help="time limit of each test, in seconds (90)")
    parser.add_argument("--list", action="store_true", help="show the mutants, and run nothing")
    options = parser.parse_args()

    sys.stdout.reconfigure(line_buffering=True)
    print("seed %d" % options.seed)
    mutants = draw(options.n, options.seed, options.under)
    if options.only:
        mutants = mutants[options.only - 1:options.only]
    if options.list:
        for index, mutant in enumerate(mutants):
            print("\n#%d %s:%d %s\n%s" % (index + 1, mutant.file, line_of(mutant), mutant.kind,
                                          diff_of(mutant)))
        return 0

    todo, done = multiprocessing.Queue(), multiprocessing.Queue()
    nworkers = min(options.j, len(mutants))
    workers = [multiprocessing.Process(target=work, args=(k, todo, done, options), daemon=True)
               for k in range(nworkers)]
    for index, mutant in enumerate(mutants):
        todo.put((index, mutant))
    for process in workers:
        todo.put((None, None))
        process.start()
    ends = {}
    while len(ends) < len(mutants):
        try:
            index, end, seconds = done.get(timeout=5)
        except queue.Empty:
            if not any(process.is_alive() for process in workers):
                sys.exit("the workers ended early")
            continue
        if index is None:
            if end:
                sys.exit("the tree as it is: " + end)
            continue
        ends[index] = end
        mutant = mutants[index]
        print("#%-3d %s:%d %s: %s, %.0f s" % (index + 1, mutant.file, line_of(mutant), mutant.kind,
                                              end, seconds))
    return 1 if report(mutants, ends) else 0


if __name__ == "__main__":
    sys.exit(main())

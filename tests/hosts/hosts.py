"""Ranks on several hosts: they join, work, die, leave, and lose their connections.

hosts.py hosts_rank pretended    hosts are made by CECL_HOST_ID, on one machine
hosts.py hosts_rank gpu I/P      the same on GPUs, which ranks may share, with NCCL between the hosts; part I (from 0)
                                 of P
hosts.py hosts_rank namespaces   each host is a network namespace, with a virtual link between them
hosts.py test_random mpirun PATH the same, but mpirun (at PATH) starts the ranks, and MPI carries data over the link

Exit status 77: the system permits no network namespaces.
"""

import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial

PROGRAM, WAY = sys.argv[1:3]
TIMEOUT_MS = 60000  # limit of what must not take long; machines sometimes stand still
SLACK_S = 60  # a process may wait for the last messages of its host's ranks, and machines are sometimes slow
CUT_LIMITS_MS = (6000, 30000)
SPACES = [f"cecl-{os.getpid()}-{n}" for n in (0, 1)]
LINK = "cecl0"
GPUS = int(os.environ.get("CECL_TEST_GPUS", "1")) if WAY == "gpu" else 0


class Job:
    """A job with ranks on several hosts: the sizes of the hosts, and the act of each rank after it has joined."""

    def __init__(self, sizes, acts, settings=None):
        self.folder = tempfile.TemporaryDirectory()
        self.ranks, self.lines = [], []
        hosts = [host for host, size in enumerate(sizes) for _ in range(size)]
        for rank, host in enumerate(hosts):
            self.start(rank, host, len(hosts), acts[rank], (settings or {}).get(rank, {}))

    def start(self, rank, host, nranks, act, settings):
        env = dict(os.environ, CECL_DEVICE="cuda" if GPUS else "host", CECL_TIMEOUT_MS=str(TIMEOUT_MS),
                   CECL_INIT_TIMEOUT_MS=str(TIMEOUT_MS), CECL_POOL_BYTES="64M", CECL_DEBUG="warn")
        command = [PROGRAM, os.path.join(self.folder.name, "id"), str(nranks), str(rank), str(host), act]
        if GPUS:
            env.update(CECL_CUDA_DEVICE=str(rank % GPUS))
        if GPUS and nranks > GPUS:  # NCCL takes ranks that share a GPU if they seem to be on different hosts
            env.update(NCCL_HOSTID=f"rank {rank}")
        if WAY in ("pretended", "gpu"):
            env.update(CECL_HOST_ID=str(host), CECL_SOCKET_IFNAME="lo")
        else:
            env["CECL_SOCKET_IFNAME"] = LINK
            command = ["ip", "netns", "exec", SPACES[host]] + command
        for name, value in settings.items():
            env[name] = value
            if value is None:
                del env[name]
        self.ranks.append(subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE))
        self.lines.append([])

    def read(self, rank):
        line = self.ranks[rank].stdout.readline().strip()
        self.lines[rank].append(line)
        return line

    def expect(self, ranks, pattern):
        for rank in ranks:
            line = self.read(rank)
            if not re.search(pattern, line):
                self.fail(f"rank {rank} printed {self.lines[rank]}; {pattern!r} expected")

    def end(self, killed=()):
        for rank, process in enumerate(self.ranks):
            process.stdin.close()
            status = process.wait(100)
            if status != (-9 if rank in killed else 0):
                self.fail(f"rank {rank} ended with {status}: {process.stdout.read()}")
            process.stdout.close()
        self.folder.cleanup()

    def fail(self, why):
        for process in self.ranks:
            process.kill()
        sys.exit(f"{sys._getframe(2).f_code.co_name}: {why}")


def they_join_and_leave(sizes, act, **settings):
    ranks = range(sum(sizes))
    job = Job(sizes, [act] * len(ranks), {rank: settings for rank in ranks})
    job.expect(ranks, "^joined$")
    job.expect(ranks, "^left$")
    job.end()


def a_killed_rank_is_named(victim, act):
    """Each rank in turn: the first of its host, and the others."""
    sizes = (2, 3)
    others = [rank for rank in range(5) if rank != victim]
    job = Job(sizes, [act] * 5)
    job.expect(range(5), "^joined$")
    time.sleep(0.3 if act == "go_on" else 0)
    begin = time.monotonic()
    job.ranks[victim].kill()
    job.expect(others, fr"^heard: (\w+: |rank . gave up: )*rank {victim} ended unexpectedly")
    job.expect(others, "^aborted$")
    within(job, begin, TIMEOUT_MS / 1000)
    job.end(killed=[victim])


def within_one_of(limits_ms, case, *arguments):
    """A case that waits for a time limit, which may pass too early if the machine stands still."""
    for limit in limits_ms[:-1]:
        try:
            return case(limit, *arguments)
        except SystemExit as why:
            print(f"with a time limit of {limit} ms: {why}", flush=True)
            if WAY == "namespaces":
                end_spaces()
                make_spaces()
    return case(limits_ms[-1], *arguments)


def a_late_rank_is_named_on_all_hosts(limit_ms, late):
    """Also where ranks wait for one that waits for it."""
    job = Job((2, 3), [f"late:{late}"] * 5, {rank: {"CECL_TIMEOUT_MS": str(limit_ms)} for rank in range(5)})
    job.expect(range(5), "^joined$")
    job.expect(range(5), f"^heard: .*a call has waited for rank {late} for ")
    job.expect(range(5), "^aborted$")
    job.end()


def unequal_calls_by_splits_are_named(limit_ms, what, words):
    """The last rank's call differs. No row has moved: the ranks check that. With CECL_CHECK=1 they say what differs."""
    for check in ("1", "0"):
        settings = {"CECL_TIMEOUT_MS": str(limit_ms), "CECL_CHECK": check}
        job = Job((2, 2), [f"unequal:{what}"] * 4, {rank: settings for rank in range(4)})
        job.expect(range(4), "^joined$")
        begin = time.monotonic()
        if check == "1":
            job.expect(range(4), f"^heard: .*{words} on rank 3")
            job.expect(range(4), "^left$")
        else:
            job.expect(range(3), "^heard: .*rank 3")
            job.expect([3], "^heard: .*(different call|ranks differ in the call)")
            job.expect(range(4), "^aborted$")
        within(job, begin, limit_ms / 1000)
        job.end()


def unequal_calls_are_named_over_a_silent_network():
    """Ranks that wait for each other tell other hosts their last calls."""
    job = Job((1, 1), ["silence"] * 2)
    job.expect(range(2), "^joined$")
    begin = time.monotonic()
    job.expect(range(2), "^heard: .*ceclDispatch, call 1 of .*rank . made a different call than rank .")
    job.expect(range(2), "^aborted$")
    within(job, begin, TIMEOUT_MS / 2000)
    job.end()


def within(job, begin, seconds):
    took = time.monotonic() - begin
    if took > seconds:
        job.fail(f"it took {took:.1f} s: at most {seconds} s expected")


def the_first_rank_may_leave_before_the_others():
    """The first rank of a host dies: the others of its host still report to other hosts that they leave, or die."""
    job = Job((2, 2), ["hold", "hold", "wait", "wait"])
    job.expect(range(4), "^joined$")
    job.ranks[0].stdin.close()
    job.expect([0], "^left$")
    job.ranks[1].kill()
    job.expect([2, 3], r"^heard: (\w+: |rank . gave up: )*rank 1 ended unexpectedly")
    job.expect([2, 3], "^aborted$")
    job.end(killed=[1])


def a_process_that_ends_has_left():
    """A rank leaves: its goodbye is no failure on another host, and arrives before its links end."""
    job = Job((1, 2), ["exit", "hold", "hold"])
    job.expect(range(3), "^joined$")
    job.ranks[0].wait(100)
    job.ranks[1].stdin.close()
    job.ranks[2].stdin.close()
    job.expect([1, 2], "^left$")
    job.end()


def the_others_shrink_and_go_on(victim, sizes=(2, 3), after=0.0):
    """Whatever a shrink of all ranks has just done when one is killed, and whether that is the first of its host."""
    ranks = range(sum(sizes))
    others = [rank for rank in ranks if rank != victim]
    job = Job(sizes, [f"shrink:{victim}"] * len(ranks))
    job.expect(ranks, "^joined$")
    time.sleep(after)
    job.ranks[victim].kill()
    job.expect(others, fr"^heard: .*rank {victim}\b")
    job.expect(others, "^shrunk$")
    job.expect(others, "^left$")
    job.end(killed=[victim])


def a_refusal_fails_one_shrink_of_each(_, victim):
    """Also if all ranks are on the list of the rank that refuses, and the one that was killed would be the first.

    The refusal is told for 5 s: if the machine stands still for longer, a late rank may miss it."""
    others = [rank for rank in range(4) if rank != victim]
    job = Job((2, 2), [f"refuse:{victim}"] * 4)
    job.expect(range(4), "^joined$")
    job.ranks[victim].kill()
    job.expect(others, "^shrunk$")
    job.expect(others, "^left$")
    job.end(killed=[victim])


def odd_settings_are_named():
    sizes = (2, 2)
    job = Job(sizes, ["work"] * 4, {r: {"CECL_NODE_SIZE": "3"} for r in range(4)})
    job.expect(range(4), "^refused: ceclCommInitRank: CECL_NODE_SIZE=3: ranks 1 and 2 would be on one node, .*2 nodes of 2 ranks")
    job.end()
    job = Job(sizes, ["work"] * 4, {2: {"CECL_TIMEOUT_MS": "4000"}})
    job.expect(range(4), "^refused: ceclCommInitRank: ranks differ in timeoutMs .* 4000 on rank 2")
    job.end()


def a_cut_link_is_named(limit_ms, act):
    settings = {"CECL_TIMEOUT_MS": str(limit_ms)}
    job = Job((2, 2), [act] * 4, {rank: settings for rank in range(4)})
    job.expect(range(4), "^joined$")
    time.sleep(0.3 if act == "go_on" else 0)
    begin = time.monotonic()
    space("ip", "link", "set", LINK, "down")
    job.expect([0, 1], "^heard: .*no answer for .* from the host of ranks 2 and 3")
    job.expect([2, 3], "^heard: .*no answer for .* from the host of ranks 0 and 1")
    job.expect(range(4), "^aborted$")
    within(job, begin, limit_ms / 1000 + SLACK_S)
    job.end()
    space("ip", "link", "set", LINK, "up")


def hosts_that_are_cut_off_go_on_by_themselves(limit_ms):
    end_spaces()  # after a cut the other host may still take this one for unreachable, for some seconds
    make_spaces()
    settings = {"CECL_TIMEOUT_MS": str(limit_ms)}
    job = Job((2, 2), ["shrink:-1"] * 4, {rank: settings for rank in range(4)})
    job.expect(range(4), "^joined$")
    begin = time.monotonic()
    space("ip", "link", "set", LINK, "down")
    job.expect(range(4), "^heard: .*(no answer for|cannot be reached)")
    job.expect(range(4), "^shrunk$")
    job.expect(range(4), "^left$")
    within(job, begin, limit_ms / 1000 + SLACK_S)
    job.end()


def hosts_that_are_not_linked_are_refused(limit_ms):
    """The id is valid on one host only, so the error on the other host names the setting."""
    job = Job((1, 1), ["work"] * 2, {0: {"CECL_SOCKET_IFNAME": None, "CECL_INIT_TIMEOUT_MS": str(limit_ms)}})
    job.expect([1], "^refused: .*CECL_SOCKET_IFNAME")
    job.expect([0], "^refused: .*1 of 2 ranks joined")
    job.end()


def an_interface_may_have_only_its_own_ipv6_address():
    """Such an address (fe80::...) is valid on an interface only, and each host has its own number for the interface."""
    end_spaces()
    make_spaces(only_ipv6=True)
    if own_addresses():  # none if the system has no IPv6
        they_join_and_leave((2, 2), "work")
        they_join_and_leave((1, 2), "carry")
    end_spaces()
    make_spaces()


def own_addresses():
    """The link's IPv6 addresses, once all can be used."""
    for _ in range(4000):
        done = [run("ip", "-n", name, "-6", "-o", "addr", "show", LINK).stdout for name in SPACES]
        if not any("tentative" in words for words in done):
            return all("fe80" in words for words in done)
        time.sleep(0.005)
    sys.exit(f"the link's addresses cannot be used: {done}")


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def space(*command, number=0):
    done = run("ip", "netns", "exec", SPACES[number], *command)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stdout}")


def make_spaces(only_ipv6=False):
    made = [run("ip", "netns", "add", name) for name in SPACES]
    if only_ipv6:  # these take the number that the link has in the other space
        run("ip", "-n", SPACES[1], "link", "add", "other", "type", "veth", "peer", "name", "another")
    made.append(run("ip", "link", "add", LINK, "netns", SPACES[0], "type", "veth", "peer", "name", LINK,
                    "netns", SPACES[1]))
    if any(done.returncode for done in made):
        print("skipped: the system permits no network namespaces:", made[-1].stdout.strip())
        sys.exit(77)
    for number in range(2):
        if not only_ipv6:
            space("ip", "addr", "add", f"10.213.7.{number + 1}/24", "dev", LINK, number=number)
        space("ip", "link", "set", "lo", "up", number=number)
        space("ip", "link", "set", LINK, "up", number=number)
    await_link()


def end_spaces():
    for name in SPACES:
        run("ip", "netns", "del", name)


def await_link():
    """Waits until a new link carries data."""
    for _ in range(4000):
        done = [run("ip", "-n", name, "-o", "link", "show", LINK).stdout for name in SPACES]
        if all("state UP" in words for words in done):
            return
        time.sleep(0.005)
    sys.exit(f"the link does not come up: {done}")


def mpirun(folder, acts, **settings):
    """Starts two ranks in each namespace. What rank r writes goes to the file r of the folder.

    Each daemon of Open MPI has a folder for temporary files: in a shared one, some starts fail, because the
    daemons of one job make the same folders at the same time. All connections are made at the start: MPI ends a
    process that cannot make one."""
    agent = os.path.join(folder, "agent")
    with open(agent, "w", encoding="ascii") as file:
        file.write('#!/bin/sh\nspace=$1\nshift\n'
                   f'mkdir -p {folder}/of-$space\nexport TMPDIR={folder}/of-$space\n'
                   'exec ip netns exec "$space" sh -c "$*"\n')
    os.chmod(agent, 0o755)
    settings.update(CECL_DEVICE="host", CECL_NET="mpi", CECL_NODE_SIZE="2", CECL_SOCKET_IFNAME=LINK,
                    CECL_DEBUG="plan", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    command = ["ip", "netns", "exec", SPACES[0], sys.argv[3], "--oversubscribe", "--bind-to", "none"]
    for name, value in (("plm", "rsh"), ("plm_rsh_agent", agent), ("btl", "self,tcp"),
                        ("btl_tcp_if_include", LINK), ("oob_tcp_if_include", LINK),
                        ("mpi_preconnect_mpi", "1")):
        command += ["--mca", name, value]
    for name in settings:
        command += ["-x", name]
    command += ["-H", ",".join(f"{name}:2" for name in SPACES), "-np", "4", "sh", "-c",
                f'exec {PROGRAM} >{folder}/$OMPI_COMM_WORLD_RANK 2>&1']
    return subprocess.Popen(command, env=dict(os.environ, **settings, CECL_TEST_CALLS=str(acts),
                                              TMPDIR=folder))


def written(folder, rank):
    try:
        with open(os.path.join(folder, str(rank)), encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def await_words(folder, ranks, pattern, seconds):
    end = time.monotonic() + seconds
    left = set(ranks)
    while left:
        left = {rank for rank in left if not re.search(pattern, written(folder, rank), re.DOTALL)}
        if left and time.monotonic() > end:
            sys.exit(f"rank {min(left)}: no {pattern} in {written(folder, min(left))[-2000:]}")
        time.sleep(0.05)


def end_processes():
    """Ends what is left in the namespaces: without the link, mpirun does not hear from its other half."""
    for name in SPACES:
        for pid in run("ip", "netns", "pids", name).stdout.split():
            run("kill", "-KILL", pid)


def calls_under_mpirun_are_right():
    with tempfile.TemporaryDirectory() as folder:
        if mpirun(folder, 300).wait(timeout=200) != 0:
            sys.exit("\n".join(written(folder, rank)[-1000:] for rank in range(4)))


def a_link_that_is_cut_under_mpirun_is_named(limit_ms):
    """A plan over nodes is made only after all ranks have joined."""
    with tempfile.TemporaryDirectory() as folder:
        job = mpirun(folder, 100000000, CECL_TIMEOUT_MS=str(limit_ms))
        try:
            await_words(folder, [0], "plan, 4 ranks: .*exchange 1", SLACK_S)
            space("ip", "link", "set", LINK, "down")
            await_words(folder, range(4), "the host of ranks .*the link is cut, or the host is down",
                        limit_ms / 1000 + SLACK_S)
        finally:
            end_processes()
            job.wait()


UNEQUAL = (("align", "align: 1 on rank 0, 2"), ("recvrows", "recvrows: 50 on rank 0, 51"),
           ("sendrows", "sendrows: 40 on rank 0, 41"), ("experts", "experts: 1 on rank 0, 2"),
           ("call", "the call: ceclDispatch on rank 0, ceclCombine"))


def unequal_calls_are_named(limits_ms):
    for what, words in UNEQUAL:
        within_one_of(limits_ms, unequal_calls_by_splits_are_named, what, words)


def steps_on_gpus():
    yield they_join_and_leave, (2, 2), "work"
    for sizes in ((1, 1), (2, 2), (1, 3)):
        yield they_join_and_leave, sizes, "carry"
    yield partial(they_join_and_leave, CECL_CHECK="1"), (2, 2), "carry"
    yield partial(they_join_and_leave, CECL_NODE_SIZE="1"), (2, 2), "carry"
    for what, words in UNEQUAL:
        yield within_one_of, (20000, 60000), unequal_calls_by_splits_are_named, what, words
    yield within_one_of, (10000, 30000), a_late_rank_is_named_on_all_hosts, 4
    for victim in (0, 4):
        yield a_killed_rank_is_named, victim, "wait"
        yield a_killed_rank_is_named, victim, "go_on"
        yield partial(the_others_shrink_and_go_on, after=0.1), victim


def try_on_gpus():
    part, parts = (int(number) for number in sys.argv[3].split("/"))
    for step, *arguments in itertools.islice(steps_on_gpus(), part, None, parts):
        begin = time.monotonic()
        step(*arguments)
        name = getattr(step, "func", step).__name__
        print(f"{name} {arguments}: {time.monotonic() - begin:.1f} s", flush=True)


def try_all():
    if WAY == "gpu":
        try_on_gpus()
        return
    if WAY == "mpirun":
        calls_under_mpirun_are_right()
        within_one_of(CUT_LIMITS_MS, a_link_that_is_cut_under_mpirun_is_named)
        return
    they_join_and_leave((2, 3), "work")
    they_join_and_leave((2, 3), "carry")
    if WAY == "pretended":
        for sizes in ((1, 2, 3), (1, 1)):
            they_join_and_leave(sizes, "work")
            they_join_and_leave(sizes, "carry")
        they_join_and_leave((2, 3), "carry", CECL_CHECK="1")
        they_join_and_leave((2, 4), "carry", CECL_NODE_SIZE="2")
        odd_settings_are_named()
        within_one_of((1000, 20000), a_late_rank_is_named_on_all_hosts, 4)
        unequal_calls_are_named((6000, 60000))
        unequal_calls_are_named_over_a_silent_network()
        the_first_rank_may_leave_before_the_others()
        a_process_that_ends_has_left()
        for victim in (0, 1):
            within_one_of(range(3), a_refusal_fails_one_shrink_of_each, victim)
        for victim in (0, 1, 2, 4):
            a_killed_rank_is_named(victim, "wait")
        for victim in (0, 4):
            a_killed_rank_is_named(victim, "go_on")
            the_others_shrink_and_go_on(victim, after=0.1)
    else:
        a_killed_rank_is_named(2, "wait")
        a_killed_rank_is_named(4, "go_on")
        the_others_shrink_and_go_on(2, after=0.1)
        within_one_of(CUT_LIMITS_MS, a_cut_link_is_named, "go_on")
        within_one_of((1500, 20000), hosts_that_are_not_linked_are_refused)
        an_interface_may_have_only_its_own_ipv6_address()
        within_one_of(CUT_LIMITS_MS, hosts_that_are_cut_off_go_on_by_themselves)


if WAY in ("pretended", "gpu"):
    try_all()
elif not shutil.which("ip"):
    print("skipped: the program `ip` is missing")
    sys.exit(77)
else:
    try:
        make_spaces()
        try_all()
    finally:
        end_spaces()

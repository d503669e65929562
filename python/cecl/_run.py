"""Starts programs that use NCCL, with cecl's libnccl.so.2 in NCCL's place."""
import json
import os
import subprocess

from ._places import tools


def run(command, policy=None, nccl=None, stats_file=None, **options):
    """Runs a command under cecl-run, and returns its exit status.

    command     a list: the program and its arguments
    policy      which calls cecl carries out: "off", "auto", "all" or "strict"; default: CECL_NCCL if it is set, else "auto"
    nccl        path of the real NCCL; by default each process looks for it
    stats_file  each process appends a line to this file when it ends; see stats
    options     passed to subprocess.run, such as env and cwd
    """
    line = [str(tools / "cecl-run")]
    for name, value in (("--policy", policy), ("--nccl", nccl), ("--stats", stats_file)):
        if value is not None:
            line.append(f"{name}={os.fspath(value)}")
    return subprocess.run(line + ["--"] + list(command), **options).returncode


def stats(file=None):
    """Reads which calls cecl carried out, and which NCCL: returns a list with a dict for each process that has ended.

    file  what was passed to `run` as stats_file, or to cecl-run as --stats=FILE; default: CECL_NCCL_STATS_FILE
    """
    file = file or os.environ.get("CECL_NCCL_STATS_FILE")
    if not file:
        raise ValueError("stats: no file: name the one of run's stats_file or of cecl-run --stats=FILE")
    with open(file, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]

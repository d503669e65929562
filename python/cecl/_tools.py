"""The package's commands. Each replaces itself (exec) by the program of the same name in the package."""
import os
import sys

from ._places import tools


def _become(name):
    program = str(tools / name)
    os.execv(program, [program] + sys.argv[1:])


def cecl_run():
    _become("cecl-run")


def cecl_info():
    _become("cecl_info")


def cecl_perf():
    _become("cecl_perf")


def cecl_zerosm():
    _become("cecl_zerosm")

"""The commands on PATH: each becomes the program of its name."""
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

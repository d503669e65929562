"""cecl: collectives on the GPU's copy engines.

run      starts a program that uses NCCL, such as PyTorch, with cecl's libnccl.so.2 in NCCL's place
stats    reads which of that program's calls cecl carried out, and which NCCL
explain  tells how cecl would carry out a collective on this machine
"""
from ._explain import explain
from ._run import run, stats
from ._version import __version__

__all__ = ["run", "stats", "explain", "__version__"]

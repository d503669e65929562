"""cecl: collectives on the GPU's copy engines.

run      starts a program that uses NCCL, such as PyTorch, with cecl's library instead of NCCL
stats    reads whether NCCL or cecl carried out that program's calls
explain  says how a collective of cecl would be carried out here
"""
from ._explain import explain
from ._run import run, stats
from ._version import __version__

__all__ = ["run", "stats", "explain", "__version__"]

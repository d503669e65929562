"""The package's version, which only cecl.h defines."""
from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("cecl")
except PackageNotFoundError:  # not installed: tests use the sources
    __version__ = "unknown"

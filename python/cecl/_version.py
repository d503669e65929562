"""The package's version, which the build takes from cecl.h."""
from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("cecl")
except PackageNotFoundError:  # not installed: tests use the sources
    __version__ = "unknown"

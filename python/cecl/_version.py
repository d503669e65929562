"""The package's version, which stands in cecl.h alone."""
from importlib.metadata import version

__version__ = version("cecl")

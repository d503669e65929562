#!/usr/bin/env python3
"""Compiles kernels by NVRTC, NVIDIA's compiler library, where no nvcc is.

nvrtc.py --find
    Prints, one a line: the library's path, its version, and folders of CUDA's headers. Looks among this
    Python's packages (nvidia-cuda-nvrtc-cu12, nvidia-cuda-runtime-cu12 and nvidia-nvtx-cu12 of PyPI, or
    those of CUDA 13). Ends with 1 and says what is missing.
nvrtc.py LIBRARY SOURCE OUTPUT... OPTION...
    Compiles SOURCE once, and writes a cubin (for --gpu-architecture=sm_N alone) or PTX, as each OUTPUT's name ends.
"""
import ctypes
import importlib.util
import sys
from pathlib import Path


def folders():
    """The folders of PyPI's packages of CUDA, which are in the namespace `nvidia`."""
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations or []) if spec else []
    return [folder for root in roots for folder in sorted(Path(root).iterdir()) if folder.is_dir()]


def first(pattern):
    found = [path for folder in folders() for path in sorted(folder.glob(pattern))]
    return found[0] if found else None


class Nvrtc:
    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        if result:
            words = self.library.nvrtcGetErrorString(result).decode()
            raise RuntimeError(f"{name}: {words}")

    def version(self):
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def text(self, program, size_of, get):
        size = ctypes.c_size_t()
        self.call(size_of, program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        self.call(get, program, data)
        return data.raw

    def compile(self, source, outputs, options):
        program = ctypes.c_void_p()
        self.call("nvrtcCreateProgram", ctypes.byref(program), source.read_bytes(),
                  str(source).encode(), 0, None, None)
        words = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        try:
            self.call("nvrtcCompileProgram", program, len(options), words)
        except RuntimeError:
            log = self.text(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")
            sys.stderr.write(log.rstrip(b"\0").decode())
            raise
        for output in outputs:
            if output.endswith(".ptx"):
                image = self.text(program, "nvrtcGetPTXSize", "nvrtcGetPTX").rstrip(b"\0")
            else:
                image = self.text(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
            Path(output).write_bytes(image)


def find():
    library = first("lib/libnvrtc.so.1[2-9]")
    header, profiler = first("include/cuda.h"), first("include/nvtx3/nvToolsExt.h")
    for found, package in ((library, "nvrtc"), (header, "cuda.h"), (profiler, "nvtx3")):
        if not found:
            sys.exit(f"no {package} among the packages of {sys.executable}")
    print(library, Nvrtc(library).version(), header.parent, profiler.parent.parent, sep="\n")


def main(arguments):
    if arguments == ["--find"]:
        return find()
    if len(arguments) < 3:
        sys.exit(__doc__)
    library, source, *rest = arguments
    options = [word for word in rest if word.startswith("-")]
    outputs = [word for word in rest if not word.startswith("-")]
    try:
        Nvrtc(library).compile(Path(source), outputs, options)
    except (OSError, RuntimeError) as error:
        sys.exit(f"nvrtc.py: {source}: {error}")


main(sys.argv[1:])

"""Opens libcecl.so by ctypes: the functions of cecl.h that this package calls, and their errors."""
import contextlib
import ctypes
import os

from . import _places

# The values of cecl.h's enums that this package uses.
SUCCESS = 0
DEVICE_CUDA, DEVICE_HOST = 1, 2
SUM, PROD, MAX, MIN, AVG = range(5)
(INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16, FLOAT8E4M3,
 FLOAT8E5M2) = range(12)
UNDEF = -1
CONFIG_MAGIC = 0xCEC1C0DE
OPTIONS_MAGIC = 0xCEC10B75
SIGNALS = 64  # CECL_SIGNALS
SM_ALLOW = 2  # ceclSmPolicy_t


class Error(RuntimeError):
    """Raised when a function of cecl.h does not succeed. `result` is the ceclResult_t that it returned."""

    def __init__(self, result, words):
        super().__init__(words)
        self.result = result


class Config(ctypes.Structure):
    """ceclConfig_t. Fields that are not passed keep their defaults."""
    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint),
                ("device", ctypes.c_int), ("cudaDevice", ctypes.c_int), ("smPolicy", ctypes.c_int),
                ("timeoutMs", ctypes.c_int), ("poolBytes", ctypes.c_int64),
                ("segmentBytes", ctypes.c_int64), ("stagingBytes", ctypes.c_int64),
                ("maxSms", ctypes.c_int), ("registerOnUse", ctypes.c_int), ("urgent", ctypes.c_int)]

    def __init__(self, version, **fields):
        super().__init__(ctypes.sizeof(Config), CONFIG_MAGIC, version, *[UNDEF] * 10)
        for name, value in fields.items():
            setattr(self, name, value)


class Options(ctypes.Structure):
    """ceclOptions_t. Fields that are not passed keep their defaults."""
    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint),
                ("smPolicy", ctypes.c_int), ("direction", ctypes.c_int), ("maxSms", ctypes.c_int)]

    def __init__(self, version, **fields):
        super().__init__(ctypes.sizeof(Options), OPTIONS_MAGIC, version, *[UNDEF] * 3)
        for name, value in fields.items():
            setattr(self, name, value)


class Experts(ctypes.Structure):
    """ceclExperts_t"""
    _fields_ = [("experts", ctypes.c_size_t), ("align", ctypes.c_size_t), ("sendscales", ctypes.c_void_p),
                ("recvscales", ctypes.c_void_p), ("scalebytes", ctypes.c_size_t)]


class Tiles(ctypes.Structure):
    """ceclTiles_t"""
    _fields_ = [("count", ctypes.c_size_t), ("width", ctypes.c_size_t), ("rows", ctypes.c_size_t),
                ("pitch", ctypes.c_size_t), ("begins", ctypes.POINTER(ctypes.c_size_t))]


class Strided(ctypes.Structure):
    """ceclStrided_t"""
    _fields_ = [(field, ctypes.c_size_t) for field in ("width", "rows", "sendPitch", "sendStride", "recvPitch", "recvStride")]


class SignalWait(ctypes.Structure):
    """ceclSignalWait_t"""
    _fields_ = [("peer", ctypes.c_int), ("signal", ctypes.c_int), ("count", ctypes.c_int)]


GATHER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
                          ctypes.c_size_t)
BARRIER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class Oob(ctypes.Structure):
    """ceclOob_t"""
    _fields_ = [("context", ctypes.c_void_p), ("allGather", GATHER), ("barrier", BARRIER)]


class Explanation(ctypes.Structure):
    """ceclExplanation_t"""
    _fields_ = [("zero_sm", ctypes.c_int), ("copies", ctypes.c_int), ("local_copies", ctypes.c_int),
                ("reductions", ctypes.c_int), ("kernels", ctypes.c_int), ("barriers", ctypes.c_int),
                ("bytes_sent", ctypes.c_uint64), ("path", ctypes.c_char * 64),
                ("reason", ctypes.c_char * 192)]


_P, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_SIZES = ctypes.POINTER(ctypes.c_size_t)
# The types of each function's arguments. All functions return a ceclResult_t.
_FUNCTIONS = {
    "ceclGetVersion": [ctypes.POINTER(_INT)],
    "ceclCommInitAll": [ctypes.POINTER(_P), _INT, ctypes.POINTER(_INT)],
    "ceclMemAlloc": [_P, ctypes.POINTER(_P), _SIZE],
    "ceclMemFree": [_P, _P],
    "ceclSetOptions": [_P, ctypes.POINTER(Options)],
    "ceclCommInitOob": [ctypes.POINTER(_P), _INT, _INT, ctypes.POINTER(Oob), ctypes.POINTER(Config)],
    "ceclCommSplit": [_P, _INT, _INT, ctypes.POINTER(_P), ctypes.POINTER(Config)],
    "ceclCommDestroy": [_P],
    "ceclCommAbort": [_P],
    "ceclStreamSynchronize": [_P, _P],
    "ceclGroupStart": [],
    "ceclGroupEnd": [],
    "ceclGroupExplain": [_P, ctypes.POINTER(Explanation)],
    "ceclAllGather": [_P, _P, _SIZE, _INT, _P, _P],
    "ceclAlltoAll": [_P, _P, _SIZE, _INT, _P, _P],
    "ceclAllGatherv": [_P, _SIZE, _P, _SIZES, _SIZES, _INT, _P, _P],
    "ceclAllGatherStrided": [_P, _P, ctypes.POINTER(Strided), _INT, _P, _P],
    "ceclAlltoAllStrided": [_P, _P, ctypes.POINTER(Strided), _INT, _P, _P],
    "ceclAlltoAllvAt": [_P, _SIZES, _SIZES, _P, _SIZES, _SIZES, _SIZES, _INT, _P, _P],
    "ceclAlltoAllv": [_P, _SIZES, _SIZES, _P, _SIZES, _SIZES, _INT, _P, _P],
    "ceclBroadcast": [_P, _P, _SIZE, _INT, _INT, _P, _P],
    "ceclGather": [_P, _P, _SIZE, _INT, _INT, _P, _P],
    "ceclScatter": [_P, _P, _SIZE, _INT, _INT, _P, _P],
    "ceclReduceScatter": [_P, _P, _SIZE, _INT, _INT, _P, _P],
    "ceclReduceScatterAs": [_P, _P, _SIZE, _INT, _INT, _INT, _P, _P],
    "ceclAllReduce": [_P, _P, _SIZE, _INT, _INT, _P, _P],
    "ceclReduce": [_P, _P, _SIZE, _INT, _INT, _INT, _P, _P],
    "ceclSend": [_P, _SIZE, _INT, _INT, _P, _P],
    "ceclRecv": [_P, _SIZE, _INT, _INT, _P, _P],
    "ceclBarrier": [_P, _P],
    "ceclReduceScatterTiles": [_P, _P, ctypes.POINTER(Tiles), _INT, _INT, _P, _P],
    "ceclAlltoAllvDevice": [_P, _SIZE, _P, _P, _SIZE, _P, _SIZE, _INT, _P, _P],
    "ceclDispatch": [_P, _SIZE, _P, _P, _SIZE, _P, ctypes.POINTER(Experts), _SIZE, _INT, _P, _P],
    "ceclCombine": [_P, _SIZE, _P, _P, _SIZE, _P, ctypes.POINTER(Experts), _SIZE, _INT, _P, _P],
    "ceclWindowShare": [_P, _P, _SIZE, ctypes.POINTER(_P)],
    "ceclWindowFree": [_P, _P],
    "ceclWindowPointer": [_P, _P, _INT, ctypes.POINTER(_P)],
    "ceclPut": [_P, _SIZE, _INT, _INT, _P, _SIZE, _P, _P],
    "ceclPutSignal": [_P, _SIZE, _INT, _INT, _P, _SIZE, _INT, _P, _P],
    "ceclGet": [_P, _SIZE, _INT, _INT, _P, _SIZE, _P, _P],
    "ceclSignal": [_INT, _INT, _P, _P],
    "ceclWaitSignal": [_INT, ctypes.POINTER(SignalWait), _P, _P],
    "ceclSumRows": [_P, _SIZE, _P, _P, _P, _SIZE, _SIZE, _SIZE, _INT, _P, _P],
}


class _Library:
    """The library, opened at the first call of a function."""

    def __init__(self):
        self._opened = None

    def _open(self):
        # tests of a build set LIBCECL to the build's libcecl.so
        library = ctypes.CDLL(os.environ.get("LIBCECL") or str(_places.library()))
        library.ceclGetLastError.argtypes, library.ceclGetLastError.restype = [_P], ctypes.c_char_p
        for name, arguments in _FUNCTIONS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, _INT
        return library

    def call(self, name, *arguments):
        """Calls a function, and raises Error with cecl's message if it does not succeed."""
        self._opened = self._opened or self._open()
        result = getattr(self._opened, name)(*arguments)
        if result != SUCCESS:
            words = self._opened.ceclGetLastError(None).decode(errors="replace")
            raise Error(result, words if words.startswith(name) else f"{name}: {words}")

    def version(self):
        """The library's version, in the form of CECL_VERSION."""
        number = ctypes.c_int()
        self.call("ceclGetVersion", ctypes.byref(number))
        return number.value


library = _Library()


@contextlib.contextmanager
def grouped():
    """A context manager: the calls of cecl within it form one group."""
    library.call("ceclGroupStart")
    try:
        yield
    finally:
        library.call("ceclGroupEnd")


def sizes(values):
    """Converts numbers to an array of size_t."""
    return (ctypes.c_size_t * len(values))(*values)

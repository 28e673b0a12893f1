"""The opcodes of a pickled state dict, followed over a stack of stand-ins.

Nothing is imported and nothing called: a name in the pickle stays a name, and of what would be called only torch's ways
to rebuild a tensor are understood (pytorch/pytorch, torch/_utils.py; CPython, Lib/pickletools.py).
"""

from __future__ import annotations

import pickletools
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from eagle3_backend.drafter.tensorfile import BITS

MAX_FOREIGN = 20
"""Most names that are told."""


class Name(NamedTuple):
    """A global of the pickle."""

    module: str
    name: str


class Storage(NamedTuple):
    """The bytes behind tensors: ``key`` names their entry in the archive. An untyped one has no dtype."""

    dtype: str
    key: str


class View(NamedTuple):
    """A tensor: ``offset`` and ``stride`` count elements of the storage."""

    storage: Storage
    dtype: str
    offset: int
    shape: Tuple[int, ...]
    stride: Tuple[int, ...]


class Walk(NamedTuple):
    """What a pickle holds at its top, and the names in it that no tensor needs: to load it would be to call them."""

    value: Any
    foreign: List[str]


def walk(pickle: bytes) -> Walk:
    """Follow all opcodes. Raises ValueError for what is no pickle of tensors, and for one that ends too early."""
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(pickle):
            machine.step(opcode.name, argument)
        return Walk(machine.stack.pop(), machine.foreign)
    except (IndexError, KeyError, TypeError, OverflowError) as problem:
        raise ValueError(f"{type(problem).__name__}: {problem}") from problem


def _text(machine: _Machine, text: str) -> None:
    """A text, which pickle lets be half a character: that has no place in a name, and cannot be shown."""
    text.encode("utf-8")
    machine.given(text)


class _Machine:
    """Stack, marks and memo of an unpickler. Every method takes the argument of its opcode."""

    def __init__(self) -> None:
        self.stack: List[Any] = []
        self.foreign: List[str] = []
        self._below: List[List[Any]] = []
        self._memo: Dict[Any, Any] = {}

    def step(self, opcode: str, argument: Any) -> None:
        action = _ACTIONS.get(opcode)
        if action is None:
            raise ValueError(f"no state dict needs {opcode}")
        action(self, argument)

    def ignore(self, argument: Any) -> None:
        """An opcode about the pickle itself."""

    def given(self, argument: Any) -> None:
        self.stack.append(argument)

    def mark(self, argument: Any) -> None:
        self._below.append(self.stack)
        self.stack = []

    def make_tuple(self, argument: Any) -> None:
        items = self._to_mark()
        self.stack.append(tuple(items))

    def make_list(self, argument: Any) -> None:
        items = self._to_mark()
        self.stack.append(items)

    def make_dict(self, argument: Any) -> None:
        items = self._to_mark()
        self.stack.append({})
        self._set(items)

    def tuple_of(self, length: int) -> None:
        items = [self.stack.pop() for _ in range(length)]
        self.stack.append(tuple(reversed(items)))

    def set_item(self, argument: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._set([key, value])

    def set_items(self, argument: Any) -> None:
        self._set(self._to_mark())

    def append(self, argument: Any) -> None:
        self._extend([self.stack.pop()])

    def append_items(self, argument: Any) -> None:
        self._extend(self._to_mark())

    def drop(self, argument: Any) -> None:
        """POP, and BUILD: what an object is built of adds nothing to the items of a dict."""
        self.stack.pop()

    def put(self, number: Any) -> None:
        self._memo[number] = self.stack[-1]

    def memoize(self, argument: Any) -> None:
        self._memo[len(self._memo)] = self.stack[-1]

    def get(self, number: Any) -> None:
        self.stack.append(self._memo[number])

    def name(self, argument: str) -> None:
        self._named(*argument.split(" ", 1))

    def name_on_stack(self, argument: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(module, str) or not isinstance(name, str):
            raise ValueError("a name that is no text")
        self._named(module, name)

    def persistent(self, argument: Any) -> None:
        """A storage: ("storage", its class, its key, the device, how many elements)."""
        kind, storage, key, *_ = self.stack.pop()
        known = isinstance(storage, Name) and storage in _STORAGES and isinstance(key, str)
        if kind != "storage" or not known:
            raise ValueError("it refers to something that is no storage")
        self.stack.append(Storage(_STORAGES[storage], key))

    def call(self, argument: Any) -> None:
        """What a call would make: a tensor or a dict where it is one of torch's, None for all others."""
        arguments, function = self.stack.pop(), self.stack.pop()
        rebuild = _REBUILD.get(function) if isinstance(function, Name) else None
        self.stack.append(rebuild(*arguments) if rebuild is not None else None)

    def _to_mark(self) -> List[Any]:
        items, self.stack = self.stack, self._below.pop()
        return items

    def _set(self, items: List[Any]) -> None:
        # Nothing but texts is ever hashed: a tuple of tuples of tuples can take for ever.
        if isinstance(self.stack[-1], dict):
            self.stack[-1].update((key, item) for key, item in zip(items[::2], items[1::2]) if isinstance(key, str))

    def _extend(self, items: List[Any]) -> None:
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(items)

    def _named(self, module: str, name: str) -> None:
        found = Name(module, name)
        known = found in _REBUILD or found in _STORAGES or (module == "torch" and name in BITS)
        if not known and len(self.foreign) < MAX_FOREIGN:
            self.foreign.append(f"{module}.{name}"[:200])
        self.stack.append(found)


def _tensor(storage: Any, offset: Any, shape: Any, stride: Any, *_: Any) -> View:
    return _view(storage, storage.dtype if isinstance(storage, Storage) else None, offset, shape, stride)


def _tensor_v3(storage: Any, offset: Any, shape: Any, stride: Any, grad: Any, hooks: Any, dtype: Any, *_: Any) -> View:
    return _view(storage, dtype.name if isinstance(dtype, Name) else None, offset, shape, stride)


def _view(storage: Any, dtype: Any, *place: Any) -> View:
    if not isinstance(storage, Storage) or dtype not in BITS:
        raise ValueError("a tensor without a storage or dtype")
    return View(storage, dtype, *place)


def _first(value: Any = None, *_: Any) -> Any:
    return value


_REBUILD: Dict[Any, Callable[..., Any]] = {
    Name("collections", "OrderedDict"): lambda *items: {},
    Name("torch._utils", "_rebuild_tensor"): _tensor,
    Name("torch._utils", "_rebuild_tensor_v2"): _tensor,
    Name("torch._utils", "_rebuild_tensor_v3"): _tensor_v3,
    Name("torch._utils", "_rebuild_parameter"): _first,
    Name("torch._utils", "_rebuild_parameter_with_state"): _first,
    Name("torch", "Size"): _first,
    Name("torch", "device"): _first,
}

_STORAGES = {
    Name("torch", "DoubleStorage"): "float64",
    Name("torch", "FloatStorage"): "float32",
    Name("torch", "HalfStorage"): "float16",
    Name("torch", "BFloat16Storage"): "bfloat16",
    Name("torch", "LongStorage"): "int64",
    Name("torch", "IntStorage"): "int32",
    Name("torch", "ShortStorage"): "int16",
    Name("torch", "CharStorage"): "int8",
    Name("torch", "ByteStorage"): "uint8",
    Name("torch", "BoolStorage"): "bool",
    Name("torch", "ComplexFloatStorage"): "complex64",
    Name("torch.storage", "UntypedStorage"): "",
    Name("torch", "UntypedStorage"): "",
}

_ACTIONS: Dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": _Machine.ignore,
    "FRAME": _Machine.ignore,
    "STOP": _Machine.ignore,
    "NONE": lambda machine, _: machine.given(None),
    "NEWTRUE": lambda machine, _: machine.given(True),
    "NEWFALSE": lambda machine, _: machine.given(False),
    "EMPTY_TUPLE": lambda machine, _: machine.given(()),
    "EMPTY_LIST": lambda machine, _: machine.given([]),
    "EMPTY_DICT": lambda machine, _: machine.given({}),
    "MARK": _Machine.mark,
    "TUPLE": _Machine.make_tuple,
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "LIST": _Machine.make_list,
    "DICT": _Machine.make_dict,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "APPEND": _Machine.append,
    "APPENDS": _Machine.append_items,
    "POP": _Machine.drop,
    "BUILD": _Machine.drop,
    "PUT": _Machine.put,
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": _Machine.memoize,
    "GET": _Machine.get,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": _Machine.name_on_stack,
    "BINPERSID": _Machine.persistent,
    "REDUCE": _Machine.call,
    "NEWOBJ": _Machine.call,
    "INT": _Machine.given,
    "BININT": _Machine.given,
    "BININT1": _Machine.given,
    "BININT2": _Machine.given,
    "LONG": _Machine.given,
    "LONG1": _Machine.given,
    "LONG4": _Machine.given,
    "FLOAT": _Machine.given,
    "BINFLOAT": _Machine.given,
    "UNICODE": _text,
    "BINUNICODE": _text,
    "SHORT_BINUNICODE": _text,
    "BINUNICODE8": _text,
    "BINBYTES": _Machine.given,
    "SHORT_BINBYTES": _Machine.given,
    "BINBYTES8": _Machine.given,
}
"""What every opcode does to the stack; others than these have no place in a state dict."""

"""How kernels call each other: where they are, and not a copy of their machine code in each caller.

Numba puts what a kernel calls into it, with all that this calls in turn, and has LLVM improve the
whole: seven tenths of all machine code were copies. LLVM takes only small functions into those that
call them; what is larger it calls, and for that the address is enough.

Half of the rest were ways in from Python, which numba gives to each: most are never called from
there.
"""

from collections import defaultdict
from collections.abc import Callable
from copy import copy
from typing import Any, Final, NamedTuple

from llvmlite import binding
from numba import types
from numba.core import sigutils
from numba.core.caching import CompileResultCacheImpl

LARGEST_COPIED: Final = 100
"""LLVM's instructions, beyond the number of arguments. What has more is called; already of fifty
LLVM seldom takes any in."""


class Call(NamedTuple):
    """A kernel, for one kind of arguments, that another one's machine code calls."""

    module: str
    name: str
    arguments: tuple[types.Type, ...]
    symbol: str
    """Under which the machine code of the other finds it."""


_there: Final[dict[str, Call]] = {}
"""Symbol → what this process has under it."""

_called: Final[dict[tuple[str, str], "list[_Called]"]] = defaultdict(list)
"""Module and name → the kernels that are called so."""


def call_apart(kernel: Any, called: Any, name_of: Callable[[tuple[types.Type, ...]], str]) -> None:
    """Have kernels call one through a dispatcher of its own.

    Args:
        kernel: numba's dispatcher, for calls from Python.
        called: another one of the same function, for calls from kernels; `kernel.called` from now.
        name_of: how its machine code for some arguments is called, in the same way in each process
            that has the same sources: the symbol, as well.
    """
    kernel.called = called
    # One that calls itself is found to be under way, whoever called it first.
    called._compiling_counter = kernel._compiling_counter  # noqa: SLF001
    apart = _Called(called, name_of)
    kernel.get_call_template, kernel.get_overload = apart.get_call_template, apart.get_overload


class _Called:
    """One kernel, as others call it."""

    def __init__(self, kernel: Any, name_of: Callable[[tuple[types.Type, ...]], str]) -> None:
        self._kernel, self._name_of = kernel, name_of
        self._add = kernel.add_overload
        kernel.add_overload = self._add_overload
        self._keys: dict[tuple[types.Type, ...], object] = {}
        _called[kernel.__module__, kernel.__qualname__].append(self)

    def get_call_template(self, args: tuple[types.Type, ...], kws: dict[str, types.Type]) -> object:
        """What numba asks for to type a call: whole numbers are handed over as 64 bits.

        Else a kernel is compiled once more for each constant, and for numbers of 32 bits.
        """
        wide = {name: _widest(kind) for name, kind in kws.items()}
        return self._kernel.get_call_template(tuple(map(_widest, args)), wide)

    def get_overload(self, signature: object) -> object:
        """Under what numba looks for how to call it."""
        arguments, _ = sigutils.normalize_signature(signature)
        return self._keys.get(tuple(arguments)) or self._kernel.get_overload(signature)

    def find(self, call: Call) -> bool:
        """Whether this is the kernel of a call, which is there then."""
        if self._name_of(call.arguments) != call.symbol:
            return False
        self._kernel.compile(call.arguments)
        return call.symbol in _there

    def _add_overload(self, result: Any) -> None:
        """Note what was compiled or loaded, as numba does; what is large gets a symbol."""
        self._add(result)
        kernel, library, described = self._kernel, result.library, copy(result.fndesc)
        own_name, arguments = described.llvm_func_name, tuple(result.signature.args)
        if not hasattr(library, "called_as"):
            is_large = _size(library.get_function(own_name)) > LARGEST_COPIED
            library.called_as = self._name_of(arguments) if is_large else ""
        if symbol := library.called_as:
            described.mangled_name = symbol
            binding.add_symbol(symbol, library.get_pointer_to_function(own_name))
            _there[symbol] = Call(kernel.__module__, kernel.__qualname__, arguments, symbol)
            key = self._keys[arguments] = object()
            # Without its library, which would be linked into whatever calls it.
            kernel.targetctx.insert_user_function(key, described)


def _widest(kind: types.Type) -> types.Type:
    kind = types.unliteral(kind)
    return types.int64 if kind in types.signed_domain else kind


def _size(function: Any) -> int:
    """As LLVM reckons: what hands the arguments over is spared where a function is taken in."""
    instructions = sum(1 for block in function.blocks for _ in block.instructions)
    return instructions - sum(1 for _ in function.arguments)


class LinkedCode(CompileResultCacheImpl):  # type: ignore[misc]  # numba is untyped
    """What is kept of a kernel that was compiled: with it, whom it calls by symbols.

    LLVM ends the process where it looks for a symbol in vain.
    """

    def reduce(self, result: Any) -> tuple[str, list[Call], Any]:
        """What to keep."""
        names = {function.name for function in result.library._final_module.functions}  # noqa: SLF001
        calls = [_there[name] for name in sorted(names & _there.keys())]
        (name, kind, (code, bitcode)), *rest = super().reduce(result)
        called_as = getattr(result.library, "called_as", None)
        # Only what is copied into others need be there as LLVM reads it.
        own = [result.fndesc.llvm_func_name, result.fndesc.llvm_cpython_wrapper_name]
        kept = bitcode if called_as == "" else _only_names(own[: 2 if called_as is None else 1])
        return called_as or "", calls, ((name, kind, (code, kept)), *rest)

    def rebuild(self, target_context: Any, payload: tuple[str, list[Call], Any]) -> Any:
        """What was kept; None: something that it calls is another one by now."""
        called_as, calls, kept = payload
        if not all(call.symbol in _there or _find(call) for call in calls):
            return None
        result = super().rebuild(target_context, kept)
        result.library.called_as = called_as
        return result


def _only_names(names: list[str]) -> Any:
    """A module for LLVM that says what is there, for numba."""
    lines = "".join(f'define void @"{name}"() {{\n ret void\n}}\n' for name in names)
    return binding.parse_assembly(lines).as_bitcode()


def _find(call: Call) -> bool:
    return any(kernel.find(call) for kernel in _called[call.module, call.name])

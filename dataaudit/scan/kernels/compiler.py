"""Numba's compiler, spared the work that kernels do not need: half of its time, and the same machine results.

- The type of a call is found once for each function and its types of arguments; numba finds it anew at every call.
- A literal argument of a helper has the type of any other number: a helper is compiled once, not for each literal.
- A helper only becomes part of kernels. Numba optimises it as a program of its own, too, and makes machine code of it
  that nobody runs. Here it is optimised within the kernels that call it.

Numba documents pipelines for others to arrange; of types and libraries it promises nothing. So this module is used with
the versions that it was tried with (:mod:`dataaudit.scan.kernels.jit`), and with others numba compiles as it does.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager
from numba.core.types import Dispatcher
from numba.core.types.misc import unliteral
from numba.core.typing import Context


class KernelCompiler(CompilerBase):
    """Compiles a kernel, or a helper as a part of kernels."""

    def define_pipelines(self) -> list[PassManager]:
        """Return numba's own passes; it calls this once for each function and types of arguments."""
        state = self.state
        state.typingctx = _Types.of(state.typingctx)
        if state.flags.no_cpython_wrapper:
            state.library = _HelperCode(state.targetctx.codegen(), state.func_id.func_qualname)
            state.library.enable_object_caching()
        return [DefaultPassBuilder.define_nopython_pipeline(state)]


class _Types(Context):
    """Numba's types of functions; those of a call are remembered."""

    @classmethod
    def of(cls, context: Context) -> _Types:
        """Return a context that shares all that another knows."""
        shared = cls.__new__(cls)
        shared.__dict__ = context.__dict__
        return shared

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        """Return the signature of a call, or None; of a helper for numbers instead of literals."""
        if isinstance(func, Dispatcher):
            return super().resolve_function_type(func, tuple(map(unliteral, args)), kws)
        key = func, tuple(args), tuple(dict(kws).items())
        try:
            signature = _SIGNATURES.get(key)
        except TypeError:  # a type without a hash
            return super().resolve_function_type(func, args, kws)
        if signature is None and (signature := super().resolve_function_type(func, args, kws)) is not None:
            _SIGNATURES[key] = signature
        return signature


_SIGNATURES: dict[Any, Any] = {}
"""By function and types of arguments."""


class _HelperCode(JITCodeLibrary):
    """The code of a helper, neither optimised by itself nor made machine code."""

    codegen = SimpleNamespace(set_env=lambda *_: None)
    """Stands for the engine, which does not know this code."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return no address: other code contains this."""
        del name
        return 0

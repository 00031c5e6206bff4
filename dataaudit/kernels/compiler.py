"""Numba's compiler, spared the work that kernels do not need: half of its time, and the same machine results.

- The type of a call is found once for each function and its types of arguments; numba finds it anew at every call.
- A literal argument of a helper has the type of any other number: a helper is compiled once, not for each literal.
- A helper only becomes part of kernels. Numba optimises it as a program of its own, too, and makes machine code of it
  that nobody runs. Here it is optimised within the kernels that call it.

Numba documents pipelines for others to arrange; of types and libraries it promises nothing. So this module is used with
the versions that it was tried with (:mod:`dataaudit.kernels.jit`), and with others numba compiles as it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.types import Dispatcher
from numba.core.types.functions import BaseFunction
from numba.core.types.misc import unliteral
from numba.extending import models, register_model


class CalledKernel(Dispatcher):
    """The type of a kernel that another one calls."""

    def get_call_type(self, context: Any, args: Sequence[Any], kws: Mapping[str, Any]) -> Any:
        """Return the signature of a call, compiled for numbers where it has literals."""
        return super().get_call_type(context, tuple(map(unliteral, args)), kws)


register_model(CalledKernel)(models.OpaqueModel)


class _HelperCode(JITCodeLibrary):  # type: ignore[misc] # numba has no types here
    """The code of a helper, neither optimised by itself nor made machine code."""

    codegen = SimpleNamespace(set_env=lambda *_: None)
    """Stands for the engine, which does not know this code."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return no address: only other code contains this one."""
        del name
        return 0


class KernelCompiler(CompilerBase):  # type: ignore[misc]
    """Compiles a kernel, or a helper as a part of kernels."""

    def define_pipelines(self) -> list[PassManager]:
        """Return numba's own passes; it calls this once for each function and types of arguments."""
        state = self.state
        if state.flags.no_cpython_wrapper:
            state.library = _HelperCode(state.targetctx.codegen(), state.func_id.func_qualname)
            state.library.enable_object_caching()
        return [DefaultPassBuilder.define_nopython_pipeline(state)]


OPTIONS = {"pipeline_class": KernelCompiler}
"""Of numba's decorator."""
_TYPED: dict[Any, Any] = {}
"""By function and types of arguments: the function, so that it is not another one later, and the signature."""


@contextmanager
def calls_typed_once() -> Iterator[None]:
    """Remember the types of calls of numba's own functions while a kernel is compiled."""

    def remembered(self: Any, context: Any, args: Any, kws: Any) -> Any:
        key = id(self), tuple(args), tuple(dict(kws).items())
        try:
            known = _TYPED.get(key)
        except TypeError:  # a type without a hash
            return plain(self, context, args, kws)
        if known is None and (signature := plain(self, context, args, kws)) is not None:
            known = _TYPED[key] = self, signature
        return known and known[1]

    with global_compiler_lock:
        plain = BaseFunction.get_call_type
        BaseFunction.get_call_type = remembered  # type: ignore[method-assign]
        try:
            yield
        finally:
            BaseFunction.get_call_type = plain  # type: ignore[method-assign]

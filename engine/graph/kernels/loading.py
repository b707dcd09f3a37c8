"""Loads compiled kernels with undocumented parts of numba, and replaces some of these parts by faster ones.

numba reads all LLVM code of a kernel that it loads.  This code is needed only when another kernel is compiled that
calls the loaded one; otherwise its machine code suffices.  So this module delays reading LLVM code (decision 241).
"""

# numba's own classes have no types
# mypy: disable-error-code="no-untyped-call, attr-defined"

from __future__ import annotations

import inspect
import re
from functools import cache
from typing import Any, Final

import numba

#: The last version of numba whose undocumented parts were compared with this module.
TESTED: Final = (0, 68)
#: The undocumented parts of numba that are used: for functions their parameters, for other parts the names of fields.
PARTS: Final = {
    "core.caching.CompileResultCacheImpl": ("py_func",),
    "core.caching._CacheLocator.get_cache_path": ("self",),
    "core.compiler.CompileResult._reduce": ("self",),
    "core.compiler.CompileResult._rebuild": (
        *("target_context", "libdata", "fndesc", "env", "signature", "objectmode", "lifted", "typeann", "reload_init"),
        "referenced_envs",
    ),
    "core.compiler.CompileResult._fields": (
        *("typing_context", "target_context", "entry_point", "typing_error", "type_annotation", "signature"),
        *("objectmode", "lifted", "fndesc", "library", "call_helper", "environment", "metadata", "reload_init"),
        "referenced_envs",
    ),
    "core.codegen.CPUCodegen.create_library": ("self", "name", "kwargs"),
    "core.codegen.CPUCodeLibrary._unserialize": ("codegen", "state"),
    "core.codegen.CPUCodeLibrary._get_module_for_linking": ("self",),
    "core.codegen.CPUCodeLibrary._finalize_final_module": ("self",),
    "core.codegen.CodeLibrary.enable_object_caching": ("self",),
    "core.codegen.CodeLibrary._set_compiled_object": ("self", "value"),
    "core.codegen.JitEngine._load_defined_symbols": ("self", "mod"),
    "core.codegen.JitEngine.is_symbol_defined": ("self", "name"),
    "core.codegen.JITCPUCodegen.set_env": ("self", "env_name", "env"),
    "core.cpu.CPUContext.get_executable": ("self", "library", "fndesc", "env"),
    "core.serialize.dumps": ("obj",),
    "core.environment.Environment._memo": None,
    "core.environment.lookup_environment": ("env_name",),
    "core.environment._rebuild_env": ("modname", "consts", "env_name"),
    "core.runtime.rtsys.initialize": ("ctx",),
    "core.runtime._nrt_python.c_helpers": None,
    "core.cpu.CPUContext.load_additional_registries": ("self",),
    "core.dispatcher.Dispatcher.compile": ("self", "sig"),
    "core.dispatcher.Dispatcher.get_call_template": ("self", "args", "kws"),
    "core.types.unliteral": ("lit_type",),
    "core.dispatcher.Dispatcher._compilation_chain_init_hook": ("self",),
    "core.codegen.CPUCodegen.magic_tuple": ("self",),
}


def is_known(version: str = numba.__version__) -> bool:
    """Return whether numba still has the parts that this module replaces, with the parameters in ``PARTS``.

    Args:
        version: the version of numba.
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) > TESTED:
        return False
    from numba.core import caching, codegen, compiler, dispatcher, environment, runtime, serialize  # noqa: F401

    for path, parameters in PARTS.items():
        part: Any = numba
        for name in path.split("."):
            part = getattr(part, name, None)
        if callable(part) and parameters is not None:
            part = tuple(inspect.signature(part).parameters)
        if part is None or (parameters is not None and part != parameters):
            return False
    return True


@cache
def know_runtime() -> None:
    """Register the addresses of the functions of numba's runtime with LLVM.

    numba does this with ``rtsys.initialize`` before it compiles a kernel.  That function also compiles helpers that
    call the runtime; the machine code of a compiled kernel already contains them.
    """
    from llvmlite import binding
    from numba.core.runtime import _nrt_python

    for name, address in _nrt_python.c_helpers.items():
        binding.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


def defined(module: Any) -> list[str]:
    """Return the names of the functions and variables that an LLVM module defines."""
    return [one.name for some in (module.functions, module.global_variables) for one in some if not one.is_declaration]


def rebuilt(target: Any, form: tuple[Any, ...], names: list[str]) -> Any:
    """Return the result of numba's compiler from its saved form, without reading its LLVM code.

    ``CompileResult._rebuild`` does the same, but reads all of this code.

    Args:
        target: numba's description of the machine.
        form: the value that ``CompileResult._reduce`` returned.
        names: the names that the kernel's LLVM code defines; numba looks for no other names in the object code.
    """
    from numba.core import compiler

    result: Any = compiler.CompileResult
    saved, description, environment, signature, objects, lifted, annotation, begin, environments = form
    for function in begin or ():
        function()
    library = _library(target.codegen(), saved)
    library.codegen._engine._defined_symbols.update(names)
    entry = target.get_executable(library, description, environment)
    for one in environments:
        library.codegen.set_env(one.env_name, one)
    return result(
        typing_context=target.typing_context, target_context=target, library=library, environment=environment,
        entry_point=entry, fndesc=description, type_annotation=annotation, signature=signature, objectmode=objects,
        lifted=lifted, typing_error=None, call_helper=None, metadata=None, reload_init=begin,
        referenced_envs=environments,
    )  # fmt: skip


def _library(codegen: Any, saved: tuple[Any, ...]) -> Any:
    """Return numba's library of a kernel; its LLVM code is read only when another kernel that calls it is compiled.

    Args:
        codegen: numba's code generator.
        saved: the value that ``serialize_using_object_code`` returned.
    """
    from llvmlite import binding

    name, kind, data = saved
    if kind != "object":
        return codegen.unserialize_library(saved)
    library = codegen.create_library(name)
    library.enable_object_caching()
    library._set_compiled_object(data[0])
    library._finalize_final_module()

    def linked() -> Any:
        if library._shared_module is None:
            library._shared_module = binding.parse_bitcode(data[1])
        return library._shared_module

    library._get_module_for_linking = linked
    return library

"""Other libraries' interfaces over moeway, for programs that were written for them. docs/compat.md says what differs.

    from moeway.compat import deep_ep                 instead of   import deep_ep
    from moeway.compat import pplx_kernels            instead of   import pplx_kernels

or, where the import is not yours to change, before it happens:

    moeway.compat.install("deep_ep")
"""

from __future__ import annotations

import importlib
import sys

from moeway.errors import InvalidArgumentError

__all__ = ["install"]

# Modules of the original, and where their names are here.
_MODULES = {
    "deep_ep": {"deep_ep": "deep_ep", "deep_ep.buffer": "deep_ep.buffer", "deep_ep.utils": "deep_ep.events"},
    "pplx_kernels": {"pplx_kernels": "pplx_kernels", "pplx_kernels.all_to_all": "pplx_kernels.all_to_all",
                     "pplx_kernels.nvshmem": "pplx_kernels.nvshmem"},
}


def install(name: str) -> None:
    """Makes `import deep_ep` or `import pplx_kernels` find the one of this package, in this process.

    Raises InvalidArgumentError for another name, or if the original is imported already.
    """
    if name not in _MODULES:
        raise InvalidArgumentError(f"name is {name!r}, expected {' or '.join(_MODULES)}")
    ours = {original: importlib.import_module(f"moeway.compat.{here}") for original, here in _MODULES[name].items()}
    if sys.modules.get(name, ours[name]) is not ours[name]:
        raise InvalidArgumentError(f"{name} has been imported already, from elsewhere")
    sys.modules.update(ours)

"""Files with which vendors' tools integrate the accelerator into a larger design."""

from .ipxact import ipxact_files
from .nitefury import nitefury_files
from .vivado import vivado_files
from .xrt import xrt_files

FILES = {"ipxact": ipxact_files, "nitefury": nitefury_files, "vivado": vivado_files,
         "xrt": xrt_files}

__all__ = ["FILES"]

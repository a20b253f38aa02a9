"""What the build adds to the package: its description, and the compiled library in the wheel."""

import re
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


class Description(MetadataHookInterface):
    """Sets `readme`: README.md without what only a checkout has."""

    def update(self, metadata):
        text = Path(self.root, "README.md").read_text()
        text = re.sub(r"^!\[[^]]*\]\([^)]*\)\n\n", "", text, flags=re.M)  # pictures
        text = re.sub(r"\[([^]]*)\]\((?!https:)[^)]*\)", r"\1", text)  # links to files
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class Library(BuildHookInterface):
    """Compiles the library into a wheel, unless it is editable or no compiler is there."""

    def initialize(self, version, build_data):
        if version == "editable":
            return
        package = ModuleType("hotrow")  # without __init__.py, which needs NumPy
        package.__path__ = [str(Path(self.root, "sw_driver", "hotrow"))]
        sys.modules["hotrow"] = package
        from hotrow.contract.errors import Error
        from hotrow.kernels import native
        self._folder = tempfile.TemporaryDirectory()
        try:
            built = native.ship(Path(self._folder.name))
        except Error as error:
            self.app.display_warning(f"The wheel is without the compiled library: {error}")
            return
        for path in built:
            build_data["force_include"][str(path)] = f"hotrow/kernels/lib/{path.name}"
        build_data["pure_python"] = False
        platform = re.sub(r"[^a-z0-9]", "_", sysconfig.get_platform().lower())
        build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version, build_data, artifact_path):
        if hasattr(self, "_folder"):
            self._folder.cleanup()

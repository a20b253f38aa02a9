"""The description of the package on its index: README.md without what only a checkout has."""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Description(MetadataHookInterface):
    """Sets `readme`."""

    def update(self, metadata):
        text = Path(self.root, "README.md").read_text()
        text = re.sub(r"^!\[[^]]*\]\([^)]*\)\n\n", "", text, flags=re.M)  # pictures
        text = re.sub(r"\[([^]]*)\]\((?!https:)[^)]*\)", r"\1", text)  # links to files
        metadata["readme"] = {"content-type": "text/markdown", "text": text}

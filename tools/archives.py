"""Archives with tar, unpacked with what each supported Python has to keep their names inside the folder."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive, compressed or not, into a folder.

    Python has had the filter for data since 3.11.4; one without it unpacks as it always did. Raises
    tarfile.TarError and OSError.
    """
    with tarfile.open(archive) as packed:
        data = getattr(tarfile, "data_filter", None)
        if data is not None:
            packed.extraction_filter = data
        packed.extractall(folder)

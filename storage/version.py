"""The version of the software, for the package, stores and pages: Python is slow to read the metadata of a package."""

from typing import Final

#: The build of the package (``pyproject.toml``) reads it, too.
VERSION: Final = "0.1.0"

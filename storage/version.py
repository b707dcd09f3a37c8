"""The version of the software, for the package, stores and pages.  It is a constant because reading it from the
package's metadata takes long.
"""

from typing import Final

#: The version; the build of the package (``pyproject.toml``) reads it, too.
VERSION: Final = "0.1.0"

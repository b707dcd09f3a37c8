"""``apsp serve``."""

from __future__ import annotations

from pathlib import Path

from service.serve import serve as run_service
from service.settings import Settings


def serve(*, host: str | None, port: int | None, data_dir: Path | None) -> None:
    """Run the service until it is told to stop; what is None comes from the environment or the defaults."""
    run_service(Settings.load(host=host, port=port, data_dir=data_dir))

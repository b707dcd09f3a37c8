"""``apsp serve``."""

from __future__ import annotations

from pathlib import Path

from service.serve import serve as run_service
from service.settings import Settings


def serve(*, host: str, port: int, data_dir: Path) -> None:
    """Run the service until it is told to stop."""
    run_service(Settings(host=host, port=port, data_dir=data_dir))

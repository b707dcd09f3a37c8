"""An error that no reader foresaw is not told as a refusal here."""

from tests.readers_net import by_columns, no_net

__all__ = ["by_columns", "no_net"]

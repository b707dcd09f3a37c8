"""An error that no reader foresaw is not told as a refusal here."""

from tests.readers_net import no_net

__all__ = ["no_net"]

"""Chance: the only place that draws random numbers; one seed, one stream per name.

Streams are independent: drawing more from one never shifts another, so adding a part to a node
does not change what the others do.
"""

from __future__ import annotations

import hashlib
import random
import uuid


class Chance:
    """Seeded streams of random numbers, by name."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[str, random.Random] = {}

    def stream(self, name: str) -> random.Random:
        """The stream called `name`, the same for the same seed and name."""
        if name not in self._streams:
            digest = hashlib.sha256(f"{self.seed}:{name}".encode()).digest()
            self._streams[name] = random.Random(int.from_bytes(digest[:8], "big"))
        return self._streams[name]

    def uid(self, name: str) -> str:
        """A version-4 UUID text drawn from the stream `name`."""
        return str(uuid.UUID(int=self.stream(name).getrandbits(128), version=4))

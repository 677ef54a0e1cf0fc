"""Memory for models: that of the CPU, and that of all GPUs together."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of the CPU's memory and of the GPUs' own."""

    ram: int = 0
    vram: int = 0

    def __add__(self, other: "Memory") -> "Memory":
        return Memory(self.ram + other.ram, self.vram + other.vram)

    def __sub__(self, other: "Memory") -> "Memory":
        """The rest, at least 0 each."""
        return Memory(max(0, self.ram - other.ram), max(0, self.vram - other.vram))

    def fits(self, limit: "Memory") -> bool:
        """Whether both are at most those of `limit`."""
        return self.ram <= limit.ram and self.vram <= limit.vram

"""The aliases of the settings: one name for several models."""

import random
import secrets
from collections.abc import Iterator, Mapping, Sequence

from shepherd.config.server import AliasTargets


class Aliases:
    """The models behind each alias."""

    def __init__(
        self, table: Mapping[str, AliasTargets], source: random.Random | None = None
    ) -> None:
        """`source` decides between models with weights."""
        self._table = table
        self._source = source or secrets.SystemRandom()

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def targets(self, alias: str) -> Sequence[str]:
        """The models of an alias, in the order of the settings."""
        targets = self._table[alias]
        return [targets] if isinstance(targets, str) else [*targets]

    def order(self, alias: str) -> Sequence[str]:
        """The order in which the models are tried; one with weights is drawn anew each time."""
        targets = self._table[alias]
        if not isinstance(targets, dict):
            return self.targets(alias)
        draws = {name: self._source.random() ** (1 / weight) for name, weight in targets.items()}
        return sorted(targets, key=lambda name: draws[name], reverse=True)

"""Who asks, and what of all that callers made is theirs to see and to change? Their owner's; to an admin everything."""

from dataclasses import dataclass

TEAM = "team"
"""Owner of what is made where callers are not told apart: without keys, and by keys that name no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Somebody who was let in."""

    id: str = ""
    """Public part of the key, or subject of the token; empty where the service asks for none."""
    owner: str = TEAM
    """Whose is what they make."""
    sees_all: bool = False
    """Whether what others own is theirs to see and to change too."""

    is_shared: bool = False
    """Whether its workers take the jobs of every owner, whatever its own: so do those with a token."""

    @property
    def works_for(self) -> str | None:
        """Owner whose jobs alone its workers take; None for those of every owner."""
        return None if self.sees_all or self.is_shared or self.owner == TEAM else self.owner

    @property
    def whose(self) -> str | None:
        """Owner of all that they see and may change; None for whoever it belongs to."""
        return None if self.sees_all else self.owner

    @property
    def own(self) -> str | None:
        """Owner of what counts as theirs where they name nothing; None where callers are not told apart."""
        return None if self == ANYBODY else self.owner

    def reaches(self, owner: str) -> bool:
        """Whether something is theirs to see and to change.

        Args:
            owner: whose it is

        Returns:
            true where it is; to everybody else it is as if it were not there

        >>> Caller(owner="a").reaches("b"), Caller(owner="b").reaches("b"), Caller(sees_all=True).reaches("b")
        (False, True, True)
        """
        return self.sees_all or owner == self.owner


ANYBODY = Caller(sees_all=True)
"""Whoever asks a service that asks for no keys."""

"""What a clear is about: everything in a tier, or what is of one model, of one tenant, or of both.

Threading: values only.
"""

from dataclasses import dataclass
from typing import Final, final

from blockyard.core.vocabulary import IdentityDigest, TenantDigest


@final
@dataclass(frozen=True, slots=True)
class ClearScope:
    """Blocks in scope; a field that is None does not narrow it."""

    identity: IdentityDigest | None = None
    tenant: TenantDigest | None = None

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left out."""
        return self.identity is None and self.tenant is None

    def covers(self, identity: IdentityDigest, tenant: TenantDigest) -> bool:
        """Whether blocks of this model and tenant are in scope."""
        return self.identity in (None, identity) and self.tenant in (None, tenant)


EVERYTHING: Final = ClearScope()

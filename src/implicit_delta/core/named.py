"""Base of configurations with a lower-case name, such as `cholesky`."""

from dataclasses import MISSING, fields, replace
from typing import Any, ClassVar, Self


class Named:
    """A frozen dataclass whose default instance carries its lower-case ``name``.

    The instance is used as it is (``solver=cholesky``) or called to change fields
    (``solver=conjugate_gradient(rtol=1e-4)``); its repr is the code that makes it.
    """

    name: ClassVar[str]

    def __call__(self, **changes: Any) -> Self:
        """Return the same configuration with some fields changed."""
        return replace(self, **changes)  # type: ignore[type-var]

    def __repr__(self) -> str:
        """Return the code that makes this configuration."""
        changed = changed_fields(self)
        return f"{self.name}({changed})" if changed else self.name


def changed_fields(configuration: Any) -> str:
    """Write the fields of a dataclass that differ from their defaults, as in a call."""
    return ", ".join(
        f"{field.name}={getattr(configuration, field.name)!r}"
        for field in fields(configuration)
        if field.default is MISSING or getattr(configuration, field.name) != field.default
    )

"""Likelihood-ratio intervals: the door, the path along growing regions, the surface of one."""

from implicit_delta.inference.profile.door import profile
from implicit_delta.inference.profile.result import Profile

__all__ = ["Profile", "profile"]

"""Estimates: a value with its covariance, and the intervals, tests, tables and plots of it."""

from implicit_delta.estimate.diagnostics import Diagnostics
from implicit_delta.estimate.estimate import Estimate, Influential, Interval, WaldTest

__all__ = ["Diagnostics", "Estimate", "Influential", "Interval", "WaldTest"]

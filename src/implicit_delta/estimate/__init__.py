"""Estimates: a value with its covariance, and the intervals, tests, tables and plots of it."""

from implicit_delta.estimate.algebra import join
from implicit_delta.estimate.diagnostics import Diagnostics
from implicit_delta.estimate.estimate import Estimate
from implicit_delta.estimate.influential import Influential
from implicit_delta.estimate.results import Interval, WaldTest
from implicit_delta.estimate.rows import Rows

__all__ = ["Diagnostics", "Estimate", "Influential", "Interval", "Rows", "WaldTest", "join"]

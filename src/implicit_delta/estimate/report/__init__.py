"""A page to show: one self-contained HTML file of an estimate."""

from implicit_delta.estimate.report.opinions import Opinion
from implicit_delta.estimate.report.page import write_page

__all__ = ["Opinion", "write_page"]

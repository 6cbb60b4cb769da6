"""Pages: one HTML file that shows what a model has learned, and works without a network."""

from nearfar.report.origin import Origin
from nearfar.report.write import Report, explore, write_report

__all__ = ["Origin", "Report", "explore", "write_report"]

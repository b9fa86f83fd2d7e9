"""Runs as a page that people read: ``ssp report`` writes it, ``ssp view`` serves it. See
docs/report.md."""

"""Runs as a page: ``ssp report`` writes it, ``ssp view`` serves it (docs/report.md)."""

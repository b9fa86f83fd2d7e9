"""The policy wiki-small, and its demonstrations; `benchmarks/wiki_small.py` trained it on these."""

"""The search server: Search-R1's protocol over any retriever (extra ``serve``).

:mod:`.config` holds the settings, :mod:`.app` is the FastAPI application, :mod:`.batcher` joins
requests into backend calls, :mod:`.run` is a server process."""

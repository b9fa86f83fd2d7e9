"""The search server: Search-R1's protocol over any retriever (extra ``serve``).

:mod:`.config` holds the settings, :mod:`.wire` the protocol, :mod:`.batcher` joins requests into
backend calls, :mod:`.app` is the ASGI application, :mod:`.run` a server process, :mod:`.ray_serve`
replicas on a Ray cluster."""

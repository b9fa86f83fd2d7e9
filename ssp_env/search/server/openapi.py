"""The OpenAPI document of the server, written by hand; the tests hold it against the running
server."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from ssp_env.search.server.config import ServerConfig

JSON = dict[str, Any]


def openapi(config: ServerConfig) -> JSON:
    """The document: every path, every status that it can answer with, and every limit."""
    paths = {
        "/retrieve": {"post": _retrieve(config)},
        "/status": {"get": _get("Search-R1's sign of life", _json("ok", {"const": "ok"}), config)},
        "/healthz": {"get": _probe("Whether the process answers")},
        "/readyz": {"get": _readyz()},
        "/metrics": {"get": _get("Prometheus' metrics", _text("the metrics"), config)},
        "/openapi.json": {
            "get": _get("This document", _json("the document", {"type": "object"}), config)
        },
    }
    document: JSON = {
        "openapi": "3.1.0",
        "info": {
            "title": "ssp search server",
            "version": version("ssp-env"),
            "description": "Search-R1's retrieval protocol: ranked passages for queries.",
        },
        "paths": paths,
        "components": {"schemas": _schemas(config)},
    }
    if config.token is not None:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def _retrieve(config: ServerConfig) -> JSON:
    responses = {
        "200": _json(
            "One ranking a query, in order; a query that matches nothing has an empty one. With "
            "scores, a ranking's "
            "entries hold a document and its score, otherwise they are documents.",
            {"$ref": "#/components/schemas/Result"},
        ),
        "400": _error("The body is not JSON in UTF-8 (bad_json)."),
        "408": _error("The body did not arrive in time (body_too_slow)."),
        "413": _error("The body is larger than the limit (body_too_large)."),
        "415": _error("The Content-Type is not application/json (not_json)."),
        "422": _error("The JSON has not the shape of a request, or exceeds a limit (bad_request)."),
        "500": _error("The search failed for this request (search_failed)."),
        "503": _busy(
            "Try again: the index is not loaded yet (not_ready), too much is waiting "
            "(queue_full), or what the "
            "search needs is out (search_unavailable)."
        ),
        "504": _error("The search took too long (too_late)."),
    }
    body = {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Query"}}},
    }
    return {
        "operationId": "retrieve",
        "summary": "Ranked passages for queries",
        "requestBody": body,
        "responses": responses | _unauthorized(config),
    }


def _readyz() -> JSON:
    operation = _probe(
        "Whether requests are welcome: the index is loaded, and nobody asked to stop"
    )
    operation["responses"]["503"] = _busy("Not ready (not_ready) or stopping (stopping).")
    return operation


def _get(summary: str, ok: JSON, config: ServerConfig) -> JSON:
    return {"summary": summary, "responses": {"200": ok} | _unauthorized(config)}


def _probe(summary: str) -> JSON:
    """Open to all, token or not."""
    return {"summary": summary, "responses": {"200": _text("ok")}, "security": []}


def _unauthorized(config: ServerConfig) -> JSON:
    if config.token is None:
        return {}
    answer = _error("No token, or a wrong one (unauthorized).")
    answer["headers"] = {"WWW-Authenticate": {"required": True, "schema": {"const": "Bearer"}}}
    return {"401": answer}


def _busy(description: str) -> JSON:
    answer = _error(description)
    seconds = {"type": "integer", "minimum": 0}
    answer["headers"] = {
        "Retry-After": {"description": "Seconds to wait.", "required": True, "schema": seconds}
    }
    return answer


def _error(description: str) -> JSON:
    return _json(description, {"$ref": "#/components/schemas/Error"})


def _json(description: str, schema: JSON) -> JSON:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _text(description: str) -> JSON:
    return {"description": description, "content": {"text/plain": {"schema": {"type": "string"}}}}


def _schemas(config: ServerConfig) -> JSON:
    document = {
        "type": "object",
        "required": ["id", "contents"],
        "properties": {
            "id": {"type": "string"},
            "contents": {
                "type": "string",
                "description": "The title in double quotes, a line break, the text.",
            },
        },
        "additionalProperties": False,
    }
    scored = {
        "type": "object",
        "required": ["document", "score"],
        "properties": {
            "document": {"$ref": "#/components/schemas/Document"},
            "score": {"type": "number"},
        },
        "additionalProperties": False,
    }
    return {
        "Query": _query(config),
        "Document": document,
        "ScoredDocument": scored,
        "Result": {
            "type": "object",
            "required": ["result"],
            "properties": {
                "result": {
                    "anyOf": [_rankings("Document", config), _rankings("ScoredDocument", config)]
                }
            },
            "additionalProperties": False,
        },
        "Error": _error_schema(),
    }


def _query(config: ServerConfig) -> JSON:
    return {
        "type": "object",
        "required": ["queries"],
        "properties": {
            "queries": {
                "type": "array",
                "maxItems": config.max_queries,
                "items": {"type": "string", "maxLength": config.max_query_length},
            },
            "topk": {
                "type": ["integer", "null"],
                "minimum": 1,
                "maximum": config.max_k,
                "description": f"Documents a query; {config.default_k} if missing or null.",
            },
            "return_scores": {
                "type": ["boolean", "null"],
                "description": "False if missing or null.",
            },
        },
    }


def _rankings(entry: str, config: ServerConfig) -> JSON:
    ranking = {
        "type": "array",
        "maxItems": config.max_k,
        "items": {"$ref": f"#/components/schemas/{entry}"},
    }
    return {"type": "array", "maxItems": config.max_queries, "items": ranking}


def _error_schema() -> JSON:
    error = {
        "type": "object",
        "required": ["code", "message"],
        "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "required": ["error"],
        "properties": {"error": error},
        "additionalProperties": False,
    }

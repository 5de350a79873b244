"""The page /docs, which describes the API and loads nothing from other servers, as FastAPI's own would."""

import json
from html import escape
from typing import Any

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; color-scheme: light dark }
pre { overflow-x: auto; padding: .5rem; border: 1px solid color-mix(in srgb, currentColor 25%, transparent) }
table { border-collapse: collapse } td { padding: .1rem 1rem .1rem 0; vertical-align: top }
"""


def page(openapi: dict[str, Any]) -> str:
    """Return the page: the purpose and the fields of every route, and an example to paste into a terminal."""
    sections = [
        _section(path, method, operation)
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(openapi["info"]["title"])}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
        f"<h1>{escape(openapi['info']['title'])}</h1><p>{escape(openapi['info']['description'])} "
        f'<a href="openapi.json">openapi.json</a></p>{"".join(sections)}</html>'
    )


def _section(path: str, method: str, operation: dict[str, Any]) -> str:
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code>{'' if name in schema.get('required', ()) else ' (optional)'}</td>"
        f"<td>{escape(field.get('description', ''))}</td></tr>"
        for name, field in schema.get("properties", {}).items()
    )
    return (
        f"<h2>{method.upper()} <code>{escape(path)}</code></h2><p>{escape(operation.get('description', ''))}</p>"
        f"{f'<table>{rows}</table>' if rows else ''}<pre>{escape(_curl(path, schema.get('example')))}</pre>"
    )


def _curl(path: str, example: Any) -> str:
    if example is None:
        return f"curl http://127.0.0.1:8000{path}"
    body = json.dumps(example, ensure_ascii=False)
    return f"curl http://127.0.0.1:8000{path} -H 'Content-Type: application/json' \\\n  -d '{body}'"

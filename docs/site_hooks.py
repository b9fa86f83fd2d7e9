"""Pages of the site: the documents of the repository, what they link to, notebooks, the reference.

MkDocs calls :func:`on_config` and :func:`on_files`. Documents stay where GitHub shows them; what
they link to outside ``docs/`` becomes a page or a file of the site, which so needs no other
address. Pages that no link leads to are refused.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from ssp_env.cli import make_app

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
RECIPES = DOCS / "recipes"
DEMO = ROOT / "build" / "demo.html"
"""A run as ``ssp report`` writes it; ``make site`` makes it."""
TOP = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    ".github/SECURITY.md": "security.md",
}
"""Documents outside docs/, and their pages."""
SHOWN = {".py": "python", ".yaml": "yaml", ".txt": "text", "": "text"}
"""Linked files that become a page of code; others are copied."""
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(#[^)\s]+)?(?=\))")
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"
ANSI = re.compile(r"\x1b\[[\d;]*m")
"""Colours of a terminal."""
ROLE = re.compile(r":\w+:<code>~?([^<]+)</code>")

Content = str | bytes | Path
"""A file of the site: text, bytes, or where it is."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lists the pages of the reference in the navigation."""
    for pages in (pages for section in config.nav or () for pages in section.values()):
        if "reference" in pages:
            place = pages.index("reference")
            pages[place : place + 1] = [{title: api_page(title)} for title in config.extra["api"]]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds all that does not stand in docs/site."""
    made, known = api(config.extra["api"]), set(pages_in(config.nav))
    waiting = [ROOT / name for name in TOP]
    waiting += sorted([*DOCS.glob("*.md"), *RECIPES.glob("*.md"), *DOCS.glob("notebooks/*.ipynb")])
    while waiting:
        source = waiting.pop()
        page = page_of(source)
        if page in made:
            continue
        if not page.endswith(".md"):
            made[page] = source
            continue
        text, pictures = text_of(source)
        made |= {page: text, **pictures}
        if source.suffix not in SHOWN or source.is_dir():
            linked = {target(source, link[1]) for link in LINK.finditer(text)}
            made[page] = LINK.sub(lambda link, source=source: moved(source, link), text)
            waiting += linked
            known |= {page_of(each) for each in linked if each != source}

    if orphans := {page for page in made if page.endswith(".md")} - known:
        raise PluginError(f"no link leads to {', '.join(sorted(orphans))}")
    for name, content in made.items():
        how = "abs_src_path" if isinstance(content, Path) else "content"
        value = str(content) if isinstance(content, Path) else content
        files.append(File.generated(config, name, **{how: value}))
    return files


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Shows Sphinx's roles, as docstrings have them, as code."""
    return ROLE.sub(r"<code>\1</code>", html)


# -- documents ---------------------------------------------------------------------------------


def page_of(source: Path) -> str:
    """The page, or file, of the site that shows a file or folder of the repository."""
    name = source.relative_to(ROOT).as_posix()
    if name in TOP:
        return TOP[name]
    if source.is_dir():
        return f"{name}/index.md"
    if source.suffix == ".ipynb":
        return name.removeprefix("docs/").removesuffix("ipynb") + "md"
    if source.suffix == ".md":
        return name.removeprefix("docs/").replace("README.md", "index.md")
    return f"{name}.md" if source.suffix in SHOWN else name.removeprefix("docs/")


def target(source: Path, link: str) -> Path:
    """What a link of a document leads to."""
    folder = source if source.is_dir() else source.parent
    found = Path(os.path.normpath(folder / link))
    if not found.exists() or not found.is_relative_to(ROOT):
        raise PluginError(f"{source.relative_to(ROOT)}: there is no {link}")
    return found


def moved(source: Path, link: re.Match[str]) -> str:
    """The same link, between pages."""
    here, there = Path(page_of(source)).parent, page_of(target(source, link[1]))
    return Path(os.path.relpath(there, here)).as_posix() + (link[2] or "")


def text_of(source: Path) -> tuple[str, dict[str, Content]]:
    """A page's Markdown, with links as in the repository, and the pictures that belong to it."""
    if source.is_dir():
        inside = sorted(each for each in source.iterdir() if each.suffix != ".pyc")
        lines = [f"- [{each.name}]({each.name})" for each in inside if each.is_file()]
        return f"{UNSEARCHED}# {source.name}\n\n" + "\n".join(lines) + "\n", {}
    text = source.read_text(encoding="utf-8")
    if source.suffix == ".ipynb":
        return notebook(json.loads(text), page_of(source))
    if source.suffix == ".md":
        # What test_docs.py reads behind a language, Markdown's extension does not.
        text = re.sub(r"^```python .*$", "```python", text, flags=re.MULTILINE)
        own = source.parent in (ROOT, DOCS, RECIPES, ROOT / ".github")
        return text if own else UNSEARCHED + text, {}
    name = source.relative_to(ROOT)
    fence = "`" * 8
    return f"{UNSEARCHED}# {name}\n\n{fence}{SHOWN[source.suffix]}\n{text}{fence}\n", {}


def notebook(cells: dict[str, Any], page: str) -> tuple[str, dict[str, Content]]:
    """A notebook as Markdown, with its pictures."""
    parts: list[str] = []
    pictures: dict[str, Content] = {}
    for cell in cells["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                name = page.replace(".md", f"_{len(pictures)}.png")
                pictures[name] = base64.b64decode(data["image/png"])
                parts.append(f'<img alt="what this cell draws" src="{Path(name).name}">')
            elif shown := "".join(output.get("text", data.get("text/plain", ""))).rstrip():
                parts.append(f"```text\n{ANSI.sub('', shown)}\n```")
    return "\n\n".join(parts) + "\n", pictures


# -- what is written here ----------------------------------------------------------------------


def api_page(title: str) -> str:
    return f"reference/{title.lower().replace(' ', '_')}.md"


def api(sections: dict[str, list[str]]) -> dict[str, Content]:
    """Pages of the reference, of the commands, and of the run to look at."""
    pages: dict[str, Content] = {
        api_page(title): f"# {title}\n\n" + "".join(f"::: {name}\n\n" for name in modules)
        for title, modules in sections.items()
    }
    commands = make_app().generate_docs(heading_level=1, max_heading_level=3)
    return {
        **pages,
        "reference/commands.md": commands,
        "demo.md": "# A run to look at\n\n[Open the page](demo.html){ .md-button }\n\n"
        "`ssp report` wrote it, of ten steps of self-play (`make site`). "
        "[Look at runs](report.md) says what it shows; `ssp view` serves the same page live.\n",
        "demo.html": DEMO,
    }


def pages_in(nav: Any) -> Iterator[str]:
    """Pages that the navigation names."""
    if isinstance(nav, str):
        yield nav
    for inner in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from pages_in(inner)

#!/usr/bin/env python3
"""Checks a site: each link within it leads to a file and an anchor that exist, and each page is the
target of a link.

    deploy/site/check_links.py FOLDER
"""

import html.parser
import os
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = set(), set()
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("id", "name"):
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.add(value)


def main(folder):
    names = [os.path.relpath(os.path.join(place, name), folder)
             for place, _, files in os.walk(folder) for name in files]
    # mkdocs makes 404.html, which a server shows. Scripts load the pages of api/search and make the menu of api.
    pages = {name: Page(os.path.join(folder, name)) for name in names
             if name.endswith(".html") and name != "404.html" and not name.startswith("api/search/")}
    wrong, reached = [], {"index.html"}
    for name, page in sorted(pages.items()):
        for link in sorted(page.links):
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = os.path.normpath(os.path.join(os.path.dirname(name), urllib.parse.unquote(parts.path))) \
                if parts.path else name
            anchor = urllib.parse.unquote(parts.fragment)
            if os.path.isdir(os.path.join(folder, target)):
                target = os.path.normpath(os.path.join(target, "index.html"))
            if not os.path.exists(os.path.join(folder, target)):
                wrong.append(f"{name}: there is no {link}")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                wrong.append(f"{name}: {target} has no anchor {anchor}")
            elif target != name:
                reached.add(target)
    wrong += [f"{name}: no page has a link to it; add it to the navigation in deploy/site/mkdocs.yml"
              for name in sorted(pages.keys() - reached) if not name.startswith("api/")]
    for sentence in wrong:
        print(f"check_links.py: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


sys.exit(main(sys.argv[1]))

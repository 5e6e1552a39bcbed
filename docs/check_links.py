"""Checks the built site: links within it lead somewhere, and reading it needs no network.

    python docs/check_links.py build/docs/html

Links to other sites are listed, not followed.
"""

import html.parser
import pathlib
import re
import sys
import urllib.parse

FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src", "audio": "src"}


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.fetched = set(), [], []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag in FETCHED and given.get(FETCHED[tag]) and given.get("rel") not in ("canonical", "prev", "next"):
            self.fetched.append(given[FETCHED[tag]])


def main(folder):
    site = pathlib.Path(folder).resolve()
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    problems, others = [], set()
    for path, page in pages.items():
        where = path.relative_to(site)
        for link in page.links + page.fetched:
            to = urllib.parse.urlsplit(link)
            if to.scheme in ("http", "https") or to.netloc:
                others.add(link)
                if link in page.fetched:
                    problems.append(f"{where}: fetched from elsewhere: {link}")
            elif not to.scheme:
                target = (path.parent / urllib.parse.unquote(to.path)).resolve() if to.path else path
                fragment = urllib.parse.unquote(to.fragment)
                if not target.exists():
                    problems.append(f"{where}: there is no {link}")
                elif fragment and target in pages and fragment not in pages[target].ids:
                    problems.append(f"{where}: there is no place {link}")
    for style in site.rglob("*.css"):
        elsewhere = re.findall(r"url\(['\"]?(https?:[^)]*)", style.read_text("utf-8"))
        problems += [f"{style.relative_to(site)}: fetched from elsewhere: {link}" for link in elsewhere]
    print(f"{len(pages)} pages; {sum(len(p.links) for p in pages.values())} links, to other sites:", *sorted(others), sep="\n  ")
    if problems:
        sys.exit("\n".join(problems))


main(*sys.argv[1:])

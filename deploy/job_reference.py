#!/usr/bin/env python3
"""Writes docs/job.md, the reference of the job file, from torchps/proto/job.proto.

    deploy/job_reference.py            writes the page
    deploy/job_reference.py --check    fails if the page is outdated
"""

import re
import sys

SOURCE, PAGE = "torchps/proto/job.proto", "docs/job.md"
HEAD = """# The job file

A job file is one `JobSpec` ([formats](guide.md#the-job-file)). `--set path.to.field=value` sets one field; a list is set
as a whole, with commas. `deploy/job_reference.py` makes this page from `torchps/proto/job.proto`.
"""
BLOCK = re.compile(r"(message|enum|oneof) (\w+) \{\s*(\}?)")
FIELD = re.compile(r"(?:(optional|repeated) )?([\w.]+|map<\w+, \w+>) (\w+) = \d+;\s*(?://\s*(.*))?")
VALUE = re.compile(r"([A-Z][A-Z0-9_]*) = \d+;\s*(?://\s*(.*))?")

class Section:
    """A message or an enum, with a row for each field or value."""

    def __init__(self, title, words):
        self.title, self.words, self.rows = title, words, []

    def text(self):
        lines = [f"\n## {self.title}\n"]
        if self.words:
            lines.append(self.words + "\n")
        if self.rows:
            columns = "field | type | meaning" if len(self.rows[0]) == 3 else "value | meaning"
            lines += [f"| {columns} |", "|" + "---|" * len(self.rows[0])]
            lines += ["| " + " | ".join(row).replace("  ", " ") + " |" for row in self.rows]
        return "\n".join(lines)

def sections(lines):
    found, open_blocks, comment, goes_on = [], [], [], False
    for line in lines:
        text = line.strip()
        if text.startswith("//"):
            # A comment far to the right continues the row above.
            if goes_on and len(line) - len(line.lstrip()) > 2 * len(open_blocks):
                open_blocks[-1].rows[-1][-1] += " " + text[2:].strip()
            else:
                comment.append(text[2:].strip())
                goes_on = False
            continue
        words = " ".join(comment)
        comment, goes_on = [], False
        if block := BLOCK.match(text):
            kind, name, ended = block.groups()
            if kind == "oneof":
                open_blocks.append(open_blocks[-1])
                continue
            outer = [each.title for each in open_blocks[-1:]]
            section = Section(".".join([*outer, name]), words)
            found.append(section)
            if not ended:
                open_blocks.append(section)
        elif text == "}":
            open_blocks.pop()
        elif field := FIELD.match(text):
            rule, kind, name, behind = field.groups()
            kind = f"list of {kind}" if rule == "repeated" else kind
            open_blocks[-1].rows.append([f"`{name}`", kind, " ".join(filter(None, [words, behind]))])
            goes_on = True
        elif value := VALUE.match(text):
            name, behind = value.groups()
            open_blocks[-1].rows.append([f"`{name}`", " ".join(filter(None, [words, behind]))])
            goes_on = True
    return found

def of_job_files(found):
    """Returns the sections without the fields that are not for job files, and without the types of these fields.
    Joins neighbours with equal rows."""
    hidden = {row[1].split()[-1] for section in found for row in section.rows if row[-1].startswith("Not for job files")}
    kept = []
    for section in found:
        section.rows = [row for row in section.rows if not row[-1].startswith("Not for job files")]
        if section.title in hidden:
            continue
        if kept and section.rows == kept[-1].rows and section.words == kept[-1].words:
            kept[-1].title += f", {section.title}"
        else:
            kept.append(section)
    return kept

def main(check):
    with open(SOURCE, encoding="utf-8") as file:
        lines = file.read().split("\n")
    found = of_job_files(sections(lines[lines.index("package torchps;") + 1:]))
    for section in found:
        for row in section.rows:
            if not row[-1]:
                sys.exit(f"{SOURCE}: {section.title} {row[0]} has no comment")
            row[-1] = row[-1].replace("|", "\\|")
    page = HEAD + "\n".join(section.text() for section in found) + "\n"
    if not check:
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(page)
        return
    with open(PAGE, encoding="utf-8") as file:
        if file.read() != page:
            sys.exit(f"{PAGE} is out of date with {SOURCE}: run deploy/job_reference.py")

main("--check" in sys.argv[1:])

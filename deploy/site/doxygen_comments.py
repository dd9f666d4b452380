#!/usr/bin/env python3
"""Prints a public header with its // comments as doxygen's, a filter of deploy/site/Doxyfile.

    deploy/site/doxygen_comments.py HEADER

A comment documents the declaration below it or on its line. A comment above the namespace, before an empty line,
documents the file. Lines with an indentation of three spaces or more are an example.
"""

import re
import sys

# Names of public headers that only torchps uses. The reference leaves them out.
INTERNAL = set("""
    BatchNormOfAll BatchSums CheckGroups CheckGroupsAreUsed CheckMetrics Counts EndWellWhenTorchThrows EvenCut
    GetFingerprint GetGroup GetLoss GetMetadata GetPreprocessing GetWeightDecay HasPreprocessing IndexTensor
    KnownPreprocessing Loss MakeModelFile MeasurePreprocessing MetricSums NeedsPath NormalizeOptimizer NotTrainedOn
    Placement RowDataset SetEvaluation SetPreprocessing StagePart StateFile SyncBatchNorm SyncBatchNormImplBase
    SynchronizeBatchNorms TaskSetup TiedNames ToDevice WantsTest WorkerOptions
""".split())
DECLARED = re.compile(r"^(?!//)(?:(?:class|struct|enum class|using) (\w+)|\w[^(;\n]* (\w+)\()", re.MULTILINE)
COMMENT = re.compile(r"( *)//(?: (.*))?$")
# Characters with a meaning in doxygen's comments.
SPECIAL, ESCAPED = re.compile(r"(--|[\\@<>#%&])"), r"\\\1"
# A comment behind a complete declaration or enumerator.
BEHIND = re.compile(r"(.*\S.*[;,] +)// (?!NOLINT)(.*)$")


def documented(block):
    """Yields the lines of one comment in doxygen's syntax."""
    example = False
    for indent, text in block:
        if text and text.startswith("  ") != example:
            example = not example
            yield f"{indent}/// {'@code{.cpp}' if example else '@endcode'}"
        yield f"{indent}/// {text if example else SPECIAL.sub(ESCAPED, text)}"
    if example:
        yield f"{block[-1][0]}/// @endcode"


def converted(chunk, is_head):
    """Yields the lines of a top-level declaration, or of a comment without one."""
    block = []
    for line in [*chunk.split("\n"), None]:
        if line is not None and (found := COMMENT.match(line)):
            block.append((found.group(1), found.group(2) or ""))
            continue
        if block and (line or is_head):
            yield from ["/// @file"] * (not line) + list(documented(block))
        block = []
        if line is not None:
            yield BEHIND.sub(lambda found: f"{found.group(1)}///< {found.group(2)}", line)


def main(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    is_head = True
    # Only top-level lines begin in the first column.
    for chunk in re.split(r"\n\n(?=\S)", text):
        is_head = is_head and not chunk.startswith("namespace torchps")
        declared = DECLARED.search(chunk)
        if declared and (declared.group(1) or declared.group(2)) in INTERNAL:
            print("\n" * chunk.count("\n"))
        else:
            print("\n".join(converted(chunk, is_head)))
        print()


main(sys.argv[1])

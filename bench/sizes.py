"""Model sizes, in float32 bytes."""

KIB = 1 << 10
MIB = 1 << 20
# The sizes that most bars use.
LARGE = (16 * MIB, 100 * MIB)


def size_name(size):
    if not size:
        return ""
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"

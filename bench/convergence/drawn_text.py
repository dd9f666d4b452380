"""The product's generated text (torchps/data/text/generated_text.cc), byte for byte: what transformer_text learns."""

NOUNS = (("fox", "foxes"), ("heron", "herons"), ("sailor", "sailors"), ("child", "children"),
         ("baker", "bakers"), ("lantern", "lanterns"), ("river", "rivers"), ("mouse", "mice"),
         ("wheel", "wheels"), ("letter", "letters"), ("goose", "geese"), ("tower", "towers"),
         ("gardener", "gardeners"), ("ship", "ships"), ("story", "stories"), ("stone", "stones"))
VERBS = (("finds", "find"), ("follows", "follow"), ("carries", "carry"), ("remembers", "remember"),
         ("watches", "watch"), ("leaves", "leave"), ("mends", "mend"), ("draws", "draw"),
         ("hides", "hide"), ("passes", "pass"), ("hears", "hear"), ("needs", "need"))
ADJECTIVES = ("old", "small", "quiet", "red", "patient", "broken", "bright", "distant", "heavy", "curious")
PLACES = ("by the harbour", "under the bridge", "behind the mill", "near the northern gate",
          "across the field", "at the market", "in the snow")
TIMES = ("in the morning", "after the rain", "before dawn", "every spring", "at noon", "once a year")
NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
MASK = (1 << 64) - 1


class Draw:
    """torchps/common/hash.h."""

    def __init__(self, seed):
        self.state = seed

    def _bits(self):
        self.state = (self.state + 0x9e3779b97f4a7c15) & MASK
        z = ((self.state ^ (self.state >> 30)) * 0xbf58476d1ce4e5b9) & MASK
        z = ((z ^ (z >> 27)) * 0x94d049bb133111eb) & MASK
        return z ^ (z >> 31)

    def below(self, bound):
        product = self._bits() * bound
        if product & MASK < bound:
            while product & MASK < (1 << 64) % bound:
                product = self._bits() * bound
        return product >> 64

    def pick(self, choices):
        return choices[self.below(len(choices))]

    def one_in(self, count):
        return self.below(count) == 0


def _noun_phrase(draw):
    """(a noun phrase, whether it is many)."""
    many = draw.one_in(2)
    phrase = draw.pick(NUMBERS) if many and draw.one_in(2) else "the"
    if draw.one_in(2):
        phrase += " " + draw.pick(ADJECTIVES)
    return f"{phrase} {draw.pick(NOUNS)[many]}", many


def _story(draw):
    sentence, many = _noun_phrase(draw)
    if draw.one_in(3):
        sentence += " " + draw.pick(PLACES)
    verb = draw.pick(VERBS)[many]
    sentence += f" {verb} {_noun_phrase(draw)[0]}"
    if draw.one_in(2):
        sentence += " " + draw.pick(TIMES)
    return sentence[0].upper() + sentence[1:] + "."


def _sentence(draw):
    kind = draw.below(8)
    if kind == 0:
        a = draw.below(50)
        b = draw.below(50)
        return f"{a} and {b} make {a + b}."
    if kind == 1:
        first = draw.below(90)
        return f"Count: {first}, {first + 1}, {first + 2}, {first + 3}."
    return _story(draw)


def drawn_text(size=400_000, seed=1):
    draw, pieces, length = Draw(seed), [], 0
    while length < size:
        pieces.append(_sentence(draw))
        pieces.append("\n\n" if draw.one_in(6) else " ")
        length += len(pieces[-2]) + len(pieces[-1])
    return "".join(pieces).encode()

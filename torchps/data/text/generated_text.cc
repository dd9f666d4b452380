#include "torchps/data/text/generated_text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

struct Forms {
  absl::string_view one;
  absl::string_view many;
};

constexpr Forms kNouns[] = {
    {"fox", "foxes"},          {"heron", "herons"}, {"sailor", "sailors"},
    {"child", "children"},     {"baker", "bakers"}, {"lantern", "lanterns"},
    {"river", "rivers"},       {"mouse", "mice"},   {"wheel", "wheels"},
    {"letter", "letters"},     {"goose", "geese"},  {"tower", "towers"},
    {"gardener", "gardeners"}, {"ship", "ships"},   {"story", "stories"},
    {"stone", "stones"},
};
constexpr Forms kVerbs[] = {
    {"finds", "find"},    {"follows", "follow"}, {"carries", "carry"}, {"remembers", "remember"},
    {"watches", "watch"}, {"leaves", "leave"},   {"mends", "mend"},    {"draws", "draw"},
    {"hides", "hide"},    {"passes", "pass"},    {"hears", "hear"},    {"needs", "need"},
};
constexpr absl::string_view kAdjectives[] = {
    "old", "small", "quiet", "red", "patient", "broken", "bright", "distant", "heavy", "curious",
};
constexpr absl::string_view kPlaces[] = {
    "by the harbour",   "under the bridge", "behind the mill", "near the northern gate",
    "across the field", "at the market",    "in the snow",
};
constexpr absl::string_view kTimes[] = {
    "in the morning", "after the rain", "before dawn", "every spring", "at noon", "once a year",
};
constexpr absl::string_view kNumbers[] = {"two",   "three", "four", "five", "six",
                                          "seven", "eight", "nine", "ten"};

class Writer {
 public:
  explicit Writer(uint64_t seed) : state_(seed) {}

  std::string Sentence() {
    switch (UniformBelow(state_, 8)) {
      case 0:
        return Sum();
      case 1:
        return Counting();
      default:
        return Story();
    }
  }

  bool OneIn(uint64_t n) { return UniformBelow(state_, n) == 0; }

 private:
  template <typename T, size_t N>
  const T& Pick(const T (&choices)[N]) {
    return choices[UniformBelow(state_, N)];
  }

  // Returns a noun phrase. Sets `many` if the verb must be plural.
  std::string NounPhrase(bool& many) {
    many = OneIn(2);
    std::string phrase(many && OneIn(2) ? Pick(kNumbers) : absl::string_view("the"));
    if (OneIn(2)) absl::StrAppend(&phrase, " ", Pick(kAdjectives));
    const Forms& noun = Pick(kNouns);
    absl::StrAppend(&phrase, " ", many ? noun.many : noun.one);
    return phrase;
  }

  std::string Story() {
    bool many, ignored;
    std::string sentence = NounPhrase(many);
    if (OneIn(3)) {
      // The following verb must agree with the subject before the place, not with the nearest noun.
      absl::StrAppend(&sentence, " ", Pick(kPlaces));
    }
    const Forms& verb = Pick(kVerbs);
    absl::StrAppend(&sentence, " ", many ? verb.many : verb.one, " ", NounPhrase(ignored));
    if (OneIn(2)) absl::StrAppend(&sentence, " ", Pick(kTimes));
    sentence[0] = absl::ascii_toupper(sentence[0]);
    return sentence + ".";
  }

  std::string Sum() {
    const uint64_t a = UniformBelow(state_, 50);
    const uint64_t b = UniformBelow(state_, 50);
    return absl::StrCat(a, " and ", b, " make ", a + b, ".");
  }

  std::string Counting() {
    const uint64_t from = UniformBelow(state_, 90);
    return absl::StrCat("Count: ", from, ", ", from + 1, ", ", from + 2, ", ", from + 3, ".");
  }

  uint64_t state_;
};

}  // namespace

std::string GenerateText(int64_t bytes, uint64_t seed) {
  Writer writer(seed);
  std::string text;
  text.reserve(bytes + 256);
  while (static_cast<int64_t>(text.size()) < bytes) {
    // Use one random draw per statement, because the evaluation order of arguments is unspecified.
    text += writer.Sentence();
    text += writer.OneIn(6) ? "\n\n" : " ";
  }
  return text;
}

}  // namespace torchps

#include "common/glob.h"

#include <cstddef>

namespace torchps {

// Greedy with one point to return to: where a mismatch comes after a '*', that
// star takes one more character and matching goes on behind it. An earlier star
// never needs to be reconsidered, for whatever it could take more, the later
// one can take as well.
bool GlobMatches(absl::string_view pattern, absl::string_view text) {
  size_t p = 0;
  size_t t = 0;
  size_t after_star = absl::string_view::npos;
  size_t star_ends = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      after_star = ++p;
      star_ends = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (after_star != absl::string_view::npos) {
      p = after_star;
      t = ++star_ends;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace torchps

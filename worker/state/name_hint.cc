#include "worker/state/name_hint.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

struct Prefix {
  std::string text;
  size_t names = 0;  // matching names after removing the prefix
};

// Returns the prefix that makes the most names in `longer` match `shorter` when removed.
Prefix BestPrefix(const std::set<std::string>& longer, const std::set<std::string>& shorter) {
  std::map<std::string, size_t> matches;
  for (const std::string& name : longer) {
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      if (shorter.count(name.substr(dot + 1)) > 0) ++matches[name.substr(0, dot + 1)];
    }
  }
  Prefix best;
  for (const auto& [prefix, names] : matches) {
    if (names > best.names) best = {prefix, names};
  }
  return best;
}

}  // namespace

std::string PrefixHint(const std::set<std::string>& module, const std::set<std::string>& file) {
  const auto matching = static_cast<size_t>(
      std::count_if(module.begin(), module.end(),
                    [&file](const std::string& name) { return file.count(name) > 0; }));
  const Prefix surplus = BestPrefix(file, module);
  const Prefix lacking = BestPrefix(module, file);
  const bool remove = surplus.names >= lacking.names;
  const Prefix& best = remove ? surplus : lacking;
  if (best.names <= matching || 2 * best.names < std::min(module.size(), file.size())) return "";
  return absl::StrCat(remove ? "without" : "with", " the prefix '", best.text, "' ", best.names,
                      " of the file's names fit; rename them in Python and save again: state = {",
                      remove ? absl::StrCat("k.removeprefix('", best.text, "')")
                             : absl::StrCat("'", best.text, "' + k"),
                      ": v for k, v in state.items()",
                      remove ? absl::StrCat(" if k.startswith('", best.text, "')") : "", "}");
}

}  // namespace torchps

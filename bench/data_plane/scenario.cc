#include "bench/data_plane/scenario.h"

#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

// bench/README.md describes the cases.
constexpr Case kCases[] = {
    {"memcpy", Cast::kAlone, 1},       {"in_process_apply", Cast::kAlone, 1},
    {"raw_tcp", Cast::kPlainPeer, 1},  {"push_apply", Cast::kTorchpsServer, 1},
    {"pull", Cast::kTorchpsServer, 1}, {"push_pull", Cast::kTorchpsServer, 2},
};

}  // namespace

absl::Status FindCase(absl::string_view name, const Case** found) {
  std::string known;
  for (const Case& one : kCases) {
    if (one.name == name) {
      *found = &one;
      return absl::OkStatus();
    }
    absl::StrAppend(&known, known.empty() ? "" : ", ", one.name);
  }
  return absl::NotFoundError(absl::StrCat("unknown case '", name, "'; expected ", known));
}

}  // namespace torchps

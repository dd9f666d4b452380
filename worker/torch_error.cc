#include "worker/torch_error.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"

namespace torchps {

absl::Status TorchError(absl::string_view what, const std::exception& error) {
  const auto* from_torch = dynamic_cast<const c10::Error*>(&error);
  const std::string message =
      from_torch != nullptr ? from_torch->what_without_backtrace() : error.what();
  return absl::InternalError(
      absl::StrCat(what, " failed: ", message.substr(0, message.find('\n'))));
}

}  // namespace torchps

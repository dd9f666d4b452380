#include "wire/status_codec.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace torchps {
namespace {

std::string Shortened(absl::string_view message) {
  if (message.size() <= kMaxStatusMessageBytes) return std::string(message);
  constexpr absl::string_view kEllipsis = "...";
  size_t length = kMaxStatusMessageBytes - kEllipsis.size();
  // Bytes 10xxxxxx continue a UTF-8 character: cut in front of its first one.
  while (length > 0 && (message[length] & 0xc0) == 0x80) --length;
  return absl::StrCat(message.substr(0, length), kEllipsis);
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // Both libraries number the codes of google.rpc.Code.
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), Shortened(status.message()));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const int code = status.error_code();
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      status.error_message());
}

}  // namespace torchps

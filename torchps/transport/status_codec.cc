#include "torchps/transport/status_codec.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <optional>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace torchps {

bool Count(Verdict verdict, VerdictCounts* counts) {
  switch (verdict) {
    case ACCEPTED:
      counts->set_accepted(counts->accepted() + 1);
      return true;
    case SCALED:
      counts->set_scaled(counts->scaled() + 1);
      return true;
    case REJECTED_STALE:
      counts->set_rejected(counts->rejected() + 1);
      return true;
    case LATE:
      counts->set_late(counts->late() + 1);
      return true;
    case WITHHELD:
      counts->set_withheld(counts->withheld() + 1);
      return true;
    default:
      return false;
  }
}

void Add(const VerdictCounts& part, VerdictCounts* sum) {
  const google::protobuf::Descriptor& fields = *VerdictCounts::descriptor();
  const google::protobuf::Reflection& reflection = *VerdictCounts::GetReflection();
  for (int i = 0; i < fields.field_count(); ++i) {
    const google::protobuf::FieldDescriptor* const field = fields.field(i);
    reflection.SetUInt64(sum, field,
                         reflection.GetUInt64(*sum, field) + reflection.GetUInt64(part, field));
  }
}

namespace {

// The payload URL of an absl::Status made by BusyError(), and the prefix of the error details that
// carry it in a grpc::Status.
constexpr char kBusyUrl[] = "torchps/busy";
constexpr absl::string_view kBusyDetails = "torchps/busy:";

std::string Shortened(absl::string_view message) {
  if (message.size() <= kMaxStatusMessageBytes) return std::string(message);
  constexpr absl::string_view kEllipsis = "...";
  size_t length = kMaxStatusMessageBytes - kEllipsis.size();
  // Bytes 10xxxxxx continue a UTF-8 character, so move back to the start of the character.
  while (length > 0 && (message[length] & 0xc0) == 0x80) --length;
  return absl::StrCat(message.substr(0, length), kEllipsis);
}

}  // namespace

absl::Status BusyError(absl::string_view message, absl::string_view what) {
  absl::Status status = absl::UnavailableError(message);
  status.SetPayload(kBusyUrl, absl::Cord(what));
  return status;
}

std::optional<std::string> BusyWith(const absl::Status& status) {
  const auto what = status.GetPayload(kBusyUrl);
  if (!what.has_value()) return std::nullopt;
  return std::string(*what);
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // Both libraries use the numeric codes of google.rpc.Code.
  const std::optional<std::string> busy = BusyWith(status);
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), Shortened(status.message()),
                      busy.has_value() ? absl::StrCat(kBusyDetails, Shortened(*busy)) : "");
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const int code = status.error_code();
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE &&
      absl::StartsWith(status.error_details(), kBusyDetails)) {
    return BusyError(status.error_message(), status.error_details().substr(kBusyDetails.size()));
  }
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      status.error_message());
}

}  // namespace torchps

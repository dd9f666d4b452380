#include "common/process/exit_codes.h"

namespace torchps {

ExitCode ExitCodeFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kOk;
    case absl::StatusCode::kInvalidArgument:
      return ExitCode::kUsage;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kUnreachable;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return ExitCode::kRefused;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss:
      return ExitCode::kData;
    case absl::StatusCode::kAlreadyExists:
      return ExitCode::kAddressInUse;
    case absl::StatusCode::kAborted:
      return ExitCode::kLostSlot;
    default:
      return ExitCode::kFailed;
  }
}

}  // namespace torchps

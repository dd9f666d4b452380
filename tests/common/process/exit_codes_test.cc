#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "torchps/common/process/command_line.h"

namespace torchps {
namespace {

// Scripts depend on these numbers, so they must never change.
TEST(ExitCodesTest, HaveTheDocumentedNumbers) {
  EXPECT_EQ(static_cast<int>(ExitCode::kOk), 0);
  EXPECT_EQ(static_cast<int>(ExitCode::kFailed), 1);
  EXPECT_EQ(static_cast<int>(ExitCode::kUsage), 2);
  EXPECT_EQ(static_cast<int>(ExitCode::kUnreachable), 3);
  EXPECT_EQ(static_cast<int>(ExitCode::kRefused), 4);
  EXPECT_EQ(static_cast<int>(ExitCode::kData), 5);
  EXPECT_EQ(static_cast<int>(ExitCode::kAddressInUse), 6);
  EXPECT_EQ(static_cast<int>(ExitCode::kLostSlot), 7);
}

TEST(ExitCodesTest, EachKindOfFailureHasItsExitCode) {
  EXPECT_EQ(ExitCodeFor(absl::OkStatus()), ExitCode::kOk);
  EXPECT_EQ(ExitCodeFor(absl::InvalidArgumentError("")), ExitCode::kUsage);
  EXPECT_EQ(ExitCodeFor(absl::UnavailableError("")), ExitCode::kUnreachable);
  EXPECT_EQ(ExitCodeFor(absl::DeadlineExceededError("")), ExitCode::kUnreachable);
  EXPECT_EQ(ExitCodeFor(absl::FailedPreconditionError("")), ExitCode::kRefused);
  EXPECT_EQ(ExitCodeFor(absl::AbortedError("")), ExitCode::kLostSlot);
  EXPECT_EQ(ExitCodeFor(absl::UnimplementedError("")), ExitCode::kRefused);
  EXPECT_EQ(ExitCodeFor(absl::NotFoundError("")), ExitCode::kData);
  EXPECT_EQ(ExitCodeFor(absl::DataLossError("")), ExitCode::kData);
  EXPECT_EQ(ExitCodeFor(absl::AlreadyExistsError("")), ExitCode::kAddressInUse);
}

TEST(ExitCodesTest, NeverReportAnErrorAsSuccess) {
  for (int code = 1; code <= 20; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "");
    EXPECT_NE(ExitCodeFor(status), ExitCode::kOk) << code;
  }
  EXPECT_EQ(ExitCodeFor(absl::InternalError("")), ExitCode::kFailed);
}

}  // namespace
}  // namespace torchps

#include "torchps/transport/status_codec.h"

#include <optional>
#include <string>

#include "gtest/gtest.h"

namespace torchps {
namespace {

TEST(StatusCodecTest, RoundTripsCodesAndMessages) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "what, expected, got");
    const grpc::Status sent = ToGrpcStatus(status);
    EXPECT_EQ(static_cast<int>(sent.error_code()), code);
    EXPECT_EQ(sent.error_message(), "what, expected, got");
    EXPECT_EQ(FromGrpcStatus(sent), status);
  }
}

TEST(StatusCodecTest, MapsCodesByName) {
  EXPECT_EQ(ToGrpcStatus(absl::AbortedError("")).error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(ToGrpcStatus(absl::UnavailableError("")).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ToGrpcStatus(absl::UnauthenticatedError("")).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

TEST(StatusCodecTest, AnOkStatusStaysOk) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK).ok());
}

TEST(StatusCodecTest, MapsAnUnknownCodeToUnknown) {
  const grpc::Status strange(static_cast<grpc::StatusCode>(99), "strange");
  EXPECT_EQ(FromGrpcStatus(strange), absl::UnknownError("strange"));
}

TEST(StatusCodecTest, TruncatesALongMessageBetweenCharacters) {
  // Characters of three bytes, so that the limit is inside a character.
  std::string message;
  while (message.size() <= kMaxStatusMessageBytes) message += "\u20ac";
  const std::string cut = ToGrpcStatus(absl::InternalError(message)).error_message();
  EXPECT_LE(cut.size(), kMaxStatusMessageBytes);
  EXPECT_GT(cut.size(), kMaxStatusMessageBytes - 6);
  EXPECT_EQ(cut.substr(cut.size() - 3), "...");
  EXPECT_EQ((cut.size() - 3) % 3, 0u);
}

TEST(StatusCodecTest, KeepsAMessageAtTheLimit) {
  const std::string message(kMaxStatusMessageBytes, 'x');
  EXPECT_EQ(ToGrpcStatus(absl::InternalError(message)).error_message(), message);
}

TEST(StatusCodecTest, RoundTripsTheBusyReason) {
  const absl::Status busy = BusyError("wait: it reads", "reads checkpoint 7");
  EXPECT_TRUE(absl::IsUnavailable(busy));
  EXPECT_EQ(BusyWith(FromGrpcStatus(ToGrpcStatus(busy))), "reads checkpoint 7");
  EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(busy)).message(), "wait: it reads");
  EXPECT_EQ(BusyWith(absl::UnavailableError("reads checkpoint 7")), std::nullopt);
  const grpc::Status foreign(grpc::StatusCode::UNAVAILABLE, "reads", "checkpoint 7");
  EXPECT_EQ(BusyWith(FromGrpcStatus(foreign)), std::nullopt);
  EXPECT_EQ(BusyWith(absl::OkStatus()), std::nullopt);
}

}  // namespace
}  // namespace torchps

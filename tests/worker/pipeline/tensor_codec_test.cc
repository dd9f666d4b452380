#include "torchps/worker/pipeline/tensor_codec.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "gtest/gtest.h"
#include "torchps/program/pipeline/tensor_sender.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

// Returns the message as the other process parses it, after serialization by Protobuf.
TensorMessage Sent(const torch::Tensor& tensor) {
  TensorMessage parcel;
  parcel.set_meeting(7);
  parcel.set_kind(TensorMessage::ACTIVATION);
  const absl::StatusOr<TensorHeader> header = DescribeTensor(tensor);
  EXPECT_TRUE(header.ok()) << header.status();
  *parcel.mutable_tensor() = *header;
  grpc::ByteBuffer bytes = EncodeParcel(parcel, tensor);
  TensorMessage read;
  EXPECT_TRUE(grpc::SerializationTraits<TensorMessage>::Deserialize(&bytes, &read).ok());
  EXPECT_EQ(read.meeting(), 7u);
  return read;
}

TEST(TensorCodecTest, EachTypeAndShapeArrivesUnchanged) {
  torch::manual_seed(1);
  const torch::Tensor numbers = torch::randn({3, 5, 2}) * 10;
  for (const torch::ScalarType type :
       {torch::kFloat32, torch::kFloat64, torch::kFloat16, torch::kBFloat16, torch::kInt64,
        torch::kInt32, torch::kUInt8, torch::kBool}) {
    const torch::Tensor tensor = numbers.abs().to(type);
    TensorMessage parcel = Sent(tensor);
    const absl::StatusOr<torch::Tensor> read = TakeTensor(&parcel);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->scalar_type(), type);
    EXPECT_TRUE(torch::equal(*read, tensor)) << torch::toString(type);
  }
  for (const torch::Tensor& tensor :
       {torch::ones({}), torch::ones({0, 4}), torch::ones({300, 70})}) {
    TensorMessage parcel = Sent(tensor);
    const absl::StatusOr<torch::Tensor> read = TakeTensor(&parcel);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->sizes(), tensor.sizes());
    EXPECT_TRUE(torch::equal(*read, tensor));
  }
}

TEST(TensorCodecTest, AnUndefinedTensorArrivesUndefined) {
  TensorMessage parcel = Sent(torch::Tensor());
  const absl::StatusOr<torch::Tensor> read = TakeTensor(&parcel);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_FALSE(read->defined());
}

TEST(TensorCodecTest, RefusesAnUnsupportedType) {
  EXPECT_TRUE(absl::IsInvalidArgument(DescribeTensor(torch::ones({2}, torch::kInt16)).status()));
}

TEST(TensorCodecTest, ChecksAMessageBeforeMakingATensor) {
  const auto refusal = [](const std::function<void(TensorMessage * parcel)>& spoil) {
    TensorMessage parcel = Sent(torch::ones({4, 4}));
    spoil(&parcel);
    const absl::Status status = TakeTensor(&parcel).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal([](TensorMessage* parcel) { parcel->mutable_payload()->pop_back(); }),
              HasSubstr("63 bytes; expected 64"));
  EXPECT_THAT(refusal([](TensorMessage* parcel) { parcel->mutable_tensor()->set_shape(0, -4); }),
              HasSubstr("invalid shape"));
  EXPECT_THAT(refusal([](TensorMessage* parcel) {
                for (int i = 0; i < 8; ++i) parcel->mutable_tensor()->add_shape(1 << 30);
              }),
              HasSubstr("invalid shape"));
  EXPECT_THAT(refusal([](TensorMessage* parcel) {
                parcel->mutable_tensor()->set_type(static_cast<TensorHeader::Type>(99));
              }),
              HasSubstr("type 99"));
  EXPECT_THAT(refusal([](TensorMessage* parcel) { parcel->mutable_tensor()->clear_type(); }),
              HasSubstr("bytes and no tensor"));
}

}  // namespace
}  // namespace torchps

#include "job/unknown_field.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/job.pb.h"

namespace torchps {
namespace {

const std::vector<std::string> kNames = {"epochs", "batch_size", "accumulate", "lr"};

TEST(UnknownFieldTest, FindsANameThatWasMisspelt) {
  EXPECT_EQ(ClosestName("batchsize", kNames), "batch_size");
  EXPECT_EQ(ClosestName("Epochs", kNames), "epochs");
  EXPECT_EQ(ClosestName("epoch", kNames), "epochs");
  EXPECT_EQ(ClosestName("acumulat", kNames), "accumulate");
  EXPECT_EQ(ClosestName("l", kNames), "lr");
}

TEST(UnknownFieldTest, FindsNothingWhereNoneIsNear) {
  EXPECT_EQ(ClosestName("momentum", kNames), "");
  EXPECT_EQ(ClosestName("", kNames), "");
  EXPECT_EQ(ClosestName(std::string(100000, 'e'), kNames), "");
  EXPECT_EQ(ClosestName("epochs", {}), "");
}

TEST(UnknownFieldTest, ListsTheFieldsOfAMessageInOrder) {
  EXPECT_EQ(DescribeFields(*SgdSpec::descriptor(), "momentun"),
            "did you mean \"momentum\"? it has: momentum, dampening, nesterov");
  EXPECT_EQ(DescribeFields(*SgdSpec::descriptor(), "x"), "it has: momentum, dampening, nesterov");
}

}  // namespace
}  // namespace torchps

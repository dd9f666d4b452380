#include "job/unknown_field.h"

#include "gtest/gtest.h"
#include "proto/job.pb.h"

namespace torchps {
namespace {

TEST(UnknownFieldTest, ListsTheFieldsOfAMessageInOrder) {
  EXPECT_EQ(DescribeFields(*SgdSpec::descriptor(), "momentun"),
            "did you mean \"momentum\"? it has: momentum, dampening, nesterov, momentum_at");
  EXPECT_EQ(DescribeFields(*SgdSpec::descriptor(), "x"),
            "it has: momentum, dampening, nesterov, momentum_at");
}

}  // namespace
}  // namespace torchps

#include <string>

#include "gtest/gtest.h"
#include "torchps/job/file/field_text.h"
#include "torchps/proto/job.pb.h"

namespace torchps {
namespace {

TEST(UnknownFieldTest, ListsTheFieldsOfAMessageInOrder) {
  EXPECT_EQ(DescribeFields(*SgdSpec::descriptor(), "momentun"),
            "did you mean \"momentum\"? it has: momentum, dampening, nesterov, momentum_at");
  EXPECT_EQ(DescribeFields(*SgdSpec::descriptor(), "x"),
            "it has: momentum, dampening, nesterov, momentum_at");
}

TEST(UnknownFieldTest, SuggestsAFieldOfThatNameInAnotherMessage) {
  const auto told = [](const google::protobuf::Descriptor& message, const std::string& name) {
    const std::string text = DescribeFields(message, name);
    return text.substr(0, text.find('?'));
  };
  EXPECT_EQ(told(*JobSpec::descriptor(), "learning_rate"), "did you mean optimizer.learning_rate");
  EXPECT_EQ(told(*TrainingSpec::descriptor(), "learning_rate"),
            "did you mean optimizer.learning_rate");
  EXPECT_EQ(told(*JobSpec::descriptor(), "epochs"), "did you mean training.epochs");
  // "mode" is similar to "model", a field of the job, but equal to a field of ConsistencySpec. The
  // equal name is suggested.
  EXPECT_EQ(told(*JobSpec::descriptor(), "mode"), "did you mean consistency.mode");
  EXPECT_EQ(told(*JobSpec::descriptor(), "kind"), "did you mean wire.push.kind or wire.pull.kind");
}

}  // namespace
}  // namespace torchps

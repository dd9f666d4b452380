#include "gtest/gtest.h"
#include "torchps/common/text.h"

namespace torchps {
namespace {

const std::vector<std::string> kFields = {"epochs", "batch_size", "accumulate", "lr"};
const std::vector<std::string> kCommands = {"run", "doctor", "status", "stop"};

TEST(ClosestNameTest, FindsAMisspelledName) {
  EXPECT_EQ(ClosestName("batchsize", kFields), "batch_size");
  EXPECT_EQ(ClosestName("Epochs", kFields), "epochs");
  EXPECT_EQ(ClosestName("epoch", kFields), "epochs");
  EXPECT_EQ(ClosestName("acumulat", kFields), "accumulate");
  EXPECT_EQ(ClosestName("l", kFields), "lr");
}

TEST(ClosestNameTest, CountsATranspositionAsOneEdit) {
  EXPECT_EQ(ClosestName("rnu", kCommands), "run");
  EXPECT_EQ(ClosestName("stauts", kCommands), "status");
  EXPECT_EQ(ClosestName("sotp", kCommands), "stop");
}

TEST(ClosestNameTest, AShortNameMustShareItsFirstLetter) {
  EXPECT_EQ(ClosestName("top", kCommands), "");
  EXPECT_EQ(ClosestName("gpu", {"cpu", "cuda"}), "");
  EXPECT_EQ(ClosestName("bun", kCommands), "");
}

TEST(ClosestNameTest, ReturnsNothingWithoutASimilarName) {
  EXPECT_EQ(ClosestName("momentum", kFields), "");
  EXPECT_EQ(ClosestName("destroy", kCommands), "");
  EXPECT_EQ(ClosestName("", kFields), "");
  EXPECT_EQ(ClosestName(std::string(100000, 'e'), kFields), "");
  EXPECT_EQ(ClosestName("epochs", {}), "");
}

}  // namespace
}  // namespace torchps

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/data/download_mnist.h"

namespace torchps {
namespace {

absl::StatusOr<std::string> FolderIn(const std::map<std::string, std::string>& environment) {
  return CacheFolder([&environment](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(CacheFolderTest, TheMostSpecificVariableWins) {
  EXPECT_EQ(*FolderIn({{"TORCHPS_CACHE", "/t"}, {"XDG_CACHE_HOME", "/x"}, {"HOME", "/h"}}), "/t");
  EXPECT_EQ(*FolderIn({{"XDG_CACHE_HOME", "/x"}, {"HOME", "/h"}}), "/x/torchps");
  EXPECT_EQ(*FolderIn({{"HOME", "/h"}}), "/h/.cache/torchps");
}

TEST(CacheFolderTest, IgnoresARelativePath) {
  EXPECT_EQ(*FolderIn({{"XDG_CACHE_HOME", "x"}, {"TORCHPS_CACHE", ""}, {"HOME", "/h"}}),
            "/h/.cache/torchps");
}

TEST(CacheFolderTest, ErrorNamesTheVariableToSet) {
  const absl::Status status = FolderIn({{"HOME", "."}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("TORCHPS_CACHE"));
}

}  // namespace
}  // namespace torchps

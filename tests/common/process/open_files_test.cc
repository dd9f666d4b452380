#include <sys/resource.h>

#include "gtest/gtest.h"
#include "torchps/common/process/process_limits.h"

namespace torchps {
namespace {

TEST(OpenFilesTest, RaisesTheSoftLimitToTheHardLimit) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlim_t hard = limit.rlim_max;
  limit.rlim_cur = 100;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(OpenFileLimit(), 100);
  RaiseOpenFileLimit();
  EXPECT_EQ(OpenFileLimit(), static_cast<int64_t>(hard));
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_max, hard);
}

}  // namespace
}  // namespace torchps

#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "torchps/common/process/process_limits.h"

namespace torchps {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;
constexpr char kContainer[] = "whose container may have";
constexpr char kMachine[] = "whose machine has";

// Creates /proc and /sys trees in a temporary folder, with the files that a test puts there.
class MemoryLimitTest : public ::testing::Test {
 protected:
  MemoryLimitTest() {
    std::string pattern = testing::TempDir() + "/memory_limit_XXXXXX";
    root_ = std::string(mkdtemp(pattern.data())) + "/";
  }
  ~MemoryLimitTest() override { std::filesystem::remove_all(root_); }

  void Put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  MemoryLimit Find() { return FindMemoryLimit(root_); }

  std::string root_;
};

TEST_F(MemoryLimitTest, WithoutACgroupTheMachinesMemoryIsTheLimit) {
  EXPECT_EQ(Find().whose, kMachine);
  EXPECT_GT(Find().bytes, 64 * kMib);
}

TEST_F(MemoryLimitTest, TheLowestLimitOfTheGroupAndItsParentsApplies) {
  Put("proc/self/cgroup", "0::/jobs/one\n");
  Put("sys/fs/cgroup/jobs/one/memory.max", "max\n");
  EXPECT_EQ(Find().whose, kMachine);
  Put("sys/fs/cgroup/jobs/memory.max", "33554432\n");
  EXPECT_EQ(Find().bytes, 32 * kMib);
  EXPECT_EQ(Find().whose, kContainer);
  Put("sys/fs/cgroup/jobs/one/memory.max", "16777216\n");
  EXPECT_EQ(Find().bytes, 16 * kMib);
}

TEST_F(MemoryLimitTest, AppliesTheRootGroupsLimit) {
  Put("proc/self/cgroup", "0::/\n");
  Put("sys/fs/cgroup/memory.max", "33554432\n");
  EXPECT_EQ(Find().bytes, 32 * kMib);
}

TEST_F(MemoryLimitTest, ReadsCgroupVersionOne) {
  Put("proc/self/cgroup",
      "9:name=systemd:/\n5:cpu,memory:/docker/4f\n3:memory_not:/x\n0::/docker/4f\n");
  // In a container, only the container's group is mounted, as the root. So the path in
  // proc/self/cgroup does not exist.
  Put("sys/fs/cgroup/memory/memory.limit_in_bytes", "33554432\n");
  EXPECT_EQ(Find().bytes, 32 * kMib);
  // In version 1 this number means that the group has no limit.
  Put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(Find().whose, kMachine);
}

TEST_F(MemoryLimitTest, IgnoresUnreadableFiles) {
  Put("proc/self/cgroup", "memory\n::\n0::/gone\nx:memory:\n");
  Put("sys/fs/cgroup/memory/memory.limit_in_bytes", "");
  EXPECT_EQ(Find().whose, kMachine);
}

TEST_F(MemoryLimitTest, AppliesTheAddressSpaceLimit) {
#if defined(TORCHPS_ASAN) || defined(TORCHPS_TSAN)
  GTEST_SKIP() << "sanitizers need more address space than the limit";
#endif
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = static_cast<rlim_t>(256 * kMib);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  const MemoryLimit found = Find();
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(found.bytes, 256 * kMib);
  EXPECT_NE(found.whose.find("ulimit -v"), std::string::npos);
}

}  // namespace
}  // namespace torchps

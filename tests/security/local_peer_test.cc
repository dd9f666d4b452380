#include "torchps/security/local_peer.h"

#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/tools/base/tcp.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kOverflow = 65534;
constexpr uid_t kUser = 1000;

TEST(LocalPeerTest, AcceptsItsOwnUserAndRoot) {
  EXPECT_TRUE(CheckOwner(kUser, kUser, kOverflow).ok());
  EXPECT_TRUE(CheckOwner(0, kUser, kOverflow).ok());
  EXPECT_TRUE(CheckOwner(0, 0, kOverflow).ok());
  const absl::Status other = CheckOwner(1001, kUser, kOverflow);
  EXPECT_TRUE(absl::IsPermissionDenied(other));
  EXPECT_EQ(other.message(), "belongs to user 1001");
  EXPECT_TRUE(absl::IsPermissionDenied(CheckOwner(kUser, 0, kOverflow)));
}

// In a container, the kernel reports `nobody` for each user of the machine without a mapping. So a
// process that runs as `nobody` cannot know whether a connection is its own.
TEST(LocalPeerTest, RefusesTheOverflowUser) {
  const absl::Status anybody = CheckOwner(kOverflow, kOverflow, kOverflow);
  EXPECT_TRUE(absl::IsUnauthenticated(anybody)) << anybody;
  EXPECT_THAT(std::string(anybody.message()),
              HasSubstr("cannot determine the owner of the connection: user 65534 represents all"));
  EXPECT_TRUE(CheckOwner(0, kOverflow, kOverflow).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(CheckOwner(kUser, kOverflow, kOverflow)));
  EXPECT_TRUE(absl::IsPermissionDenied(CheckOwner(kOverflow, kUser, kOverflow)));
  // If the machine uses another overflow user, 65534 is a normal user.
  EXPECT_TRUE(CheckOwner(kOverflow, kOverflow, /*overflow=*/99).ok());
}

// On the host, or in a container without a user namespace, `nobody` is one normal user.
TEST(LocalPeerTest, AcceptsNobodyWithoutAUserNamespace) {
  EXPECT_EQ(GetOverflowUser("         0          0 4294967295\n", "65534\n"), std::nullopt);
  EXPECT_TRUE(CheckOwner(kOverflow, kOverflow, std::nullopt).ok());
  EXPECT_EQ(GetOverflowUser("0 20000 1\n65534 25534 1\n", "65534\n"), kOverflow);
  EXPECT_EQ(GetOverflowUser("0 100000 65536\n", "99\n"), 99);
  EXPECT_EQ(GetOverflowUser("", ""), kOverflow) << "what is not known is not trusted";
}

TEST(LocalPeerTest, FindsTheOwnerOfALoopbackConnection) {
  std::string address;
  const auto listener = ListenOnLoopback(&address);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto here = ConnectTcp(address);
  ASSERT_TRUE(here.ok()) << here.status();
  const FileDescriptor there(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
  const auto owner = OwnerOfPeer(there.get());
  ASSERT_TRUE(owner.ok()) << owner.status();
  EXPECT_EQ(*owner, geteuid());
}

}  // namespace
}  // namespace torchps

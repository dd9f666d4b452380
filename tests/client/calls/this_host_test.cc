#include "gtest/gtest.h"
#include "torchps/client/calls/server_channel.h"

namespace torchps {
namespace {

TEST(ThisHostTest, RecognizesLoopbackAndThisProcess) {
  EXPECT_TRUE(IsLocalAddress(""));
  EXPECT_TRUE(IsLocalAddress("127.0.0.1:7000"));
  EXPECT_TRUE(IsLocalAddress("127.1.2.3:7000"));
  EXPECT_TRUE(IsLocalAddress("localhost:7000"));
}

TEST(ThisHostTest, RejectsOtherMachinesAndInvalidAddresses) {
  // These addresses are reserved for documentation (RFC 5737).
  EXPECT_FALSE(IsLocalAddress("192.0.2.1:7000"));
  EXPECT_FALSE(IsLocalAddress("203.0.113.9:7000"));
  EXPECT_FALSE(IsLocalAddress("[2001:db8::1]:7000"));
  EXPECT_FALSE(IsLocalAddress("300.1.1.1:7000"));
  EXPECT_FALSE(IsLocalAddress(":7000"));
}

}  // namespace
}  // namespace torchps

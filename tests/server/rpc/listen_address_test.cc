#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/server/rpc/listening_sockets.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

TEST(ListenAddressTest, ParsesHostAndPort) {
  const auto address = ParseListenAddress("ps1.example:7000");
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(address->host, "ps1.example");
  EXPECT_EQ(address->port, 7000);
  EXPECT_FALSE(address->is_loopback);
}

TEST(ListenAddressTest, RecognizesLoopbackAddresses) {
  for (const std::string text : {"127.0.0.1:0", "127.8.9.10:65535", "localhost:1", "[::1]:1"}) {
    const auto address = ParseListenAddress(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_TRUE(address->is_loopback) << text;
  }
}

TEST(ListenAddressTest, RejectsNamesThatResembleLoopback) {
  for (const std::string text : {"127.example:1", "0.0.0.0:1", "[::]:1", "localhost.example:1"}) {
    const auto address = ParseListenAddress(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_FALSE(address->is_loopback) << text;
  }
}

TEST(ListenAddressTest, EveryInterfaceKeepsTheIpVersion) {
  EXPECT_EQ(EveryInterface(*ParseListenAddress("alpha:7000")), "0.0.0.0:7000");
  EXPECT_EQ(EveryInterface(*ParseListenAddress("10.0.0.2:7000")), "0.0.0.0:7000");
  EXPECT_EQ(EveryInterface(*ParseListenAddress("[fd00::1]:7000")), "[::]:7000");
}

TEST(ListenAddressTest, ErrorNamesTheExpectedFormat) {
  for (const std::string text : {"", "7000", ":7000", "host:", "host:x", "host:-1", "host:65536"}) {
    const auto address = ParseListenAddress(text);
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(address.status().message()),
                HasSubstr("cannot listen on '" + text + "'; expected HOST:PORT"));
  }
}

}  // namespace
}  // namespace torchps

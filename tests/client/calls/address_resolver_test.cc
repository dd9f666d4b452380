#include "torchps/client/calls/address_resolver.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fake_coordinator.h"

namespace torchps {
namespace {

// Port 1 is not an ephemeral port, so this address refuses connections.
constexpr char kNobody[] = "127.0.0.1:1";

class AddressResolverTest : public ::testing::Test {
 protected:
  std::shared_ptr<AddressResolver> Open(const std::vector<std::string>& servers) {
    AddressResolver::Options options;
    for (const std::string& server : servers) {
      options.servers.push_back(*AddressSource::Parse(server));
    }
    options.pause = absl::ZeroDuration();
    return std::make_shared<AddressResolver>(std::move(options));
  }

  // Reports the server as missing until the resolver finds it at `address`. Returns false after a
  // timeout.
  static bool IsFoundAt(AddressResolver& book, int index, const std::string& address) {
    return Eventually([&] {
      const std::string here = book.Find(index).address;
      if (here != address) book.Miss(index, here);
      return here == address;
    });
  }

  FakeCoordinator coordinator_;
};

TEST_F(AddressResolverTest, FindsAMovedServerThroughTheCoordinator) {
  const FakeCoordinator moved;
  const auto book = Open({coordinator_.address(), kNobody});
  coordinator_.Place({coordinator_.address(), moved.address()});
  EXPECT_EQ(book->Find(1).address, kNobody);
  EXPECT_TRUE(IsFoundAt(*book, 1, moved.address()));
  EXPECT_EQ(GetAddress(GetEndpoints(book)[1]), moved.address());
}

TEST_F(AddressResolverTest, IgnoresAnAddressThatRefusesConnections) {
  const FakeCoordinator server;
  const auto book = Open({coordinator_.address(), server.address()});
  coordinator_.Place({coordinator_.address(), kNobody});
  book->Miss(1, server.address());
  ASSERT_TRUE(Eventually([&] { return coordinator_.asked() > 0; }));
  book->Miss(1, server.address());
  // The first lookup is over when the second one starts.
  ASSERT_TRUE(Eventually([&] {
    book->Miss(1, server.address());
    return coordinator_.asked() > 1;
  }));
  EXPECT_EQ(book->Find(1).address, server.address());
}

TEST_F(AddressResolverTest, AServerIsFoundAgainAtItsConfiguredAddress) {
  const FakeCoordinator given;
  auto moved = std::make_unique<FakeCoordinator>();
  const auto book = Open({coordinator_.address(), given.address()});
  coordinator_.Place({coordinator_.address(), moved->address()});
  ASSERT_TRUE(IsFoundAt(*book, 1, moved->address()));
  moved = nullptr;
  EXPECT_TRUE(IsFoundAt(*book, 1, given.address()));
}

TEST_F(AddressResolverTest, IgnoresAnInvalidAddress) {
  const auto book = Open({coordinator_.address(), kNobody});
  const std::string path = absl::StrCat(testing::TempDir(), "/bait");
  ASSERT_TRUE(WriteAddressFile(path, coordinator_.address()).ok());
  coordinator_.Place({coordinator_.address(), absl::StrCat("file:", path)});
  book->Miss(1, kNobody);
  ASSERT_TRUE(Eventually([&] {
    book->Miss(1, kNobody);
    return coordinator_.asked() > 1;
  }));
  EXPECT_EQ(book->Find(1).address, kNobody);
}

TEST_F(AddressResolverTest, RereadsTheCoordinatorsAddressFile) {
  const std::string path = absl::StrCat(testing::TempDir(), "/server-0");
  const std::string source = absl::StrCat("file:", path);
  const auto book = Open({source});
  EXPECT_EQ(book->Find(0).address, source) << "the file does not exist yet";
  EXPECT_EQ(GetAddress(GetEndpoints(book)[0]), "");
  ASSERT_TRUE(WriteAddressFile(path, coordinator_.address()).ok());
  EXPECT_TRUE(IsFoundAt(*book, 0, coordinator_.address()));
  const FakeCoordinator moved;
  ASSERT_TRUE(WriteAddressFile(path, moved.address()).ok());
  EXPECT_TRUE(IsFoundAt(*book, 0, moved.address()));
}

TEST_F(AddressResolverTest, LooksUpAServerAfterASecond) {
  const FakeCoordinator moved;
  const auto book = Open({coordinator_.address(), kNobody});
  coordinator_.Place({coordinator_.address(), moved.address()});
  const ServerEndpoint endpoint = GetEndpoints(book)[1];
  EXPECT_FALSE(MovedFrom(endpoint, absl::Milliseconds(900)).has_value());
  EXPECT_EQ(coordinator_.asked(), 0);
  ASSERT_TRUE(Eventually([&] { return MovedFrom(endpoint, absl::Seconds(1)).has_value(); }));
  EXPECT_EQ(MovedFrom(endpoint, absl::ZeroDuration())->address, moved.address())
      << "a known address is returned at once";
}

}  // namespace
}  // namespace torchps

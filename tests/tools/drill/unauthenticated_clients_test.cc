#include "torchps/tools/drill/unauthenticated_clients.h"

#include <sys/socket.h>

#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/plain_worker.h"
#include "torchps/common/clock.h"
#include "torchps/server/server.h"
#include "torchps/tools/base/tcp.h"

namespace torchps {
namespace {

TEST(UnauthenticatedClients, ClientsStayConnectedUntilTheirFaultEnds) {
  std::string address;
  const auto listener = ListenOnLoopback(&address);
  ASSERT_TRUE(listener.ok()) << listener.status();
  UnauthenticatedClients unauthenticated_clients;
  ASSERT_EQ(unauthenticated_clients.Come(0, address, 1), 3);
  std::vector<FileDescriptor> met;
  for (const std::string& words : WordsOfStrangers()) {
    met.emplace_back(accept(listener->get(), nullptr, nullptr));
    const TcpEnd end = ReadUntilEnd(met.back(), absl::Seconds(20), words.size());
    EXPECT_EQ(end.kind, TcpEnd::kOpen);
    EXPECT_EQ(end.bytes, words);
  }
  unauthenticated_clients.Go(1);
  EXPECT_EQ(ReadUntilEnd(met[0], absl::Milliseconds(50)).kind, TcpEnd::kOpen);
  unauthenticated_clients.Go(0);
  for (const FileDescriptor& end : met) {
    EXPECT_EQ(ReadUntilEnd(end, absl::Seconds(20)).kind, TcpEnd::kClosed);
  }
}

TEST(UnauthenticatedClients, WorkerCompletesPushesDespiteHalfOpenPushes) {
  const SteadyClock clock;
  Server::Options options;
  options.listen = "127.0.0.1:0";
  options.clock = &clock;
  options.seed = 1;
  auto server = Server::Start(std::move(options));
  ASSERT_TRUE(server.ok()) << server.status();
  UnauthenticatedClients unauthenticated_clients;
  ASSERT_GT(unauthenticated_clients.Come(0, (*server)->address(), 100), 200);
  PlainWorker worker(PlainChannel((*server)->address()), JobHarness::Hello({}));
  ASSERT_TRUE(worker.Hello().ok());
  ASSERT_TRUE(worker.Initialize(0).ok());
  for (Step step = 1; step <= 10; ++step) {
    const auto pushed = worker.Push(step, 1.0f);
    ASSERT_TRUE(pushed.ok()) << pushed.status();
  }
  const auto status = worker.Status();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->max_version(), 10);
}

}  // namespace
}  // namespace torchps

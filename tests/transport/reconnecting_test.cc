#include <map>
#include <string>

#include "grpc/grpc.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "torchps/transport/grpc_process.h"

namespace torchps {
namespace {

TEST(ReconnectingTest, RetriesAndResolvesAtLeastEverySecond) {
  grpc::ChannelArguments arguments;
  FindAgainSoon(&arguments);
  const grpc_channel_args set = arguments.c_channel_args();
  std::map<std::string, int> values;
  for (size_t i = 0; i < set.num_args; ++i) {
    if (set.args[i].type == GRPC_ARG_INTEGER) values[set.args[i].key] = set.args[i].value.integer;
  }
  EXPECT_EQ(values[GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS], 1000);
  EXPECT_EQ(values[GRPC_ARG_MAX_RECONNECT_BACKOFF_MS], 1000);
  EXPECT_EQ(values[GRPC_ARG_MIN_RECONNECT_BACKOFF_MS], 1000);
  EXPECT_EQ(values[GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS], 100);
}

TEST(ReconnectingTest, FailsWithoutAnAddress) {
  EXPECT_EQ(ChannelTarget("alpha:7000"), "alpha:7000");
  for (const char* const unknown : {"", "file:/shared/server-0"}) {
    const auto channel =
        grpc::CreateChannel(ChannelTarget(unknown), grpc::InsecureChannelCredentials());
    grpc::GenericStub stub(channel);
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareUnaryCall(&context, "/torchps/Any", {}, &queue);
    call->StartCall();
    grpc::ByteBuffer reply;
    grpc::Status status;
    call->Finish(&reply, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue.Next(&tag, &ok));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << unknown;
    queue.Shutdown();
  }
}

}  // namespace
}  // namespace torchps

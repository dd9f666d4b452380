#pragma once

#include <memory>
#include <string>

#include "grpcpp/channel.h"

namespace torchps {

// A server as a worker sees it. Cheap to copy: copies share the channel.
struct ServerEndpoint {
  int index = 0;
  // "HOST:PORT"; empty where the server is inside this process.
  std::string address;
  std::shared_ptr<grpc::Channel> channel;

  // For messages: "server 1 at 10.0.0.2:5000".
  std::string name() const;
};

// A channel with the settings that every connection of ours has; nothing is sent yet, and an
// address at which nobody listens is no error here.
//
// In main, before the first call of the process: see PrepareGrpcEnvironment().
ServerEndpoint ConnectToServer(int index, const std::string& address);

// Sets what gRPC reads from the environment, where the user has not set it: how often an idle
// channel looks after itself, which is the grid on which it reconnects (5 s by default, 0.2 s
// here). Call before any other thread exists.
void PrepareGrpcEnvironment();

}  // namespace torchps

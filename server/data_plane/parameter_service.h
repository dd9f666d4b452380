#pragma once

#include <functional>
#include <memory>

#include "grpcpp/grpcpp.h"
#include "proto/parameter_service.grpc.pb.h"
#include "security/call_admission.h"
#include "server/job/parameter_server.h"
#include "server/rpc/read_places.h"
#include "server/rpc/turn_line.h"

namespace torchps {

// The gRPC shell of a ParameterServer: decode, call one method, encode. Push and Pull stay bytes;
// push_call.h and pull_call.h carry them.
//
// Thread-safe after Listen. `server` and `admission` outlive it.
class ParameterServiceShell {
 public:
  // `shut_down` runs, once at the most, when a peer asks for the end of the process.
  ParameterServiceShell(ParameterServer* server, CallAdmission* admission,
                        std::function<void()> shut_down);

  // To be registered with the ServerBuilder.
  grpc::Service* service() { return &service_; }

  // Arms one completion queue with every method, for the server's whole life. Every call holds a
  // reference to `in_use` until it has ended and will touch the queue no more. `turns` is the line
  // of the threads that poll it, `places` are who they read from; both outlive it.
  void Listen(grpc::ServerCompletionQueue* queue, TurnLine* turns, ReadPlaces* places,
              std::shared_ptr<const void> in_use);

 private:
  using Service = ParameterService::WithAsyncMethod_Hello<ParameterService::WithRawMethod_Push<
      ParameterService::WithRawMethod_Pull<ParameterService::WithAsyncMethod_Renew<
          ParameterService::WithAsyncMethod_Leave<ParameterService::WithAsyncMethod_GetServerStatus<
              ParameterService::WithAsyncMethod_WriteShard<
                  ParameterService::WithAsyncMethod_CommitCheckpoint<
                      ParameterService::WithAsyncMethod_Shutdown<ParameterService::Service>>>>>>>>>;

  ParameterServer* const server_;
  CallAdmission* const admission_;
  const std::function<void()> shut_down_;
  Service service_;
};

}  // namespace torchps

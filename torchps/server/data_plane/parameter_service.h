#pragma once

#include <functional>
#include <memory>

#include "grpcpp/grpcpp.h"
#include "torchps/proto/parameter_service.grpc.pb.h"
#include "torchps/security/call_admission.h"
#include "torchps/server/data_plane/open_calls.h"
#include "torchps/server/data_plane/verified_connections.h"
#include "torchps/server/job/parameter_server.h"
#include "torchps/server/rpc/poller.h"

namespace torchps {

// Connects a ParameterServer to gRPC: decodes each request, calls one method and encodes the reply.
// Push and Pull remain bytes; see push_call.h and pull_call.h.
//
// Thread-safe after Listen. `server` and `admission` outlive this object.
class ParameterServiceShell {
 public:
  // `shut_down` runs after each Shutdown call, with which a peer asks to end the process.
  ParameterServiceShell(ParameterServer* server, CallAdmission* admission,
                        std::function<void()> shut_down);

  // Must be registered with the ServerBuilder.
  grpc::Service* service() { return &service_; }

  // Ends stalled pushes and pulls as OpenPushes and OpenPulls describe, and forgets connections
  // without a live process. Must be called periodically.
  void WatchCalls();

  // Arms the poller's queue with each method for the server's lifetime.
  void Listen(Poller* poller);

 private:
  using Service = ParameterService::WithAsyncMethod_Hello<ParameterService::WithRawMethod_Push<
      ParameterService::WithRawMethod_Pull<ParameterService::WithAsyncMethod_Renew<
          ParameterService::WithAsyncMethod_Leave<ParameterService::WithAsyncMethod_GetServerStatus<
              ParameterService::WithAsyncMethod_WriteShard<
                  ParameterService::WithAsyncMethod_CommitCheckpoint<
                      ParameterService::WithAsyncMethod_StoreCopy<
                          ParameterService::WithAsyncMethod_DropCopies<
                              ParameterService::WithAsyncMethod_ListCopies<
                                  ParameterService::WithAsyncMethod_ReadCopy<
                                      ParameterService::WithAsyncMethod_Shutdown<
                                          ParameterService::Service>>>>>>>>>>>>>;

  ParameterServer* const server_;
  CallAdmission* const admission_;
  const std::function<void()> shut_down_;
  VerifiedConnections known_;
  OpenPushes open_pushes_;
  OpenPulls open_pulls_;
  Service service_;
};

}  // namespace torchps

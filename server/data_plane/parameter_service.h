#pragma once

#include <functional>
#include <memory>

#include "grpcpp/grpcpp.h"
#include "proto/parameter_service.grpc.pb.h"
#include "security/call_admission.h"
#include "server/data_plane/open_pulls.h"
#include "server/data_plane/open_pushes.h"
#include "server/data_plane/verified_connections.h"
#include "server/job/parameter_server.h"
#include "server/rpc/poller.h"

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

  // Ends pushes that say nothing, and pulls that nobody reads, while others wait, as OpenPushes and
  // OpenPulls do, and forgets connections on which no live process speaks any more. To be called
  // now and then.
  void WatchCalls();

  // Arms the poller's queue with every method, for the server's whole life.
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

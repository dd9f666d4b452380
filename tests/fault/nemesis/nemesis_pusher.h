#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/remote_server.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/stop_latch.h"
#include "grpcpp/client_context.h"
#include "proto/coordinator.pb.h"
#include "proto/parameter_service.grpc.pb.h"
#include "tests/fault/nemesis/nemesis_device.h"
#include "tests/fault/nemesis/nemesis_job.h"
#include "tests/fault/nemesis/nemesis_journal.h"

namespace torchps {

// One process of a slot that pushes a NemesisJob's gradients at all servers, by Protobuf's own
// stubs, and writes down what happens before it goes on. A call is made until it is answered.
//
// Not thread-safe. Borrows servers, device, journal and latch.
class NemesisPusher {
 public:
  // Of the servers only where they are and the leases there are its business. `device`: where
  // gradients are computed; null: they are there at once.
  NemesisPusher(NemesisJob job, const std::vector<RemoteServer*>& servers, JoinReply joined,
                NemesisDevice* device, NemesisJournal* journal, StopLatch* stop);

  absl::Status GreetAll();
  absl::Status Initialize();
  // Until stopped.
  absl::Status Train();

 private:
  // What a push sends of a block; asked again for each try.
  using Gradient = std::function<absl::StatusOr<absl::Span<const float>>(BlockId)>;

  struct Peer {
    RemoteServer* server;
    std::unique_ptr<ParameterService::Stub> stub;
    uint64_t life = 0;
  };

  struct PullCall {
    int server;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<PullFrame>> reader;
  };

  absl::Status Greet(int server);
  // Makes a call until it is answered. A stop does not end it, for what has begun is to be known.
  absl::Status Persist(const std::function<absl::Status(grpc::ClientContext*)>& call);
  // The same where the server may have forgotten this slot.
  absl::Status PersistAt(int server, const std::function<absl::Status(grpc::ClientContext*)>& call);
  // From all servers at once, as a worker does: a server knows how far a slot is that has come
  // back only by its first pull, so a slot that waited at one server would hold up at another the
  // one that it waits for. A stop ends it: a slot that is lost may wait for one that waits for it.
  absl::Status PullAll();
  std::unique_ptr<PullCall> BeginPull(int server);
  absl::Status FinishPull(PullCall& call);
  // Returns the blocks that have refused the push as too old.
  absl::StatusOr<std::vector<BlockId>> Push(int server, Step step, const Gradient& gradient);

  const SteadyClock clock_;
  const NemesisJob job_;
  const JoinReply joined_;
  NemesisDevice* const device_;
  NemesisJournal& journal_;
  StopLatch& stop_;
  std::vector<Peer> peers_;
  std::vector<Version> versions_;
  Step step_ = 0;
};

}  // namespace torchps

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "grpcpp/client_context.h"
#include "tests/fault/nemesis/nemesis_device.h"
#include "tests/fault/nemesis/nemesis_job.h"
#include "tests/fault/nemesis/nemesis_journal.h"
#include "torchps/client/remote_server.h"
#include "torchps/common/clock.h"
#include "torchps/common/stop_latch.h"
#include "torchps/common/types.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/proto/parameter_service.grpc.pb.h"

namespace torchps {

// Pushes a NemesisJob's gradients to all servers as one process of a slot, with plain Protobuf
// stubs. Records each step in a journal before continuing. Repeats each call until it is answered.
//
// Not thread-safe. Borrows servers, device, journal and latch.
class NemesisPusher {
 public:
  // Uses only the endpoint and the lease of each server. `device` computes the gradients; null:
  // they are ready at once.
  NemesisPusher(NemesisJob job, const std::vector<RemoteServer*>& servers, JoinReply joined,
                NemesisDevice* device, NemesisJournal* journal, StopLatch* stop);

  absl::Status GreetAll();
  absl::Status Initialize();
  // Pushes steps until stopped.
  absl::Status Train();

 private:
  // Returns the elements to push for a block. Called again for each retry.
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
  // Repeats the call until it is answered, for at most a minute. A stop does not end it, because
  // the journal must contain the outcome of a started call.
  absl::Status Persist(const std::function<absl::Status(grpc::ClientContext*)>& call);
  // Like Persist(), and says Hello again if the server forgot this slot.
  absl::Status PersistAt(int server, const std::function<absl::Status(grpc::ClientContext*)>& call);
  // Pulls from all servers at once, as a worker does. A server learns the step of a reconnected
  // slot only from the slot's first pull. So a slot that waited for one server first could deadlock
  // with another slot. A stop ends the pull even while the servers park it.
  absl::Status PullAll();
  std::unique_ptr<PullCall> BeginPull(int server);
  absl::Status FinishPull(PullCall& call);
  // Returns the blocks that refused the push as too old.
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

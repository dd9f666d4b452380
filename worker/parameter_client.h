#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/model_layout.h"
#include "proto/parameter_service.pb.h"
#include "worker/call_queue.h"
#include "worker/call_round.h"
#include "worker/remote_server.h"
#include "worker/server_channel.h"
#include "worker/stop_latch.h"

namespace torchps {

// What a push led to, summed over its blocks on all servers.
struct PushResult {
  int64_t accepted = 0;
  int64_t scaled = 0;
  int64_t admitted = 0;
  int64_t rejected = 0;
  int64_t late = 0;
  // Of all these, answered a second time.
  int64_t duplicates = 0;
  // The largest over blocks.
  int64_t max_lag = 0;
};

// What a pull told beside the values.
struct PullResult {
  // The smallest floor that a server told: min clock (ASYNC), completed rounds (SYNC).
  Step floor = 0;
  // The longest that a server's staleness bound held this pull.
  absl::Duration parked;
};

// A worker's view of all parameter servers together: one flat vector that it pulls, and pushes
// gradients for. Talks to all servers at once, one stream per server and step, one block per frame,
// and repeats what did not get through under the same name (slot, step), so that it is applied
// once.
//
// Every call blocks until all servers have answered. A server that does not answer is asked again
// until Options::patience is used up. A server that has forgotten this slot (ABORTED) is greeted
// again, once per try, before it is asked again.
//
// Errors of every call:
//   UNAVAILABLE          a server has not answered for `patience`
//   ABORTED              another process has taken over this slot: stop
//   FAILED_PRECONDITION  another job, layout or protocol; no torchps server; one that has restarted
//                        and lost the model: stop
//   INVALID_ARGUMENT     a server refuses what was sent, or sent a frame that does not fit: stop
//   CANCELLED            Options::stop was stopped
//
// Thread-compatible: one thread, the trainer's, makes all calls; it polls the completion queue, and
// no other thread is involved. Renew() alone may be called from any one other thread at the same
// time. Owns no memory of the model: spans are borrowed for the duration of a call, after which
// gRPC holds no reference to them any more.
class ParameterClient {
 public:
  struct Options {
    // In the order of BlockMap's servers. At least one.
    std::vector<ServerEndpoint> servers;
    ModelLayout layout;
    BlockMap block_map;
    // Normalised, as the coordinator has confirmed it.
    JobSpec job;
    uint64_t job_id = 0;
    SlotId slot = 0;
    Incarnation incarnation = 0;
    // How long a server may be silent.
    absl::Duration patience = absl::Seconds(60);
    // Lines for the user: what is being waited for.
    std::function<void(const std::string& line)> say = [](const std::string&) {};
    // Borrowed.
    const Clock* clock = nullptr;
    StopLatch* stop = nullptr;
  };

  static absl::StatusOr<std::unique_ptr<ParameterClient>> Create(Options options);
  ParameterClient(const ParameterClient&) = delete;
  ParameterClient& operator=(const ParameterClient&) = delete;

  // Makes the slot live at every server. Returns the clock to start from: the largest of what the
  // servers tell of their floors and of this slot's last step.
  absl::StatusOr<Step> Hello();

  // Pushes initial values, all layout.size() of them, as step 0.
  absl::Status Initialize(absl::Span<const float> values);

  // Gets all layout.size() values, as soon as the staleness bound lets `clock` read; `read_only`
  // asks no bound and needs no Hello. Keeps the blocks' versions for the next Push. After an error
  // `values` may be partly new.
  absl::StatusOr<PullResult> Pull(Step clock, bool read_only, absl::Span<float> values);

  // Pushes `gradients` (layout.trained_size()) and the values of the averaged buffers
  // (layout.averaged_size()), computed from `weight` samples on what the last Pull brought, as step
  // `step`. Rejected and late blocks are no error.
  // REQUIRES: `step` is above all earlier ones.
  absl::StatusOr<PushResult> Push(Step step, int64_t weight, absl::Span<const float> gradients,
                                  absl::Span<const float> averaged);

  // The slot stops counting at every server. Tries for a few seconds, also after a stop.
  absl::Status Leave();

  // Renews the slot's lease at every server that has been greeted. Thread-safe. Takes at most
  // `timeout` per server, and tells nothing: a server that is away is met by the next Pull or Push.
  void Renew(absl::Duration timeout);

 private:
  explicit ParameterClient(Options options);

  absl::Status CallAll(const std::vector<RemoteServer*>& servers, CallRound::MakeCall make,
                       CallRound::Rules rules);
  // One push to every owner; the replies are in push_replies_.
  absl::Status PushFrom(
      Step step, int64_t weight,
      const std::function<absl::Span<const float>(const BlockRange&)>& payload_of);
  absl::Status CountVerdicts(const RemoteServer& server, const PushReply& reply,
                             PushResult& result) const;
  std::vector<RemoteServer*> AllServers();
  // Servers that own at least one block.
  std::vector<RemoteServer*> Owners();
  absl::Duration TransferTimeout(const RemoteServer& server) const;

  const Options options_;
  std::vector<std::unique_ptr<RemoteServer>> servers_;
  CallQueue queue_;
  // Per block, of the last Pull.
  std::vector<Version> versions_;
  // Per server: where the answer of a Push lands.
  std::vector<PushReply> push_replies_;
};

}  // namespace torchps

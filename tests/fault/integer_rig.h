#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/parameter_client.h"
#include "client/upkeep/heartbeat.h"
#include "common/block_map.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/model_layout.h"
#include "common/stop_latch.h"
#include "proto/job.pb.h"
#include "proto/parameter_service.pb.h"

namespace torchps {

// What workers push at while servers die or the network breaks: a job with small integers for
// gradients and a learning rate of 1, so that sums of floats are exact and one lost or doubled
// block shows; and real clients for its slots. The servers are the test's own.
//
// Thread-safe. Outlives the clients that are made with its options.
class IntegerRig {
 public:
  static constexpr int kServers = 2;
  static constexpr int kSlots = 3;
  static constexpr int64_t kTrained = 4096;
  static constexpr int64_t kAveraged = 600;

  // `staleness_bound` counts in ASYNC only; -1: none.
  IntegerRig(ConsistencySpec::Mode mode, int staleness_bound, int lease_seconds);

  // For `slot` at servers with these addresses.
  ParameterClient::Options ClientOptions(SlotId slot,
                                         const std::vector<std::string>& addresses) const;

  // Renews the slot's lease for as long as what it returns lives; the client outlives that.
  static std::unique_ptr<Heartbeat> KeepAlive(ParameterClient& client);

  // The gradient named (slot, step): integers from -3 to 3, another gradient for another name.
  static std::vector<int> Gradient(SlotId slot, Step step);

  // What the server at `address` says of itself, ledgers too. Fails the test if it does not.
  static ServerStatus GetStatus(const std::string& address);

  const SteadyClock& clock() const { return clock_; }
  StopLatch& stop() { return stop_; }
  const JobSpec& job() const { return options_.job; }
  const ModelLayout& layout() const { return options_.layout; }
  const BlockMap& block_map() const { return options_.block_map; }
  uint64_t job_id() const { return options_.job_id; }

 private:
  const SteadyClock clock_;
  StopLatch stop_;
  // Without slot and servers.
  ParameterClient::Options options_;
};

}  // namespace torchps

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "torchps/client/parameter_client.h"
#include "torchps/client/slot_upkeep.h"
#include "torchps/common/block_map.h"
#include "torchps/common/clock.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/stop_latch.h"
#include "torchps/common/types.h"
#include "torchps/proto/job.pb.h"
#include "torchps/proto/parameter_service.pb.h"

namespace torchps {

// Describes a job with small integer gradients and a learning rate of 1, for tests that push while
// servers die or the network breaks. Sums of floats are exact, so one lost or doubled block is
// visible. Also creates real clients for the job's slots. The tests start the servers.
//
// Thread-safe. Outlives the clients created with its options.
class IntegerRig {
 public:
  static constexpr int kServers = 2;
  static constexpr int kSlots = 3;
  static constexpr int64_t kTrained = 4096;
  static constexpr int64_t kAveraged = 600;

  // `staleness_bound` is used in ASYNC only; -1 means unbounded.
  IntegerRig(ConsistencySpec::Mode mode, int staleness_bound, int lease_seconds);

  // Returns the options of a client for `slot` at servers with these addresses.
  ParameterClient::Options ClientOptions(SlotId slot,
                                         const std::vector<std::string>& addresses) const;

  // Renews the slot's lease until the returned object is destroyed. `client` must outlive it.
  static std::unique_ptr<Heartbeat> KeepAlive(ParameterClient& client);

  // Returns the gradient of a slot and step: integers from -3 to 3, which differ for each step.
  static std::vector<int> Gradient(SlotId slot, Step step);

  // Returns the status of the server at `address`, with ledgers. Fails the test on an error.
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
  // Options without slot and servers.
  ParameterClient::Options options_;
};

}  // namespace torchps

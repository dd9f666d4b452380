#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/simulation/network.h"
#include "tests/simulation/process.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/sim_server.h"
#include "tests/simulation/world.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/proto/parameter_service.pb.h"

namespace torchps::simulation {

// Simulates a ps_worker without arithmetic. Makes the same calls as torchps/worker/ in the same
// order, with the same retries, as a chain of continuations. A run ends with the job, by death, by
// leaving, or by losing the slot.
class SimWorker {
 public:
  SimWorker(World* world, Network* network, std::vector<SimServer*> servers,
            const Scenario* scenario, int seat);

  Process* process() { return &process_; }
  // The worker's incarnation; 0 before it joined.
  Incarnation incarnation() const { return joined_.incarnation(); }
  // True if the coordinator reported the end of the job.
  bool finished() const { return finished_; }
  // Number of blocks, over all pushes, for which a server acknowledged a push and later reported it
  // lost.
  uint64_t rolled_back_blocks() const { return rolled_back_blocks_; }

  // Returns the request that would return the current lease.
  NextWorkRequest Unfinished() const;

  void Start();
  void Kill();
  // Leaves the job and exits.
  void LeaveEarly();
  // Leaves the servers' clocks and continues.
  void StepAside();
  // Freezes before the next push, with a gradient that the servers do not know yet. Runs `then`
  // when the freeze begins.
  void FreezeBeforePush(absl::Duration duration, std::function<void()> then);

 private:
  // Shorter than the real worker's timeouts, so that more happens in less time.
  static constexpr absl::Duration kPromptTimeout = absl::Seconds(1);
  static constexpr absl::Duration kParkTimeout = absl::Seconds(6);
  static constexpr absl::Duration kFirstBackoff = absl::Milliseconds(20);
  static constexpr absl::Duration kLastBackoff = absl::Milliseconds(500);

  static bool MayRetry(const absl::Status& status) {
    return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
           absl::IsCancelled(status);
  }

  using Then = std::function<void()>;
  using Ended = std::function<void(absl::Status)>;
  // Reaction to ABORTED from a server, as in torchps/client/fan_out_call.h.
  enum class Forgotten { kGreetAgain, kFail, kDone };

  // One call to each server, each repeated until it is answered.
  struct Round {
    std::function<void(int server, Ended ended)> attempt;
    Forgotten forgotten = Forgotten::kGreetAgain;
    Then then;
    int left = 0;
    bool dropped = false;
    std::vector<int> pending_hellos;
    std::vector<absl::Duration> backoff;
  };
  using RoundPointer = std::shared_ptr<Round>;

  // A push or pull that continues while the worker does other work.
  struct Transfer {
    std::weak_ptr<Round> round;
    bool done = false;
    Step min_clock = 0;
    // For a push: true if some blocks applied it, or if some refused it as too late.
    bool applied = false;
    bool refused = false;
    Then waiting;
  };
  using TransferPointer = std::shared_ptr<Transfer>;

  RoundPointer Begin(Round round);
  void Try(const RoundPointer& round, int server);
  void Conclude(const RoundPointer& round, int server, const absl::Status& status);
  void WhenDone(const TransferPointer& transfer, Then then);
  void Done(const TransferPointer& transfer);

  // Calls the coordinator and repeats the call until it is answered.
  template <typename Response, typename Send>
  void Ask(absl::Duration timeout, Send send, std::function<void(const Response&)> then);

  void Join();
  void Enter(Then then);
  // Says Hello and runs `ended` with the status. Does not run it if `round` is not null and was
  // dropped.
  void Greet(int server, const RoundPointer& round, Ended ended);
  void TakeHello(int server, const HelloReply& reply);
  void TakeRestored(int server, const HelloReply& reply);
  // `initialization` identifies the answer that asked this worker to initialize the model.
  void AwaitStart(bool initialized, uint32_t initialization = 0);
  void NextWork();
  void TakeWork(const NextWorkReply& work);
  void Evaluate(int epoch);
  void LeaveServers(Then then);
  void TellLeaving(Then then);
  void Finish();
  // Ends this process. Reports a violation if `why` is an error that this worker must not get.
  void Exit(const absl::Status& why);
  void Beat();
  // Asks a restarted server to restore the job, as SlotLeases does.
  void Restore(SimServer* server);
  HelloRequest HelloTo(int server) const;

  void NextStep();
  void PullValues(Then then);
  // Runs `then` with true if the step's gradient would be refused everywhere. Runs it with false if
  // the job does not ask for this check, or after too many such steps in a row.
  void AskIfTooLate(std::function<void(bool is_too_late)> then);
  void BeginTransfers();
  TransferPointer BeginPull(Step clock, bool ahead, bool read_only);
  // `progress` is the job progress when the step's samples were assigned.
  TransferPointer BeginPush(Step step, uint32_t progress = 0);
  // Returns the largest lag of a gradient that is applied. REQUIRES: ASYNC with a bound.
  int64_t LargestLag() const;
  // Sets the samples of the current step's push.
  void SetSamples(PushHeader* header) const;
  // Number of samples in a step of the current lease.
  int64_t StepSamples() const;
  void FinishPush(Then then);

  World* const world_;
  Network* const network_;
  const std::vector<SimServer*> servers_;
  const Scenario* const scenario_;
  const absl::Duration step_time_;
  Process process_;
  bool finished_ = false;
  uint64_t rolled_back_blocks_ = 0;

  // State of the current process.
  uint64_t nonce_ = 0;
  JoinReply joined_;
  struct Server {
    uint64_t life = 0;
    Step start_clock = 0;
    bool expects_model = false;
    bool greeted = false;  // said Hello to this server, and did not leave since
  };
  std::vector<Server> known_;
  std::vector<Version> versions_;
  // By block: acknowledged steps that were not reported lost.
  std::vector<std::set<Step>> acknowledged_;
  // By block: the last step that the restarted server restored.
  std::vector<Step> kept_;
  Step clock_ = 0;
  bool entered_ = false;
  bool pulled_ = false;
  bool idle_ = false;
  uint64_t calls_ = 0;
  uint64_t finished_lease_ = 0;
  DataLease lease_;
  int64_t position_ = 0;
  int stops_in_a_row_ = 0;
  TransferPointer push_;
  // Positions in the lease: of the current push, and of pushes that were refused everywhere.
  LeaseRange pushed_;
  std::vector<LeaseRange> lost_;
  TransferPointer ahead_;
  absl::Duration freeze_;  // before the next push; 0: none
  Then when_frozen_;
};

}  // namespace torchps::simulation

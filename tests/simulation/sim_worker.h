#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/coordinator.pb.h"
#include "proto/parameter_service.pb.h"
#include "tests/simulation/network.h"
#include "tests/simulation/process.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/sim_server.h"
#include "tests/simulation/world.h"

namespace torchps::simulation {

// A ps_worker without its arithmetic: says what worker/ says, in its order, and repeats what it
// repeats, as a chain of continuations. A life of it ends by the job's end, by a death, by leaving,
// or by losing its slot.
class SimWorker {
 public:
  SimWorker(World* world, Network* network, std::vector<SimServer*> servers,
            const Scenario* scenario, int seat);

  Process* process() { return &process_; }
  // Whom it takes itself for; 0: it has not joined.
  Incarnation incarnation() const { return joined_.incarnation(); }
  // It was told that the job is done.
  bool finished() const { return finished_; }
  // Pushes that were acknowledged and are gone, as servers told it.
  uint64_t rolled_back_blocks() const { return rolled_back_blocks_; }

  // How it would hand in what it trains on, if it lived to.
  NextWorkRequest Unfinished() const;

  void Start();
  void Kill();
  // Says farewell and goes.
  void LeaveEarly();
  // Leaves the servers' clocks, and goes on as if nothing were.
  void StepAside();
  // It freezes with its next gradient in hand, of which nobody has heard; `then` happens then.
  void FreezeBeforePush(absl::Duration duration, std::function<void()> then);

 private:
  // Shorter than the worker's, so that more happens in less time.
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
  // What a server's ABORTED leads to, as in client/fan_out_call.h.
  enum class Forgotten { kGreetAgain, kFail, kDone };

  // One call at every server, each repeated until it is answered.
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

  // A push or pull that goes on while the worker does something else.
  struct Transfer {
    std::weak_ptr<Round> round;
    bool done = false;
    Step min_clock = 0;
    // Of a push: blocks that it changed, and that it came too late for.
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

  // One call at the coordinator, repeated until it is answered.
  template <typename Response, typename Send>
  void Ask(absl::Duration timeout, Send send, std::function<void(const Response&)> then);

  void Join();
  void Enter(Then then);
  // For `round`, if any: who drops it drops the call, and hears of no answer.
  void Greet(int server, const RoundPointer& round, Ended ended);
  void TakeHello(int server, const HelloReply& reply);
  void TakeRestored(int server, const HelloReply& reply);
  // `initialization`: by which answer it was to initialise the model.
  void AwaitStart(bool initialized, uint32_t initialization = 0);
  void NextWork();
  void TakeWork(const NextWorkReply& work);
  void Evaluate(int epoch);
  void LeaveServers(Then then);
  void TellLeaving(Then then);
  void Finish();
  // The end of this life by itself.
  void Exit(const absl::Status& why);
  void Beat();

  void NextStep();
  void PullValues(Then then);
  // Whether the step's gradient would change nothing, if the job asks for that and not too often
  // in a row.
  void AskIfTooLate(std::function<void(bool is_too_late)> then);
  void BeginTransfers();
  TransferPointer BeginPull(Step clock, bool ahead, bool read_only);
  // `progress`: how far the job was when the step's samples were handed out.
  TransferPointer BeginPush(Step step, uint32_t progress = 0);
  // The largest lag of a gradient that is applied. REQUIRES: ASYNC with a bound.
  int64_t LargestLag() const;
  // Fills in the samples of the current step's push.
  void SetSamples(PushHeader* header) const;
  // Samples of a step on the lease in hand.
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

  // What follows is of the present life.
  uint64_t nonce_ = 0;
  JoinReply joined_;
  struct Server {
    uint64_t life = 0;
    Step start_clock = 0;
    bool expects_model = false;
    bool greeted = false;  // and not left since
  };
  std::vector<Server> known_;
  std::vector<Version> versions_;
  // By block: acknowledged steps that are not known to be lost.
  std::vector<std::set<Step>> acknowledged_;
  // By block: the last step that its server had when it came back.
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
  // Positions in the lease of the push under way, and of those that changed nothing.
  LeaseRange pushed_;
  std::vector<LeaseRange> lost_;
  TransferPointer ahead_;
  absl::Duration freeze_;  // before the next push; 0: none
  Then when_frozen_;
};

}  // namespace torchps::simulation

#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "grpcpp/completion_queue.h"
#include "worker/client_call.h"
#include "worker/remote_server.h"
#include "worker/stop_latch.h"

namespace torchps {

// One call at each of several servers, all at once, made again where it did not get through, until
// every server has answered. The calling thread polls the queue meanwhile; nobody else does.
//
// Used once, by one thread. Borrows everything. No call is in flight when Run() has returned.
class CallRound {
 public:
  // How a round is bounded beside the servers' patience, and what it does on the way.
  struct Rules {
    // What ABORTED, the word of a server that has forgotten this slot, leads to: a Hello and
    // another try, an error, or nothing, since that is what was wanted.
    enum class Forgotten { kGreetAgain, kFail, kDone };
    Forgotten forgotten = Forgotten::kGreetAgain;
    // A server may hold the call for long: a deadline that passes on a connection that works is no
    // sign of a server that is away.
    bool may_park = false;
    // After a stop the round goes on for so long.
    absl::Duration grace_after_stop = absl::ZeroDuration();
    // Ends the round earlier than the servers' own patience.
    absl::Duration patience = absl::InfiniteDuration();
  };
  // Makes a try's call; called again for every try.
  using MakeCall = std::function<std::unique_ptr<ClientCall>(RemoteServer& server)>;

  CallRound(grpc::CompletionQueue* queue, const Clock* clock, StopLatch* stop, Rules rules,
            MakeCall make);

  // OK when each of `servers` has answered OK. Otherwise the first error that another try would
  // not mend, with the server's name (parameter_client.h lists them), or CANCELLED by the stop.
  absl::Status Run(const std::vector<RemoteServer*>& servers);

 private:
  // One server's part.
  struct Part {
    RemoteServer* server = nullptr;
    std::unique_ptr<ClientCall> call;  // in flight
    bool greeting = false;             // what is in flight, or next, is a Hello
    bool done = false;
    int greetings = 0;
    absl::Duration next_try = absl::ZeroDuration();
  };

  // Begins what is due. Returns when the next try is, infinite where none is waiting.
  absl::Duration BeginDue();
  void Begin(Part& part);
  // Waits for one event, until `wake_at` at most, and follows it up.
  void AwaitEvent(absl::Duration wake_at);
  // After a call of `part` has ended: OK and it is done or has a next try, or the error.
  absl::Status Conclude(Part& part);
  absl::Status Retry(Part& part, const absl::Status& failure);
  void Fail(const absl::Status& status);
  bool InFlight() const;
  bool AllDone() const;

  grpc::CompletionQueue* const queue_;
  const Clock* const clock_;
  StopLatch* const stop_;
  const Rules rules_;
  const MakeCall make_;

  std::vector<Part> parts_;
  absl::Duration give_up_at_ = absl::InfiniteDuration();
  absl::Duration cancel_at_ = absl::InfiniteDuration();
  absl::Status failure_;
};

}  // namespace torchps

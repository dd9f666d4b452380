#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/completion_queue.h"
#include "torchps/client/calls/client_call.h"
#include "torchps/client/remote_server.h"
#include "torchps/common/clock.h"
#include "torchps/common/stop_latch.h"

namespace torchps {

// Makes one round of calls: one call to each of several servers, concurrently. Repeats failed calls
// until all servers have answered. Derived classes create the calls.
//
// All functions run on the polling thread of the CallLoop that started the round. Each object is
// used for one round. Borrows clock, latch and servers. When the round is finished, no call is in
// flight.
class FanOutCall {
 public:
  // Limits of a round in addition to the servers' patience, and the reactions to errors.
  struct Rules {
    // Reaction to ABORTED, the answer of a server that does not know this slot: greet it (send
    // Hello) and repeat the call; the same, but only if the server was greeted before; fail; or
    // treat the call as done.
    enum class Forgotten { kGreetAgain, kGreetIfKnown, kFail, kDone };
    Forgotten forgotten = Forgotten::kGreetAgain;
    // True if a server may hold the call for a long time. Then a timeout on a working connection
    // does not count as silence.
    bool may_park = false;
    // The time that the round may continue after a stop.
    absl::Duration grace_after_stop = absl::ZeroDuration();
    // A call is not repeated later than this time after Begin(), even if the server's patience is
    // longer.
    absl::Duration patience = absl::InfiniteDuration();
    // Makes no call before this time.
    absl::Duration not_before = absl::ZeroDuration();
  };

  FanOutCall(const Clock* clock, StopLatch* stop, Rules rules,
             const std::vector<RemoteServer*>& servers);
  virtual ~FanOutCall() = default;
  FanOutCall(const FanOutCall&) = delete;
  FanOutCall& operator=(const FanOutCall&) = delete;

  void Begin(grpc::CompletionQueue* queue);
  // Does all actions that are due. Returns the time of the next action; infinite if only an event
  // can continue the round.
  absl::Duration Advance();
  // Makes the first calls now, ignoring `not_before`.
  void Hurry();
  // Gives up: finishes the round with `status` once no call is in flight.
  void Fail(const absl::Status& status);

  // The following two may be called on any thread.

  bool finished() const { return finished_; }
  // Returns OK if each server answered OK. Otherwise returns CANCELLED after a stop, or the first
  // permanent error, prefixed with the server's name (parameter_client.h lists the errors).
  // REQUIRES: the round is finished.
  const absl::Status& outcome() const { return failure_; }

 protected:
  // Creates the call for one attempt; called for each attempt. Returns null if the call for this
  // server cannot begin yet.
  virtual std::unique_ptr<ClientCall> MakeCall(RemoteServer& server) = 0;

  // Called after a call to `server` succeeded. Returns false if another call must follow.
  virtual bool Suffices(RemoteServer& /*server*/) { return true; }

  // Finishes the round successfully without any call. REQUIRES: no call was made.
  void SayNothing();

  // Notifies the calls in flight that more data may be ready to send.
  void MoreToSend();

 private:
  // State of one server's calls.
  struct Part {
    RemoteServer* server = nullptr;
    std::unique_ptr<ClientCall> call;  // in flight
    bool greeting = false;             // the current or next call is a Hello
    bool done = false;
    // Number of greetings of `greeted_incarnation` since the last failed connection.
    int pending_hellos = 0;
    uint64_t greeted_incarnation = 0;
    absl::Duration next_try = absl::ZeroDuration();
  };

  // Starts the calls that are due. Returns the time of the next attempt; infinite if none is
  // pending.
  absl::Duration BeginDue(absl::Duration now);
  void BeginCall(Part& part);
  void OnCallDone(Part& part);
  // Handles the end of a call. Returns OK if `part` is done or will be retried, otherwise the
  // error.
  absl::Status Conclude(Part& part, const absl::Status& status);
  absl::Status Retry(Part& part, const absl::Status& failure);
  bool InFlight() const;
  bool AllDone() const;

  const Clock* const clock_;
  StopLatch* const stop_;
  const Rules rules_;

  grpc::CompletionQueue* queue_ = nullptr;
  std::vector<Part> parts_;
  absl::Duration give_up_at_ = absl::InfiniteDuration();
  absl::Duration cancel_at_ = absl::InfiniteDuration();
  absl::Status failure_;
  std::atomic<bool> finished_{false};
};

// Runs a round with calls that can all begin at once.
class PlainRound final : public FanOutCall {
 public:
  using Make = std::function<std::unique_ptr<ClientCall>(RemoteServer& server)>;

  PlainRound(const Clock* clock, StopLatch* stop, Rules rules,
             const std::vector<RemoteServer*>& servers, Make make)
      : FanOutCall(clock, stop, rules, servers), make_(std::move(make)) {}

 private:
  std::unique_ptr<ClientCall> MakeCall(RemoteServer& server) override { return make_(server); }

  const Make make_;
};

}  // namespace torchps

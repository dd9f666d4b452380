#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/calls/client_call.h"
#include "client/remote_server.h"
#include "common/clock.h"
#include "common/stop_latch.h"
#include "grpcpp/completion_queue.h"

namespace torchps {

// One call at each of several servers, all at once, made again where it did not get through, until
// every server has answered. What is called is for the derived class to say.
//
// Everything happens on the thread that polls the CallLoop the round was given to. Used once.
// Borrows clock, latch and servers. No call is in flight when it has finished.
class FanOutCall {
 public:
  // How a round is bounded beside the servers' patience, and what it does on the way.
  struct Rules {
    // What ABORTED, the word of a server that has forgotten this slot, leads to: a Hello and
    // another try, always or where it was greeted before, an error, or nothing, since that is what
    // was wanted.
    enum class Forgotten { kGreetAgain, kGreetIfKnown, kFail, kDone };
    Forgotten forgotten = Forgotten::kGreetAgain;
    // A server may hold the call for long: a deadline that passes on a connection that works is no
    // sign of a server that is away.
    bool may_park = false;
    // After a stop the round goes on for so long.
    absl::Duration grace_after_stop = absl::ZeroDuration();
    // Ends the round earlier than the servers' own patience.
    absl::Duration patience = absl::InfiniteDuration();
    // No call is made before this time.
    absl::Duration not_before = absl::ZeroDuration();
  };

  FanOutCall(const Clock* clock, StopLatch* stop, Rules rules,
             const std::vector<RemoteServer*>& servers);
  virtual ~FanOutCall() = default;
  FanOutCall(const FanOutCall&) = delete;
  FanOutCall& operator=(const FanOutCall&) = delete;

  void Begin(grpc::CompletionQueue* queue);
  // Does what is due by now. Returns when the next thing is, infinite where only an event helps.
  absl::Duration Advance();
  // Makes the first calls now, whatever `not_before` says.
  void Hurry();
  // Gives up: the round finishes with `status` when no call is in flight any more.
  void Fail(const absl::Status& status);

  // On any thread.

  bool finished() const { return finished_; }
  // OK when each server has answered OK. Otherwise the first error that another try would not mend,
  // with the server's name (parameter_client.h lists them), or CANCELLED by the stop. REQUIRES: the
  // round has finished.
  const absl::Status& outcome() const { return failure_; }

 protected:
  // A try's call; called again for every try. Null: there is nothing to say to this server yet.
  virtual std::unique_ptr<ClientCall> MakeCall(RemoteServer& server) = 0;

  // A call at `server` has ended well. False: another one is to follow.
  virtual bool Suffices(RemoteServer& /*server*/) { return true; }

  // There is nothing to say to any server: the round has finished well. REQUIRES: no call was made.
  void SayNothing();

  // Tells the calls in flight that there may be something new to send.
  void MoreToSend();

 private:
  // One server's part.
  struct Part {
    RemoteServer* server = nullptr;
    std::unique_ptr<ClientCall> call;  // in flight
    bool greeting = false;             // what is in flight, or next, is a Hello
    bool done = false;
    // In the server's present life, as far as it was told, since a call last failed to get through.
    int pending_hellos = 0;
    uint64_t greeted_incarnation = 0;
    absl::Duration next_try = absl::ZeroDuration();
  };

  // Begins what is due. Returns when the next try is, infinite where none is waiting.
  absl::Duration BeginDue(absl::Duration now);
  void BeginCall(Part& part);
  void OnCallDone(Part& part);
  // After a call of `part` has ended with `status`: OK and it is done or has a next try, or the
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

// A round whose calls are all there from its beginning.
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

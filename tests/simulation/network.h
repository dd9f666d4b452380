#pragma once

#include <any>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/simulation/process.h"
#include "tests/simulation/world.h"

namespace torchps::simulation {

// Simulates calls between processes. The network loses, delays, duplicates and reorders messages,
// resets connections and partitions processes. The frames of a call arrive in order or not at all,
// as on a connection. Calls may overtake other calls, and a call may arrive after the caller gave
// up.
//
// Not thread-safe.
class Network {
 public:
  // Current fault rates: the fractions of messages that are lost and of calls that arrive twice.
  struct Weather {
    double loss = 0;
    double doubling = 0;
    // Fraction of the messages that are delayed by up to `longest`.
    double stray = 0;
    absl::Duration latency = absl::Milliseconds(1);
    absl::Duration longest = absl::Seconds(2);
  };

  // Represents one arrival of a call at the server. The code that will answer the call owns it.
  class Arrival {
   public:
    // Sends the answer. Ignores later answers.
    template <typename Response>
    void Answer(absl::StatusOr<Response> response) {
      if (!response.ok()) {
        Send(response.status(), std::any());
      } else {
        Send(absl::OkStatus(), std::any(*std::move(response)));
      }
    }
    // Sets an action that runs if the caller disconnects before the answer.
    void OnCancel(std::function<void()> action) { on_cancel_ = std::move(action); }

   private:
    friend class Network;
    void Send(const absl::Status& status, std::any response);
    void Cancel();

    Network* network_ = nullptr;
    uint64_t call_ = 0;
    Process* client_ = nullptr;
    Process* server_ = nullptr;
    uint64_t server_incarnation_ = 0;
    bool broken_ = false;
    bool over_ = false;
    std::function<void()> on_cancel_;
  };
  using ArrivalPointer = std::shared_ptr<Arrival>;
  // Receives one frame at the server.
  using Frame = std::function<void(const ArrivalPointer&)>;

  explicit Network(World* world) : world_(world) {}

  Weather& weather() { return weather_; }

  // Calls `server` with these frames. Runs `done` once, with the answer, UNAVAILABLE, or
  // DEADLINE_EXCEEDED after `timeout`. Does not run it if the client died or restarted before.
  template <typename Response>
  void Call(Process* client, Process* server, absl::Duration timeout, std::vector<Frame> frames,
            std::function<void(absl::StatusOr<Response>)> done) {
    Begin(client, server, timeout, std::move(frames),
          [done = std::move(done)](const absl::Status& status, const std::any& response) {
            if (status.ok()) {
              done(std::any_cast<const Response&>(response));
            } else {
              done(status);
            }
          });
  }

  // Resets the client's calls to the server.
  void Reset(Process* client, Process* server);
  // Resets the calls of a process that died. REQUIRES: `dead` is not alive.
  void OnDeath(Process* dead);
  // Partitions the two processes until `until`.
  void Part(Process* a, Process* b, absl::Duration until) { parted_[Pair(a, b)] = until; }

 private:
  struct OpenCall {
    Process* client = nullptr;
    uint64_t client_incarnation = 0;
    Process* server = nullptr;
    std::function<void(const absl::Status&, const std::any&)> done;
    std::vector<std::weak_ptr<Arrival>> arrivals;
  };

  static std::pair<Process*, Process*> Pair(Process* a, Process* b) {
    return a->name() < b->name() ? std::make_pair(a, b) : std::make_pair(b, a);
  }

  void Begin(Process* client, Process* server, absl::Duration timeout, std::vector<Frame> frames,
             std::function<void(const absl::Status&, const std::any&)> done);
  void SendFrames(uint64_t call, const ArrivalPointer& arrival, const std::vector<Frame>& frames);
  // Returns the transit time of a message; nullopt if it is lost.
  std::optional<absl::Duration> Transit(Process* from, Process* to);
  // Reports the end of a call to the client. Does nothing if the call already ended.
  void End(uint64_t call, const absl::Status& status, const std::any& response);
  void Fail(uint64_t call, const absl::Status& status);

  World* const world_;
  Weather weather_;
  uint64_t last_call_ = 0;
  std::map<uint64_t, OpenCall> open_;
  std::map<std::pair<Process*, Process*>, absl::Duration> parted_;
};

}  // namespace torchps::simulation

#include "tests/simulation/network.h"

#include <algorithm>

namespace torchps::simulation {

void Network::Arrival::Send(const absl::Status& status, std::any response) {
  if (over_) return;
  over_ = true;
  on_cancel_ = nullptr;
  // A server that died, or restarted since the call arrived, does not send the answer.
  if (broken_ || !server_->alive() || server_->life() != server_incarnation_) return;
  const std::optional<absl::Duration> transit = network_->Transit(server_, client_);
  if (!transit.has_value()) return;
  network_->world_->After(
      *transit, [network = network_, call = call_, status, response = std::move(response)] {
        network->End(call, status, response);
      });
}

void Network::Arrival::Cancel() {
  broken_ = true;
  if (over_) return;
  over_ = true;
  if (const auto action = std::exchange(on_cancel_, nullptr)) action();
}

std::optional<absl::Duration> Network::Transit(Process* from, Process* to) {
  const auto parted = parted_.find(Pair(from, to));
  if (parted != parted_.end() && world_->now() < parted->second) return std::nullopt;
  if (world_->Chance(weather_.loss)) return std::nullopt;
  if (world_->Chance(weather_.stray)) {
    return world_->Between(weather_.latency, weather_.longest);
  }
  return world_->Between(weather_.latency / 2, weather_.latency * 2);
}

void Network::Begin(Process* client, Process* server, absl::Duration timeout,
                    std::vector<Frame> frames,
                    std::function<void(const absl::Status&, const std::any&)> done) {
  const uint64_t call = ++last_call_;
  OpenCall& open = open_[call];
  open.client = client;
  open.client_incarnation = client->life();
  open.server = server;
  open.done = std::move(done);
  const int copies = world_->Chance(weather_.doubling) ? 2 : 1;
  for (int copy = 0; copy < copies; ++copy) {
    const auto arrival = std::make_shared<Arrival>();
    arrival->network_ = this;
    arrival->call_ = call;
    arrival->client_ = client;
    arrival->server_ = server;
    SendFrames(call, arrival, frames);
  }
  world_->After(timeout, [this, call] {
    End(call, absl::DeadlineExceededError("no answer in time"), std::any());
  });
}

void Network::SendFrames(uint64_t call, const ArrivalPointer& arrival,
                         const std::vector<Frame>& frames) {
  absl::Duration last;
  for (size_t i = 0; i < frames.size(); ++i) {
    const std::optional<absl::Duration> transit = Transit(arrival->client_, arrival->server_);
    if (!transit.has_value()) return;  // also lost: the later frames on this connection
    last = std::max(last, *transit);
    world_->After(last, [this, call, arrival, frame = frames[i], is_first = i == 0] {
      Process* const server = arrival->server_;
      if (!server->alive()) {
        Fail(call, absl::UnavailableError("connection refused"));
        return;
      }
      if (is_first) arrival->server_incarnation_ = server->life();
      // If the server restarted since the first frame, the restart closed the connection.
      if (arrival->server_incarnation_ != server->life()) return;
      server->Run(server->life(), [this, call, arrival, frame, is_first] {
        const auto open = open_.find(call);
        if (is_first && open != open_.end()) open->second.arrivals.push_back(arrival);
        // A call that was answered accepts no more frames.
        if (!arrival->over_) frame(arrival);
      });
    });
  }
}

void Network::End(uint64_t call, const absl::Status& status, const std::any& response) {
  const auto found = open_.find(call);
  if (found == open_.end()) return;
  const auto open = std::make_shared<OpenCall>(std::move(found->second));
  open_.erase(found);
  // Cancels the arrivals that the server has not answered: duplicates, and calls that timed out.
  for (const std::weak_ptr<Arrival>& weak : open->arrivals) {
    const ArrivalPointer arrival = weak.lock();
    if (arrival == nullptr || arrival->over_) continue;
    const std::optional<absl::Duration> transit = Transit(open->client, open->server);
    if (!transit.has_value()) continue;
    world_->After(*transit, [arrival] {
      arrival->server_->Run(arrival->server_incarnation_, [arrival] { arrival->Cancel(); });
    });
  }
  open->client->Run(open->client_incarnation,
                    [open, status, response] { open->done(status, response); });
}

void Network::Fail(uint64_t call, const absl::Status& status) {
  const auto found = open_.find(call);
  if (found == open_.end()) return;
  const std::optional<absl::Duration> transit = Transit(found->second.server, found->second.client);
  if (!transit.has_value()) return;
  world_->After(*transit, [this, call, status] { End(call, status, std::any()); });
}

void Network::Reset(Process* client, Process* server) {
  std::vector<uint64_t> calls;
  for (const auto& [id, open] : open_) {
    if (open.client == client && open.server == server) calls.push_back(id);
  }
  for (const uint64_t call : calls) {
    const auto found = open_.find(call);
    if (found == open_.end()) continue;
    const std::vector<std::weak_ptr<Arrival>> arrivals = found->second.arrivals;
    for (const std::weak_ptr<Arrival>& weak : arrivals) {
      const ArrivalPointer arrival = weak.lock();
      if (arrival == nullptr) continue;
      arrival->broken_ = true;
      arrival->server_->Run(arrival->server_incarnation_, [arrival] { arrival->Cancel(); });
    }
    End(call, absl::UnavailableError("connection reset"), std::any());
  }
}

void Network::OnDeath(Process* dead) {
  std::vector<uint64_t> of_dead_client;
  for (const auto& [id, open] : open_) {
    if (open.client == dead) of_dead_client.push_back(id);
    // Four of five calls to the dead process break at once, as if only the process died. The others
    // stay silent until their timeout, as if the whole machine died.
    if (open.server == dead && world_->Chance(0.8)) {
      Fail(id, absl::UnavailableError("connection reset"));
    }
  }
  for (const uint64_t call : of_dead_client) {
    End(call, absl::UnavailableError("dead"), std::any());
  }
}

}  // namespace torchps::simulation

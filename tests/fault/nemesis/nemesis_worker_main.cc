// nemesis_worker SERVERS SLOT JOURNAL LEVEL [calm | batches | copies | linked=SEED]: pushes
// counters (nemesis_job.h) to all servers until SIGTERM, with plain Protobuf stubs, and records
// each call in a journal. It also renews leases like a worker. If only this worker is cut off from
// a server, it leaves the clocks of the other servers. If `linked` is given, a device
// (nemesis_device.h) computes the gradients, and the device's link fails at some time.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "tests/fault/nemesis/nemesis_device.h"
#include "tests/fault/nemesis/nemesis_job.h"
#include "tests/fault/nemesis/nemesis_journal.h"
#include "tests/fault/nemesis/nemesis_program.h"
#include "tests/fault/nemesis/nemesis_pusher.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/client/coordinator_client.h"
#include "torchps/client/remote_server.h"
#include "torchps/client/rollback_accounting.h"
#include "torchps/client/slot_leases.h"
#include "torchps/client/slot_upkeep.h"
#include "torchps/common/clock.h"
#include "torchps/common/process/command_line.h"
#include "torchps/common/stop_latch.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/transport/layout_codec.h"

namespace torchps {
namespace {

constexpr absl::Duration kRenewal = absl::Milliseconds(300);
constexpr absl::Duration kPatience = absl::Seconds(60);

void Log(const std::string& line) { std::fprintf(stderr, "nemesis_worker: %s\n", line.c_str()); }

// Renews the leases of this worker. It computes nothing, so it never counts as hung.
class Calls final : public UpkeepCalls {
 public:
  Calls(CoordinatorClient* coordinator, SlotLeases* leases)
      : coordinator_(*coordinator), leases_(*leases) {}

  absl::Duration stalled_for() const override { return absl::ZeroDuration(); }
  absl::StatusOr<RenewSlotReply> RenewSlot(absl::Duration timeout,
                                           RenewSlotRequest request) override {
    return coordinator_.RenewSlot(timeout, std::move(request));
  }
  Renewals RenewLeases(absl::Duration timeout, absl::Duration stalled_for,
                       absl::Duration longest_pause) override {
    return leases_.Renew(timeout, stalled_for, longest_pause);
  }
  void StepAside(absl::Duration timeout, const std::vector<int>& silent) override {
    leases_.StepAside(timeout, silent);
  }

 private:
  CoordinatorClient& coordinator_;
  SlotLeases& leases_;
};

SlotUpkeep MakeUpkeep(const JoinReply& joined, UpkeepCalls* calls, const Clock* clock) {
  SlotUpkeep::Options upkeep;
  upkeep.slot = joined.slot();
  upkeep.lease = absl::Seconds(joined.job().membership().lease_seconds());
  upkeep.log = &Log;
  upkeep.calls = calls;
  upkeep.clock = clock;
  return SlotUpkeep(std::move(upkeep));
}

// `link_seed` seeds the device's link; without it there is no device. Sets `is_broken` if a failed
// link ended the work.
absl::Status Work(const NemesisArguments& arguments, const NemesisJob& job,
                  std::optional<uint64_t> link_seed, StopLatch* stop,
                  std::atomic<bool>* is_broken) {
  const SteadyClock clock;
  std::vector<ServerEndpoint> servers;
  for (const std::string& address : arguments.servers) {
    servers.push_back(ConnectToServer(static_cast<int>(servers.size()), address));
  }
  CoordinatorClient::Options options;
  options.server = servers.front();
  options.patience = kPatience;
  options.log = &Log;
  options.clock = &clock;
  options.stop = stop;
  CoordinatorClient coordinator(std::move(options));

  JoinRequest join;
  join.set_protocol_version(kProtocolVersion);
  *join.mutable_job() = job.spec;
  *join.mutable_layout() = EncodeLayout(job.layout);
  join.set_wanted_slot(arguments.slot);
  std::random_device random;
  join.set_nonce((uint64_t{random()} << 32) | random() | 1);
  join.set_host("nemesis");
  join.set_train_samples(1000);
  join.set_server_count(NemesisJob::kServers);
  for (const std::string& address : arguments.servers) join.add_server_address(address);
  const absl::StatusOr<JoinReply> joined = coordinator.Join(join);
  if (!joined.ok()) return joined.status();

  NemesisJournal journal(arguments.journal);
  journal.Start(joined->incarnation());
  RollbackAccounting accounting(job.map.blocks().size());
  RetryDeadline::Options patience;
  patience.clock = &clock;
  std::vector<std::unique_ptr<RemoteServer>> remotes;
  std::vector<RemoteServer*> borrowed;
  for (const ServerEndpoint& server : servers) {
    remotes.push_back(
        std::make_unique<RemoteServer>(server, HelloRequest(), &job.map, &accounting, patience));
    borrowed.push_back(remotes.back().get());
  }
  SlotLeases leases(joined->slot(), joined->incarnation(), borrowed);
  Calls calls(&coordinator, &leases);
  SlotUpkeep upkeep = MakeUpkeep(*joined, &calls, &clock);
  std::unique_ptr<NemesisDevice> device;
  if (link_seed.has_value()) {
    device =
        std::make_unique<NemesisDevice>(&job, joined->slot(), joined->incarnation(), *link_seed);
  }
  NemesisPusher pusher(job, borrowed, *joined, device.get(), &journal, stop);
  if (absl::Status status = pusher.GreetAll(); !status.ok()) return status;
  absl::Status lost;
  absl::Status status;
  {
    const Heartbeat heartbeat(
        std::min(kRenewal, absl::Seconds(joined->job().membership().lease_seconds()) / 3),
        [&](absl::Duration timeout) { return upkeep.Renew(timeout); },
        [&](const absl::Status& status) { stop->Stop(std::string(status.message())); },
        [&] { return upkeep.pause(); });
    bool initialized = false;
    while (true) {
      const auto action = coordinator.AwaitStart(initialized);
      status = action.status();
      if (!status.ok() || *action != AwaitStartReply::INITIALIZE) break;
      status = pusher.Initialize();
      if (!status.ok()) break;
      initialized = true;
    }
    if (status.ok()) {
      std::puts("training");
      std::fflush(stdout);
      status = pusher.Train();
    }
    lost = heartbeat.status();
  }
  *is_broken = device != nullptr && device->has_failed();
  if (!lost.ok()) return lost;
  if (!status.ok()) return status;
  return coordinator.LeaveJob("stopped");
}

int Main(int argc, char** argv) {
  const std::optional<NemesisArguments> arguments = ParseNemesisArguments(argc, argv);
  absl::string_view how;
  if (arguments.has_value()) how = arguments->how;
  const bool is_calm = how == "calm";
  const bool is_batches = how == "batches";
  const bool has_copies = how == "copies";
  uint64_t seed = 0;
  const bool is_linked = absl::ConsumePrefix(&how, "linked=") && absl::SimpleAtoi(how, &seed);
  if (!arguments.has_value() ||
      (!arguments->how.empty() && !is_calm && !is_batches && !has_copies && !is_linked)) {
    Log("usage: nemesis_worker SERVERS SLOT JOURNAL LEVEL [calm | batches | copies | linked=SEED]");
    return static_cast<int>(ExitCode::kUsage);
  }
  const auto pace = is_calm ? NemesisJob::Pace::kCalm : NemesisJob::Pace::kHurried;
  NemesisJob job =
      NemesisJob::Create(arguments->level, pace, NemesisJob::Carriage::kFloats,
                         is_batches ? NemesisJob::Rule::kWholeBatch : NemesisJob::Rule::kEachPush);
  if (has_copies) job.spec.mutable_durability()->set_copies(1);
  return RunNemesisProgram(
      [&](StopLatch* stop, std::atomic<bool>* is_broken) {
        return Work(*arguments, job, is_linked ? std::make_optional(seed) : std::nullopt, stop,
                    is_broken);
      },
      &Log);
}

}  // namespace
}  // namespace torchps

int main(int argc, char** argv) { return torchps::Main(argc, argv); }

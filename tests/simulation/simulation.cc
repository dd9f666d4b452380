#include "tests/simulation/simulation.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "tests/simulation/network.h"
#include "tests/simulation/sim_server.h"
#include "tests/simulation/sim_worker.h"
#include "tests/simulation/world.h"

namespace torchps::simulation {
namespace {

// Virtual time in which each simulated job ends after the last fault.
constexpr absl::Duration kTimeToFinish = absl::Seconds(120);

// Longer than the longest transit, server freeze and lease together.
constexpr absl::Duration kTimeToNotice = absl::Seconds(60);

class Simulation {
 public:
  explicit Simulation(const RunOptions& options)
      : options_(options),
        world_(options.seed, options.is_traced),
        scenario_(Scenario::Draw(&world_)),
        network_(&world_) {}

  Outcome Run() {
    world_.Trace("seed ", options_.seed, ": ", scenario_.Describe());
    network_.weather() = scenario_.weather;
    auto disk = std::make_shared<FaultyFileSystem>();
    for (int i = 0; i < scenario_.servers; ++i) {
      servers_.push_back(
          std::make_unique<SimServer>(&world_, &network_, &scenario_, options_.fault, i, disk));
      if (!scenario_.shares_directory) disk = std::make_shared<FaultyFileSystem>();
    }
    std::vector<SimServer*> all;
    for (const auto& server : servers_) {
      all.push_back(server.get());
    }
    for (SimServer* const server : all) {
      server->SetPeers(all);
      server->SetOnTakeover([this](SimServer* at, Incarnation before, Incarnation now) {
        OnTakeover(at, before, now);
      });
      server->Start();
      Keep(server);
    }
    for (int i = 0; i < scenario_.seats; ++i) {
      workers_.push_back(std::make_unique<SimWorker>(&world_, &network_, all, &scenario_, i));
      Seat(workers_.back().get(), i < scenario_.job.workers()
                                      ? world_.Between(absl::ZeroDuration(), absl::Seconds(1))
                                      : world_.Between(absl::ZeroDuration(), absl::Seconds(8)));
    }
    PlanTrouble();
    const absl::Duration limit = scenario_.heals_at + kTimeToFinish;
    while (world_.violation().empty() && !AllFinished()) {
      if (!world_.Step() || world_.elapsed() > limit) {
        world_.Violation("the job did not end; the coordinator ",
                         servers_.front()->process()->alive()
                             ? "reports " + servers_.front()->Status().ShortDebugString()
                             : "is dead");
      }
    }
    if (world_.violation().empty())
      servers_.front()->accounting()->CheckEnd(servers_.front()->Status());
    if (scenario_.whole_batches()) LetLeasesRunOut();
    Outcome outcome;
    outcome.violation = world_.violation();
    outcome.digest = world_.digest();
    outcome.events = world_.events();
    outcome.virtual_seconds = absl::ToDoubleSeconds(world_.elapsed());
    outcome.worker_deaths = worker_deaths_;
    for (const auto& server : servers_) {
      outcome.server_deaths += server->deaths();
      outcome.lost_disks += server->lost_disks();
      outcome.batch_updates += server->model().updates().made;
      outcome.early_updates += server->model().updates().early;
    }
    for (const auto& worker : workers_) outcome.rolled_back_blocks += worker->rolled_back_blocks();
    return outcome;
  }

 private:
  bool Healed() const { return world_.elapsed() >= scenario_.heals_at; }

  // True if all workers finished and the coordinator is alive.
  bool AllFinished() const {
    if (!servers_.front()->process()->alive()) return false;
    for (const auto& worker : workers_) {
      if (!worker->finished()) return false;
    }
    return true;
  }

  // All workers have ended. Runs until the servers do not have live slots; then blocks must not
  // hold collected pushes.
  void LetLeasesRunOut() {
    const absl::Duration limit = world_.now() + kTimeToNotice;
    const auto is_over = [](const auto& server) { return server->model().IsOver(); };
    while (world_.violation().empty() && !std::all_of(servers_.begin(), servers_.end(), is_over)) {
      if (!world_.Step() || world_.now() > limit) {
        world_.Violation("the job is over, but a server still has live slots");
      }
    }
    for (const auto& server : servers_) server->model().CheckEnd();
  }

  // Restarts a worker that ends before the job, after a pause, as `psctl run` does.
  void Seat(SimWorker* worker, absl::Duration delay) {
    world_.After(delay, [this, worker] {
      if (!worker->process()->alive() && !worker->finished()) worker->Start();
      Seat(worker, world_.Between(absl::Milliseconds(100), absl::Seconds(2)));
    });
  }

  // Restarts a dead server after a pause.
  void Keep(SimServer* server) {
    world_.After(world_.Between(absl::Milliseconds(100), absl::Seconds(2)), [this, server] {
      if (server->CanStart()) server->Start();
      Keep(server);
    });
  }

  // Calls `strike` at random times, `mean` apart on average, until the faults stop.
  void Repeat(absl::Duration mean, std::function<void()> strike) {
    if (mean == absl::InfiniteDuration()) return;
    world_.After(world_.NextAfter(mean), [this, mean, strike = std::move(strike)] {
      if (Healed()) return;
      strike();
      Repeat(mean, strike);
    });
  }

  SimWorker* GetWorker(Incarnation incarnation) {
    for (const auto& worker : workers_) {
      if (worker->process()->alive() && worker->incarnation() == incarnation) return worker.get();
    }
    return nullptr;
  }

  // Freezes `zombie` before a push, for longer than its lease. Kills and restarts `another` after
  // that lease, so that it can get the zombie's slot.
  void MakeZombie(SimWorker* zombie, SimWorker* another) {
    zombie->FreezeBeforePush(scenario_.lease() + absl::Milliseconds(1500), [this, another] {
      world_.After(scenario_.lease() + absl::Milliseconds(200), [this, another] {
        if (Healed() || !another->process()->alive() || another->finished()) return;
        world_.Trace(another->process()->name(), " is killed");
        ++worker_deaths_;
        another->Kill();
        world_.After(absl::Milliseconds(100), [another] {
          if (!another->process()->alive() && !another->finished()) another->Start();
        });
      });
    });
  }

  // Creates the worst case for the server's check of incarnations, while the slot's previous holder
  // is still frozen. The server dies soon after the takeover. When it restarts, the previous holder
  // arrives first, and is cut off from the servers that would report its lost slot.
  void OnTakeover(SimServer* server, Incarnation before, Incarnation now) {
    SimWorker* const zombie = GetWorker(before);
    SimWorker* const successor = GetWorker(now);
    if (scenario_.zombies == absl::InfiniteDuration() || Healed() || zombie == nullptr ||
        successor == nullptr || !zombie->process()->frozen()) {
      return;
    }
    // Does this at one server only, and at the coordinator only if there is no other server.
    const int others = scenario_.servers - 1;
    if (others > 0 && server->index() != 1 + static_cast<int>(before % others)) return;
    const absl::Duration death = world_.Between(absl::ZeroDuration(), scenario_.fastest_step);
    const absl::Duration back =
        std::max(zombie->process()->frozen_until() - world_.now(), death + absl::Milliseconds(50));
    world_.Trace(zombie->process()->name(), " will be a zombie at ", server->process()->name());
    zombie->process()->Freeze(back);
    for (const auto& other : servers_) {
      if (other.get() == server) continue;
      network_.Part(zombie->process(), other->process(), world_.now() + back + absl::Seconds(1));
    }
    const absl::Duration head_start =
        world_.Between(absl::Milliseconds(50), absl::Milliseconds(500));
    world_.After(death, [this, server, successor, pause = back - death + head_start] {
      if (!server->MayDie()) return;
      server->Kill(world_.Chance(scenario_.power_cuts));
      successor->process()->Freeze(pause);
    });
    world_.After(back - absl::Milliseconds(10), [server] {
      if (server->CanStart()) server->Start();
    });
  }

  SimWorker* SomeWorker() { return workers_[world_.Below(workers_.size())].get(); }
  SimServer* SomeServer() { return servers_[world_.Below(servers_.size())].get(); }

  void PlanTrouble() {
    Repeat(scenario_.worker_deaths, [this] {
      SimWorker* const worker = SomeWorker();
      if (!worker->process()->alive() || worker->finished()) return;
      world_.Trace(worker->process()->name(), " is killed");
      ++worker_deaths_;
      worker->Kill();
      if (options_.fault == Fault::kDropLease) servers_.front()->CountAsUsed(worker->Unfinished());
    });
    Repeat(scenario_.worker_freezes, [this] {
      SimWorker* const worker = SomeWorker();
      const absl::Duration pause = world_.Between(absl::ZeroDuration(), scenario_.lease() * 2);
      world_.Trace(worker->process()->name(), " freezes for ", absl::FormatDuration(pause));
      worker->process()->Freeze(pause);
    });
    Repeat(scenario_.zombies, [this] {
      if (workers_.size() < 2) return;
      const size_t worker = world_.Below(workers_.size());
      const size_t another = (worker + 1 + world_.Below(workers_.size() - 1)) % workers_.size();
      MakeZombie(workers_[worker].get(), workers_[another].get());
    });
    Repeat(scenario_.worker_leaves, [this] {
      SimWorker* const worker = SomeWorker();
      if (worker->process()->alive() && !worker->finished()) worker->LeaveEarly();
    });
    Repeat(scenario_.worker_asides, [this] {
      SimWorker* const worker = SomeWorker();
      if (worker->process()->alive() && !worker->finished()) worker->StepAside();
    });
    Repeat(scenario_.server_deaths, [this] {
      SimServer* const server = SomeServer();
      if (server->MayDie()) server->Kill(world_.Chance(scenario_.power_cuts));
    });
    Repeat(scenario_.disk_losses, [this] {
      SimServer* const server = SomeServer();
      if (server->index() > 0 && server->MayDie()) server->LoseDisk();
    });
    Repeat(scenario_.full_disks, [this] {
      SimServer* const server = SomeServer();
      const absl::Duration time = world_.Between(absl::ZeroDuration(), absl::Seconds(6));
      world_.Trace("the disk of ", server->process()->name(), " is full for ",
                   absl::FormatDuration(time));
      for (const auto& other : servers_) {
        if (other.get() == server || scenario_.shares_directory) other->FillDisk(time);
      }
    });
    if (scenario_.small_disks_at != absl::InfiniteDuration()) {
      world_.After(scenario_.small_disks_at, [this] {
        world_.Trace("the disks become small");
        for (const auto& server : servers_) {
          server->LimitDisk(scenario_.log_room);
          if (scenario_.shares_directory) break;
        }
      });
    }
    Repeat(scenario_.server_freezes, [this] {
      SimServer* const server = SomeServer();
      if (!server->process()->alive()) return;
      const absl::Duration pause = world_.Between(absl::ZeroDuration(), scenario_.lease() * 2);
      world_.Trace(server->process()->name(), " freezes for ", absl::FormatDuration(pause));
      server->process()->Freeze(pause);
    });
    Repeat(scenario_.partings, [this] {
      Process* const worker = SomeWorker()->process();
      Process* const server = SomeServer()->process();
      const absl::Duration time = world_.Between(absl::ZeroDuration(), scenario_.lease() * 3);
      world_.Trace(worker->name(), " and ", server->name(), " are partitioned for ",
                   absl::FormatDuration(time));
      network_.Part(worker, server, world_.now() + time);
    });
    Repeat(scenario_.resets, [this] {
      // Draws both before the call, because the compiler may evaluate arguments in any order.
      Process* const worker = SomeWorker()->process();
      Process* const server = SomeServer()->process();
      network_.Reset(worker, server);
    });
    world_.After(scenario_.heals_at, [this] {
      world_.Trace("faults stop");
      network_.weather().loss = 0;
      network_.weather().stray = 0;
    });
  }

  const RunOptions options_;
  World world_;
  const Scenario scenario_;
  Network network_;
  std::vector<std::unique_ptr<SimServer>> servers_;
  std::vector<std::unique_ptr<SimWorker>> workers_;
  int worker_deaths_ = 0;
};

}  // namespace

Outcome Run(const RunOptions& options) { return Simulation(options).Run(); }

}  // namespace torchps::simulation

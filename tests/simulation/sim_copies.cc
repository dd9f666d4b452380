// Implements the part of SimServer that simulates durability.copies.

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/simulation/sim_server.h"
#include "torchps/checkpoint/checkpoint_directory.h"
#include "torchps/server/backup/backup_peer.h"

namespace torchps::simulation {
namespace {

// Makes the backup calls to a simulated server. A call takes no time. It fails if the server is
// dead or frozen, or if the network loses the request or the answer.
//
// Not thread-safe. Borrows everything.
class SimPeer final : public BackupPeer {
 public:
  // `fault` may be kConfirmLostCopy.
  SimPeer(World* world, Network* network, SimServer* server, Fault fault)
      : world_(world), network_(network), server_(server), fault_(fault) {}

  absl::StatusOr<StoreCopyReply> Store(const StoreCopyRequest& request) override {
    // A log grows, so the size of its files is unknown.
    const bool is_log = request.file().bytes() == 0;
    if (fault_ == Fault::kConfirmLostCopy && is_log && world_->Chance(0.2)) {
      StoreCopyReply reply;
      reply.set_bytes(request.offset() + request.data().size());
      return reply;
    }
    return Call(&BackupStore::Store, request);
  }
  absl::StatusOr<DropCopiesReply> Drop(const DropCopiesRequest& request) override {
    return Call(&BackupStore::Drop, request);
  }
  absl::StatusOr<ListCopiesReply> List(const ListCopiesRequest& request) override {
    return Call(&BackupStore::List, request);
  }
  absl::StatusOr<ReadCopyReply> Read(const ReadCopyRequest& request) override {
    return Call(&BackupStore::Read, request);
  }
  std::string name() const override { return server_->process()->name(); }

 private:
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(absl::StatusOr<Response> (BackupStore::*method)(const Request&),
                                const Request& request) {
    if (!Answers()) return absl::UnavailableError("no connection");
    absl::StatusOr<Response> response = (server_->backup_store()->*method)(request);
    if (!Answers()) return absl::UnavailableError("connection reset");
    return response;
  }
  bool Answers() {
    const Process& process = *server_->process();
    return process.alive() && !process.frozen() && !world_->Chance(network_->weather().loss);
  }

  World* const world_;
  Network* const network_;
  SimServer* const server_;
  const Fault fault_;
};

}  // namespace

std::shared_ptr<BackupPeer> SimServer::MakePeer() {
  if (!scenario_->copies()) return nullptr;
  SimServer* const keeper = peers_[(static_cast<size_t>(index_) + 1) % peers_.size()];
  return std::make_shared<SimPeer>(world_, network_, keeper, fault_);
}

void SimServer::LoseDisk() {
  const bool has_copies = std::all_of(peers_.begin(), peers_.end(), [](SimServer* peer) {
    return peer->process()->alive() && peer->has_copied_all_;
  });
  if (!has_copies) return;
  for (SimServer* const peer : peers_) peer->has_copied_ = peer->has_copied_all_ = false;
  ++lost_disks_;
  disk_loss_ = world_->Chance(0.5) ? DiskLoss::kAll : DiskLoss::kSector;
  world_->Trace(process_.name(),
                disk_loss_ == DiskLoss::kAll ? " loses its disk" : " loses a sector");
  Kill(/*power_cut=*/true);
}

std::string SimServer::OverwriteSector() {
  FileSystem& keeper = peers_[(static_cast<size_t>(index_) + 1) % peers_.size()]->disk_.files();
  const absl::StatusOr<std::vector<std::string>> names = keeper.List(SimDisk::directory());
  std::string copies;
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
    if (absl::StartsWith(name, "copies-of-") && absl::EndsWith(name, absl::StrCat("-", index_))) {
      copies = absl::StrCat(SimDisk::directory(), "/", name);
    }
  }
  const auto copy_of = [&](const std::string& path) {
    return copies + path.substr(SimDisk::directory().size());
  };
  // A damaged log is not replaced by a copy that lacks segments.
  const std::string log = CheckpointDirectory(nullptr, SimDisk::directory())
                              .LogPath(index_, static_cast<int>(peers_.size()));
  const auto segments = disk_.files().List(log);
  const auto copied = keeper.List(copy_of(log));
  const bool has_log = segments.ok() && copied.ok() && *segments == *copied;
  return disk_.MisdirectWrite([&](const std::string& path, size_t bytes) {
    const auto copy = keeper.OpenForReading(copy_of(path));
    return copy.ok() && (*copy)->size() == static_cast<int64_t>(bytes) &&
           (has_log || !absl::StartsWith(path, log));
  });
}

void SimServer::CopySoon() {
  if (storage_ == nullptr || !scenario_->copies() || std::exchange(copying_, true)) return;
  process_.After(world_->Between(absl::Microseconds(100), absl::Milliseconds(5)),
                 [this] { Copy(); });
}

void SimServer::Copy() {
  const absl::StatusOr<bool> more = storage_->CopyStep();
  if (!process_.alive()) return;
  model_.Check();
  if (!more.ok()) {
    world_->Trace(process_.name(), ": its copies: ", more.status().ToString());
    process_.After(absl::Seconds(1), [this] { Copy(); });
    return;
  }
  copying_ = false;
  const bool all_have_jobs = std::all_of(peers_.begin(), peers_.end(),
                                         [](SimServer* peer) { return peer->job_ != nullptr; });
  if (*more) {
    has_copied_ = has_copied_ || all_have_jobs;
    CopySoon();
  } else if (has_copied_) {
    has_copied_all_ = true;
  }
}

}  // namespace torchps::simulation

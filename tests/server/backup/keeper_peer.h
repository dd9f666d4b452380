#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/faulty_file_system.h"
#include "torchps/common/mutex.h"
#include "torchps/server/backup/backup_peer.h"
#include "torchps/server/backup/backup_store.h"

namespace torchps {

// Peer that keeps copies on an in-memory disk, without a network. Tests can disconnect it, restart
// it and erase its disk. Thread-safe.
class KeeperPeer final : public BackupPeer {
 public:
  static constexpr char kDirectory[] = "/peer";

  KeeperPeer() { Restart(); }

  // Restarts the keeper with the same disk.
  void Restart() {
    MutexLock lock(&mutex_);
    keeper_ = std::make_unique<BackupStore>(disk_.get(), kDirectory);
  }
  // Restarts the keeper with an empty disk.
  void LoseDisk() {
    {
      MutexLock lock(&mutex_);
      keeper_ = nullptr;
      disk_ = std::make_unique<FaultyFileSystem>();
    }
    Restart();
  }
  // While away, each call fails as UNAVAILABLE.
  void SetAway(bool away) { away_ = away; }
  // Loses the n-th call from now on: the whole call, or only its answer.
  void LoseCall(int n, bool answer_only) {
    lost_call_ = calls_ + n;
    answer_only_ = answer_only;
  }

  FaultyFileSystem& disk() { return *disk_; }
  std::string Path(const std::string& file) const {
    return absl::StrCat(kDirectory, "/copies-of-77-1/", file);
  }
  // Returns the contents of the copy, or "-" if there is none.
  std::string Contents(const std::string& file) {
    const auto contents = ReadWholeFile(*disk_, Path(file), int64_t{1} << 30);
    return contents.ok() ? *contents : "-";
  }
  int calls() const { return calls_; }
  int64_t stored_bytes() const { return stored_bytes_; }
  int64_t largest_piece() const { return largest_piece_; }
  // Returns the names of the stored files in the order of their pieces. Consecutive pieces of one
  // file give its name once.
  std::string order() const {
    MutexLock lock(&mutex_);
    return order_;
  }

  absl::StatusOr<StoreCopyReply> Store(const StoreCopyRequest& request) override {
    const auto size = static_cast<int64_t>(request.data().size());
    stored_bytes_ += size;
    largest_piece_ = std::max<int64_t>(largest_piece_, size);
    return Ask(&BackupStore::Store, request, request.file().file());
  }
  absl::StatusOr<DropCopiesReply> Drop(const DropCopiesRequest& request) override {
    return Ask(&BackupStore::Drop, request);
  }
  absl::StatusOr<ListCopiesReply> List(const ListCopiesRequest& request) override {
    return Ask(&BackupStore::List, request);
  }
  absl::StatusOr<ReadCopyReply> Read(const ReadCopyRequest& request) override {
    return Ask(&BackupStore::Read, request);
  }
  std::string name() const override { return "server 0 at alpha:7000"; }
  void Cancel() override { cancelled_ = true; }
  // Allows calls again after Cancel().
  void Revive() { cancelled_ = false; }

 private:
  template <class Request, class Response>
  absl::StatusOr<Response> Ask(absl::StatusOr<Response> (BackupStore::*method)(const Request&),
                               const Request& request, const std::string& stored = "") {
    if (cancelled_) return absl::CancelledError("the server stops");
    const bool is_lost = ++calls_ == lost_call_;
    if (away_ || (is_lost && !answer_only_)) return absl::UnavailableError("nobody is there");
    MutexLock lock(&mutex_);
    const absl::StatusOr<Response> response = (*keeper_.*method)(request);
    const std::string name = stored.substr(stored.rfind('/') + 1);
    if (!stored.empty() && order_.size() >= name.size() &&
        order_.compare(order_.size() - name.size(), name.size(), name) != 0) {
      absl::StrAppend(&order_, " ", name);
    } else if (!stored.empty() && order_.empty()) {
      order_ = name;
    }
    if (is_lost) return absl::UnavailableError("the answer is lost");
    return response;
  }

  std::atomic<bool> away_{false};
  std::atomic<bool> cancelled_{false};
  std::atomic<int> calls_{0};
  std::atomic<int> lost_call_{0};
  std::atomic<bool> answer_only_{false};
  std::atomic<int64_t> stored_bytes_{0};
  std::atomic<int64_t> largest_piece_{0};
  mutable Mutex mutex_;
  std::string order_;
  std::unique_ptr<FaultyFileSystem> disk_ = std::make_unique<FaultyFileSystem>();
  std::unique_ptr<BackupStore> keeper_;
};

}  // namespace torchps

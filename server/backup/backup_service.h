#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "proto/parameter_service.pb.h"
#include "server/backup/backup_store.h"
#include "server/parked/replies.h"
#include "storage/file_system.h"

namespace torchps {

// Answers the calls of servers that have copies of their files here, one after the other, on a
// thread of its own, so that no thread that polls waits for the disk. It begins with the first
// call.
//
// Thread-safe. Answers are given on its thread, or at once.
class BackupService {
 public:
  struct Options {
    // Outlives this; needed with a directory.
    FileSystem* files = nullptr;
    // This server's; empty: it has none, and keeps nothing for others.
    std::string directory;
    // The job that this server works for; 0: none yet, and it keeps what is sent. Called on the
    // thread of the call.
    std::function<uint64_t()> job_id = [] { return uint64_t{0}; };
  };
  explicit BackupService(Options options);
  // Stops.
  ~BackupService();
  BackupService(const BackupService&) = delete;
  BackupService& operator=(const BackupService&) = delete;

  // As BackupStore; and FAILED_PRECONDITION: no directory, or another job than this server's;
  // UNAVAILABLE: the server stops.
  void Store(StoreCopyRequest request, Reply<StoreCopyReply> reply);
  void Drop(DropCopiesRequest request, Reply<DropCopiesReply> reply);
  void List(ListCopiesRequest request, Reply<ListCopiesReply> reply);
  void Read(ReadCopyRequest request, Reply<ReadCopyReply> reply);

  // Answers what waits, and all that is still to come, with UNAVAILABLE. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Asks the keeper by `method`, later; `job_id` is the one that the call is about, 0: any.
  template <class Request, class Response>
  void Ask(uint64_t job_id, absl::StatusOr<Response> (BackupStore::*method)(const Request&),
           Request request, Reply<Response> reply) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CheckJob(uint64_t job_id) const;
  void Serve();

  const Options options_;
  BackupStore keeper_;  // of the thread

  Mutex mutex_;
  CondVar wakes_;
  // Each asks the keeper and answers, or, told to, answers that the server stops.
  std::deque<std::function<void(bool stopping)>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps

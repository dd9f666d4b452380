#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "torchps/common/mutex.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/server/backup/backup_store.h"
#include "torchps/server/parked/replies.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// Answers the backup calls of other servers one by one on a dedicated thread, so that polling
// threads never wait for the disk. Starts the thread with the first call.
//
// Thread-safe. Sends an answer on the service's thread, or on the calling thread if it refuses the
// call.
class BackupService {
 public:
  struct Options {
    // Must outlive this. Required if `directory` is set.
    FileSystem* files = nullptr;
    // This server's directory. If empty, the server does not store copies for other servers.
    std::string directory;
    // Returns the job of this server, or 0 before there is one. If it returns 0, copies of any job
    // are accepted. Called on the thread of the call.
    std::function<uint64_t()> job_id = [] { return uint64_t{0}; };
  };
  explicit BackupService(Options options);
  // Calls Stop().
  ~BackupService();
  BackupService(const BackupService&) = delete;
  BackupService& operator=(const BackupService&) = delete;

  // Each runs the BackupStore method with the same name and sends the result. Also sends
  // FAILED_PRECONDITION if there is no directory or the request names a different job than this
  // server's, and UNAVAILABLE if the server is stopping.
  void Store(StoreCopyRequest request, Reply<StoreCopyReply> reply);
  void Drop(DropCopiesRequest request, Reply<DropCopiesReply> reply);
  void List(ListCopiesRequest request, Reply<ListCopiesReply> reply);
  void Read(ReadCopyRequest request, Reply<ReadCopyReply> reply);

  // Answers all waiting and future calls with UNAVAILABLE. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Queues a call of `method` on the store. `job_id` is the job that the request names; 0 means
  // any.
  template <class Request, class Response>
  void Ask(uint64_t job_id, absl::StatusOr<Response> (BackupStore::*method)(const Request&),
           Request request, Reply<Response> reply) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CheckJob(uint64_t job_id) const;
  void Serve();

  const Options options_;
  BackupStore keeper_;  // used only by thread_

  Mutex mutex_;
  CondVar wakes_;
  // Each entry calls the store and answers, or answers UNAVAILABLE if `stopping` is true.
  std::deque<std::function<void(bool stopping)>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps

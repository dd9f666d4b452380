#include "torchps/server/backup/backup_service.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

absl::Status Stopping() { return absl::UnavailableError("this server stops"); }

uint64_t GetJob(const DropCopiesRequest& request) {
  return request.file().empty() ? 0 : request.file(0).job_id();
}

}  // namespace

BackupService::BackupService(Options options)
    : options_(std::move(options)), keeper_(options_.files, options_.directory) {}

BackupService::~BackupService() { Stop(); }

void BackupService::Store(StoreCopyRequest request, Reply<StoreCopyReply> reply) {
  const uint64_t job_id = request.file().job_id();
  Ask(job_id, &BackupStore::Store, std::move(request), std::move(reply));
}

void BackupService::Drop(DropCopiesRequest request, Reply<DropCopiesReply> reply) {
  const uint64_t job_id = GetJob(request);
  Ask(job_id, &BackupStore::Drop, std::move(request), std::move(reply));
}

void BackupService::List(ListCopiesRequest request, Reply<ListCopiesReply> reply) {
  const uint64_t job_id = request.job_id();
  Ask(job_id, &BackupStore::List, std::move(request), std::move(reply));
}

void BackupService::Read(ReadCopyRequest request, Reply<ReadCopyReply> reply) {
  const uint64_t job_id = request.file().job_id();
  Ask(job_id, &BackupStore::Read, std::move(request), std::move(reply));
}

absl::Status BackupService::CheckJob(uint64_t job_id) const {
  if (options_.directory.empty()) {
    return absl::FailedPreconditionError(
        "this server has no directory for copies of other servers' files; start it with --dir");
  }
  const uint64_t own = options_.job_id();
  if (job_id == 0 || own == 0 || own == job_id) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("this server works for another job: number ",
                                                    own, "; the caller's has number ", job_id));
}

template <class Request, class Response>
void BackupService::Ask(uint64_t job_id,
                        absl::StatusOr<Response> (BackupStore::*method)(const Request&),
                        Request request, Reply<Response> reply) {
  absl::Status refusal = CheckJob(job_id);
  if (refusal.ok()) {
    MutexLock lock(&mutex_);
    if (!stopped_) {
      if (!thread_.joinable()) thread_ = std::thread([this] { Serve(); });
      waiting_.push_back(
          [this, method, request = std::move(request), reply = std::move(reply)](bool stopping) {
            reply(stopping ? absl::StatusOr<Response>(Stopping()) : (keeper_.*method)(request));
          });
      wakes_.Signal();
      return;
    }
    refusal = Stopping();
  }
  reply(refusal);
}

void BackupService::Serve() {
  while (true) {
    std::function<void(bool stopping)> next;
    {
      MutexLock lock(&mutex_);
      while (!stopped_ && waiting_.empty()) wakes_.Wait(&mutex_);
      if (stopped_) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    next(/*stopping=*/false);
  }
}

void BackupService::Stop() {
  std::thread thread;
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    wakes_.Signal();
    std::swap(thread, thread_);
  }
  if (thread.joinable()) thread.join();
  std::deque<std::function<void(bool stopping)>> waiting;
  {
    MutexLock lock(&mutex_);
    std::swap(waiting, waiting_);
  }
  for (const auto& answer : waiting) answer(/*stopping=*/true);
}

}  // namespace torchps

#include "torchps/server/job/checkpointer.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

absl::Status Stopping() { return absl::UnavailableError("this server stops"); }

}  // namespace

Checkpointer::Checkpointer(JobDirectory* directory)
    : directory_(directory), thread_([this] { Work(); }) {}

Checkpointer::~Checkpointer() { Stop(); }

void Checkpointer::WriteShard(uint64_t checkpoint, Reply<ShardInfo> reply) {
  absl::StatusOr<ShardInfo> answer;
  {
    MutexLock lock(&mutex_);
    if (stopping_) {
      answer = Stopping();
    } else if (writing_.has_value() && *writing_ != checkpoint) {
      answer = absl::AlreadyExistsError(absl::StrCat("checkpoint ", *writing_,
                                                     " is being written; ask for checkpoint ",
                                                     checkpoint, " when it is done"));
    } else if (!writing_.has_value() && written_ == checkpoint) {
      answer = written_info_;
    } else {
      writing_ = checkpoint;
      waiting_.push_back(std::move(reply));
      changed_.SignalAll();
      return;
    }
  }
  reply(std::move(answer));
}

void Checkpointer::Commit(const CommitCheckpointRequest& request,
                          Reply<CommitCheckpointReply> reply) {
  {
    MutexLock lock(&mutex_);
    if (!stopping_) {
      commits_.push_back({request, std::move(reply)});
      changed_.SignalAll();
      return;
    }
  }
  reply(Stopping());
}

void Checkpointer::Stop() {
  directory_->Abandon();
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void Checkpointer::Work() {
  mutex_.Lock();
  while (!stopping_) {
    if (!commits_.empty()) {
      const PendingCommit commit = std::move(commits_.front());
      commits_.pop_front();
      mutex_.Unlock();
      const absl::Status committed = directory_->Commit(commit.request);
      if (committed.ok()) {
        commit.reply(CommitCheckpointReply());
      } else {
        commit.reply(committed);
      }
      mutex_.Lock();
    } else if (writing_.has_value()) {
      const uint64_t checkpoint = *writing_;
      mutex_.Unlock();
      absl::StatusOr<ShardInfo> info = directory_->WriteShard(checkpoint);
      if (absl::IsCancelled(info.status())) info = Stopping();
      mutex_.Lock();
      writing_.reset();
      if (info.ok()) {
        written_ = checkpoint;
        written_info_ = *info;
      }
      const std::vector<Reply<ShardInfo>> waiting = std::exchange(waiting_, {});
      mutex_.Unlock();
      for (const Reply<ShardInfo>& reply : waiting) reply(info);
      mutex_.Lock();
    } else {
      changed_.Wait(&mutex_);
    }
  }
  const std::deque<PendingCommit> commits = std::exchange(commits_, {});
  const std::vector<Reply<ShardInfo>> waiting = std::exchange(waiting_, {});
  mutex_.Unlock();
  for (const PendingCommit& commit : commits) commit.reply(Stopping());
  for (const Reply<ShardInfo>& reply : waiting) reply(Stopping());
}

}  // namespace torchps

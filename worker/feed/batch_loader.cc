#include "worker/feed/batch_loader.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "common/split_mix64.h"
#include "worker/feed/fetch_batch.h"

namespace torchps {

// A batch on its way. What is not const is guarded by the loader's mutex; a job that is not begun
// belongs to nobody, one that is begun to the thread that makes it.
struct BatchLoader::Job {
  explicit Job(Pass what) : pass(std::move(what)) {}

  const Pass pass;
  bool begun = false;
  bool made = false;
  absl::StatusOr<Batch> batch = absl::UnknownError("not made");
  std::exception_ptr thrown;
};

BatchLoader::BatchLoader(std::shared_ptr<const Dataset> dataset, Augment augment, int threads)
    : dataset_(std::move(dataset)), augment_(std::move(augment)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

BatchLoader::~BatchLoader() {
  {
    const MutexLock lock(&mutex_);
    ended_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void BatchLoader::Expect(std::vector<Pass> passes) {
  const MutexLock lock(&mutex_);
  std::deque<std::shared_ptr<Job>> expected;
  for (Pass& pass : passes) {
    const auto known =
        std::find_if(jobs_.begin(), jobs_.end(),
                     [&pass](const std::shared_ptr<Job>& job) { return job->pass == pass; });
    expected.push_back(known == jobs_.end() ? std::make_shared<Job>(std::move(pass)) : *known);
  }
  jobs_ = std::move(expected);
  changed_.SignalAll();
}

absl::StatusOr<Batch> BatchLoader::Take(const Pass& pass) {
  std::shared_ptr<Job> job;
  {
    const MutexLock lock(&mutex_);
    const auto found = std::find_if(jobs_.begin(), jobs_.end(), [&pass](const auto& candidate) {
      return candidate->pass == pass;
    });
    if (found != jobs_.end()) {
      job = *found;
      jobs_.erase(found);
      // One that no thread has begun is made sooner by this one.
      if (job->begun) {
        while (!job->made) changed_.Wait(&mutex_);
        if (job->thrown != nullptr) std::rethrow_exception(job->thrown);
        return std::move(job->batch);
      }
    }
  }
  return Make(pass);
}

absl::StatusOr<Batch> BatchLoader::Make(const Pass& pass) const {
  absl::StatusOr<Batch> batch = FetchBatch(*dataset_, pass.samples);
  if (!batch.ok() || augment_ == nullptr) return batch;
  return augment_(*std::move(batch), at::make_generator<at::CPUGeneratorImpl>(pass.seed));
}

std::shared_ptr<BatchLoader::Job> BatchLoader::FirstWaiting() const {
  const auto waiting = std::find_if(jobs_.begin(), jobs_.end(),
                                    [](const std::shared_ptr<Job>& job) { return !job->begun; });
  return waiting == jobs_.end() ? nullptr : *waiting;
}

void BatchLoader::Work() {
  while (true) {
    std::shared_ptr<Job> job;
    {
      const MutexLock lock(&mutex_);
      while (!ended_ && (job = FirstWaiting()) == nullptr) changed_.Wait(&mutex_);
      if (ended_) return;
      job->begun = true;
    }
    absl::StatusOr<Batch> batch = absl::UnknownError("not made");
    std::exception_ptr thrown;
    try {
      batch = Make(job->pass);
    } catch (...) {
      thrown = std::current_exception();
    }
    const MutexLock lock(&mutex_);
    job->batch = std::move(batch);
    job->thrown = thrown;
    job->made = true;
    changed_.SignalAll();
  }
}

uint64_t AugmentSeed(uint64_t seed, int epoch, int64_t position) {
  uint64_t state = seed ^ (static_cast<uint64_t>(epoch) << 40) ^ static_cast<uint64_t>(position);
  return SplitMix64(state);
}

}  // namespace torchps

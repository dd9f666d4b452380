#include "torchps/worker/feed/batch_loader.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "torchps/common/hash.h"

namespace torchps {

size_t PartsOfPass(size_t samples, size_t replicas) {
  return std::min(std::max<size_t>(samples / 2, 1), replicas);
}

PartOfPass GetPart(size_t samples, size_t replica, size_t replicas) {
  const size_t parts = PartsOfPass(samples, replicas);
  if (replica >= parts) return {samples, 0};
  const size_t equal = samples / parts;
  const size_t rest = samples % parts;
  return {replica * equal + std::min(replica, rest), equal + (replica < rest ? 1 : 0)};
}

namespace {

absl::Status CheckRows(const std::string& name, const torch::Tensor& tensor, int64_t rows) {
  const auto got = [&](const auto&... words) {
    return absl::InvalidArgumentError(absl::StrCat("the dataset was asked for ", rows,
                                                   " samples, and the batch's ", name, words...));
  };
  if (!tensor.defined()) return got(" is an undefined tensor");
  if (tensor.dim() == 0) return got(" is a scalar; expected a row for each sample");
  if (tensor.size(0) != rows) return got(" has ", tensor.size(0), " rows");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Batch> FetchBatch(const Dataset& dataset, absl::Span<const int64_t> indices) {
  absl::StatusOr<Batch> batch = dataset.Get(indices);
  if (!batch.ok()) return batch;
  const auto rows = static_cast<int64_t>(indices.size());
  absl::Status status = CheckRows("input", batch->input, rows);
  // Some objectives need only the input.
  if (batch->target.defined()) status.Update(CheckRows("target", batch->target, rows));
  for (const torch::Tensor& tensor : batch->more_inputs) {
    status.Update(CheckRows("more_inputs", tensor, rows));
  }
  for (const torch::Tensor& tensor : batch->more_targets) {
    status.Update(CheckRows("more_targets", tensor, rows));
  }
  if (!status.ok()) return status;
  return batch;
}

Batch GetRows(const Batch& batch, int64_t begin, int64_t size) {
  const auto cut = [=](const torch::Tensor& tensor) {
    return tensor.defined() ? tensor.narrow(0, begin, size) : tensor;
  };
  Batch rows{cut(batch.input), cut(batch.target)};
  for (const torch::Tensor& input : batch.more_inputs) rows.more_inputs.push_back(cut(input));
  for (const torch::Tensor& target : batch.more_targets) rows.more_targets.push_back(cut(target));
  return rows;
}

// Holds a batch that is expected, being made, or made. The loader's mutex guards the non-const
// members, with two exceptions. The thread that set `is_raised` moves from `batch` without the
// mutex. The thread that took the finished job out of `jobs_` is then its only user.
struct BatchLoader::Job {
  explicit Job(Pass what) : pass(std::move(what)) {}

  const Pass pass;
  bool begun = false;
  bool made = false;
  // Set by the thread that begins the upload.
  bool is_raised = false;
  absl::StatusOr<Batch> batch = absl::UnknownError("not made");
  // Replaces `batch` when the upload begins.
  std::optional<BatchUploader::Rising> rising;
  std::exception_ptr thrown;
};

BatchLoader::BatchLoader(std::shared_ptr<const Dataset> dataset, Augment augment, int threads,
                         BatchUploader* lift)
    : dataset_(std::move(dataset)), augment_(std::move(augment)), lift_(lift) {
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
  auto taking = absl::MakeCleanup([this] {
    const MutexLock lock(&mutex_);
    is_taking_ = false;
  });
  const std::shared_ptr<Job> job = TakeJob(pass);
  if (job != nullptr && job->thrown != nullptr) std::rethrow_exception(job->thrown);
  absl::StatusOr<Batch> batch = job == nullptr ? Make(pass) : std::move(job->batch);
  if (lift_ == nullptr || !batch.ok()) return batch;
  BatchUploader::Rising rising = job != nullptr && job->rising.has_value()
                                     ? *std::move(job->rising)
                                     : lift_->Begin(*std::move(batch));
  // Queues the upload of the next batch now, so that it runs while the device computes with this
  // batch.
  std::move(taking).Invoke();
  RaiseNext();
  return lift_->Arrive(std::move(rising));
}

std::shared_ptr<BatchLoader::Job> BatchLoader::TakeJob(const Pass& pass) {
  const MutexLock lock(&mutex_);
  is_taking_ = true;
  const auto found = std::find_if(jobs_.begin(), jobs_.end(), [&pass](const auto& candidate) {
    return candidate->pass == pass;
  });
  if (found == jobs_.end()) return nullptr;
  std::shared_ptr<Job> job = *found;
  jobs_.erase(found);
  // If no thread began the batch, the caller makes it at once instead of waiting.
  if (!job->begun) return nullptr;
  const auto is_being_raised = [&job] {
    return job->is_raised && !job->rising.has_value() && job->thrown == nullptr;
  };
  while (!job->made || is_being_raised()) changed_.Wait(&mutex_);
  return job;
}

void BatchLoader::RaiseNext() {
  if (lift_ == nullptr) return;
  std::shared_ptr<Job> job;
  {
    const MutexLock lock(&mutex_);
    if (is_taking_ || jobs_.empty()) return;
    job = jobs_.front();
    if (!job->made || job->is_raised || job->thrown != nullptr || !job->batch.ok()) return;
    job->is_raised = true;
  }
  std::optional<BatchUploader::Rising> rising;
  std::exception_ptr thrown;
  try {
    rising = lift_->Begin(*std::move(job->batch));
  } catch (...) {
    thrown = std::current_exception();
  }
  const MutexLock lock(&mutex_);
  job->rising = std::move(rising);
  job->thrown = thrown;
  changed_.SignalAll();
}

absl::StatusOr<Batch> BatchLoader::Make(const Pass& pass) const {
  absl::StatusOr<Batch> batch = FetchBatch(*dataset_, pass.samples);
  if (!batch.ok()) return batch;
  if (augment_ != nullptr) {
    batch = augment_(*std::move(batch), at::make_generator<at::CPUGeneratorImpl>(pass.seed));
  }
  if (lift_ != nullptr) batch = lift_->Stage(*std::move(batch));
  return batch;
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
      if (lift_ != nullptr) lift_->EnterThread();
      batch = Make(job->pass);
    } catch (...) {
      thrown = std::current_exception();
    }
    {
      const MutexLock lock(&mutex_);
      job->batch = std::move(batch);
      job->thrown = thrown;
      job->made = true;
      changed_.SignalAll();
    }
    RaiseNext();
  }
}

uint64_t AugmentSeed(uint64_t seed, int epoch, int64_t position) {
  uint64_t state = seed ^ (static_cast<uint64_t>(epoch) << 40) ^ static_cast<uint64_t>(position);
  return SplitMix64(state);
}

}  // namespace torchps

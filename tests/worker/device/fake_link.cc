#include "tests/worker/device/fake_link.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "torchps/common/check.h"
#include "torchps/common/hash.h"

namespace torchps {

float FakeLink::Poison() {
  constexpr uint32_t kBits = 0x7fc0dead;
  float poison = 0;
  std::memcpy(&poison, &kBits, sizeof(poison));
  return poison;
}

FakeLink::FakeLink(Options options) : options_(options), random_(options.seed) {
  if (options_.own_thread) thread_ = std::thread([this] { Run(); });
}

FakeLink::~FakeLink() {
  if (!options_.own_thread) {
    while (Step()) {
    }
    return;
  }
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void FakeLink::Compute(std::function<void()> kernel) {
  TPS_CHECK(!options_.own_thread, "with own_thread, the caller computes");
  MutexLock lock(&mutex_);
  Job job;
  job.end = std::move(kernel);
  Add(kCompute, std::move(job));
}

bool FakeLink::Step() {
  MutexLock lock(&mutex_);
  return StepLocked();
}

int64_t FakeLink::operations() const {
  MutexLock lock(&mutex_);
  return operations_;
}

absl::Status FakeLink::Operation() {
  if (operations_++ == options_.fail_at && error_.ok()) {
    error_ = absl::InternalError(absl::StrCat("operation ", options_.fail_at, " has failed"));
    if (options_.has_failed != nullptr) *options_.has_failed = true;
    changed_.SignalAll();
  }
  return error_;
}

void FakeLink::Add(Order order, Job job) {
  orders_[order].push_back(std::move(job));
  changed_.SignalAll();
}

DeviceLink::Mark FakeLink::AddPoint(Order order) {
  auto point = std::make_shared<Point>();
  Job job;
  job.end = [point] { point->reached = true; };
  Add(order, std::move(job));
  return point;
}

absl::StatusOr<DeviceLink::Mark> FakeLink::AfterCompute() {
  MutexLock lock(&mutex_);
  if (absl::Status status = Operation(); !status.ok()) return status;
  if (options_.own_thread) return Mark();
  return AddPoint(kCompute);
}

absl::StatusOr<DeviceLink::Mark> FakeLink::AfterUps() {
  MutexLock lock(&mutex_);
  if (absl::Status status = Operation(); !status.ok()) return status;
  return AddPoint(kUp);
}

absl::Status FakeLink::ComputeAfter(const Mark& mark) {
  MutexLock lock(&mutex_);
  if (absl::Status status = Operation(); !status.ok()) return status;
  const auto point = std::static_pointer_cast<const Point>(mark);
  if (point == nullptr) return absl::OkStatus();
  if (!options_.own_thread) {
    Job job;
    job.after = point;
    Add(kCompute, std::move(job));
    return absl::OkStatus();
  }
  // The caller computes at once, so it must wait here until the mark is reached.
  Await([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return point->reached || !error_.ok(); });
  return error_;
}

absl::Status FakeLink::CopyInCompute(absl::Span<const float> device_from,
                                     absl::Span<float> device_to) {
  MutexLock lock(&mutex_);
  if (absl::Status status = Operation(); !status.ok()) return status;
  Job copy = Copy(/*after=*/nullptr, device_from, device_to);
  if (options_.own_thread) {
    copy.end();
  } else {
    Add(kCompute, std::move(copy));
  }
  return absl::OkStatus();
}

absl::Status FakeLink::WhenReached(const Mark& mark, Done done) {
  MutexLock lock(&mutex_);
  if (absl::Status status = Operation(); !status.ok()) return status;
  Job job;
  job.after = std::static_pointer_cast<const Point>(mark);
  job.done = std::move(done);
  Add(kMarks, std::move(job));
  return absl::OkStatus();
}

absl::Status FakeLink::Down(const Mark& after, absl::Span<const float> device,
                            absl::Span<float> host, Done done) {
  MutexLock lock(&mutex_);
  if (absl::Status status = Operation(); !status.ok()) return status;
  if (options_.downs != nullptr && !host.empty()) ++*options_.downs;
  // Poisons the host's memory, because the host must not read it before the copy ends.
  std::fill(host.begin(), host.end(), Poison());
  Job copy = Copy(after, device, host);
  copy.done = std::move(done);
  ++downs_;
  Add(kDown, std::move(copy));
  return absl::OkStatus();
}

absl::Status FakeLink::InDowns(const Mark& after, Give give) {
  MutexLock lock(&mutex_);
  if (absl::Status status = Operation(); !status.ok()) return status;
  Job job;
  job.after = std::static_pointer_cast<const Point>(after);
  job.end = [this, give = std::move(give)]()
                ABSL_NO_THREAD_SAFETY_ANALYSIS { error_.Update(give()); };
  // The end of this job counts as an operation, like the end of a copy.
  job.is_copy = true;
  Add(kDown, std::move(job));
  return absl::OkStatus();
}

absl::Status FakeLink::Up(const Mark& after, absl::Span<const float> host,
                          absl::Span<float> device) {
  MutexLock lock(&mutex_);
  if (absl::Status status = Operation(); !status.ok()) return status;
  Add(kUp, Copy(after, host, device));
  return absl::OkStatus();
}

FakeLink::Job FakeLink::Copy(const Mark& after, absl::Span<const float> from,
                             absl::Span<float> to) {
  TPS_CHECK(from.size() == to.size(), "a copy between ranges of different lengths");
  Job job;
  job.after = std::static_pointer_cast<const Point>(after);
  job.begin = [to] { std::fill(to.begin(), to.end(), Poison()); };
  job.end = [from, to] { std::copy(from.begin(), from.end(), to.begin()); };
  job.is_copy = true;
  return job;
}

template <typename IsOver>
void FakeLink::Await(IsOver is_over) {
  while (!is_over()) {
    if (options_.own_thread) {
      changed_.Wait(&mutex_);
    } else {
      TPS_CHECK(StepLocked(), "this is waited for without end");
    }
  }
}

void FakeLink::AwaitDowns() {
  MutexLock lock(&mutex_);
  Await([this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return downs_ == 0; });
}

absl::Status FakeLink::AwaitUps() {
  MutexLock lock(&mutex_);
  if (absl::Status status = Operation(); !status.ok()) return status;
  Await([this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return orders_[kUp].empty(); });
  return error_;
}

bool FakeLink::MayStep(const std::deque<Job>& order) const {
  if (order.empty()) return false;
  const Job& next = order.front();
  return next.after == nullptr || next.after->reached || !error_.ok();
}

bool FakeLink::StepLocked() {
  std::vector<std::deque<Job>*> choices;
  for (std::deque<Job>& order : orders_) {
    if (MayStep(order)) choices.push_back(&order);
  }
  if (choices.empty()) return false;
  std::deque<Job>& order = *choices[SplitMix64(random_) % choices.size()];
  Job& next = order.front();
  if (next.begin != nullptr && !std::exchange(next.has_begun, true) && error_.ok()) {
    next.begin();
    return true;
  }
  const absl::Status status = next.is_copy ? Operation() : error_;
  // After an error, do not run later operations.
  if (status.ok() && next.end != nullptr) next.end();
  if (next.done != nullptr) {
    const Done done = std::move(next.done);
    mutex_.Unlock();
    done(status);
    mutex_.Lock();
    if (&order == &orders_[kDown]) --downs_;
  }
  // While the mutex was unlocked, more jobs may have come. But this job is still the first.
  order.pop_front();
  changed_.SignalAll();
  return true;
}

void FakeLink::Run() {
  MutexLock lock(&mutex_);
  while (true) {
    if (StepLocked()) continue;
    if (stopping_) return;
    changed_.Wait(&mutex_);
  }
}

}  // namespace torchps

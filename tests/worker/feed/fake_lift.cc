#include "tests/worker/feed/fake_lift.h"

#include <algorithm>
#include <limits>

#include "c10/util/Exception.h"
#include "torch/types.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

template <typename Use>
void ForEachTensor(Batch* batch, Use use) {
  std::vector<torch::Tensor*> tensors = {&batch->input, &batch->target};
  for (torch::Tensor& tensor : batch->more_inputs) tensors.push_back(&tensor);
  for (torch::Tensor& tensor : batch->more_targets) tensors.push_back(&tensor);
  for (torch::Tensor* const tensor : tensors) {
    if (tensor->defined()) use(*tensor);
  }
}

torch::Tensor Poisoned(const torch::Tensor& tensor) {
  torch::Tensor poisoned = torch::empty_like(tensor);
  return tensor.is_floating_point() ? poisoned.fill_(std::numeric_limits<float>::quiet_NaN())
                                    : poisoned.fill_(-1);
}

}  // namespace

FakeLift::FakeLift(Options options) : options_(options), random_(options.seed) { EnterThread(); }

void FakeLift::EnterThread() {
  const MutexLock lock(&mutex_);
  entered_.insert(std::this_thread::get_id());
}

void FakeLift::CheckThread() const {
  TORCH_CHECK(entered_.count(std::this_thread::get_id()) == 1, "a thread that was not entered");
}

void FakeLift::EndFirst() {
  Copy& copy = *under_way_.front();
  for (const auto& [from, to] : copy.tensors) to.copy_(from);
  copy.ended = true;
  under_way_.pop_front();
}

void FakeLift::Pass() {
  while (!under_way_.empty() && SplitMix64(random_) % 3 == 0) EndFirst();
}

Batch FakeLift::Stage(Batch batch) {
  const MutexLock lock(&mutex_);
  CheckThread();
  ForEachTensor(&batch, [this](torch::Tensor& tensor) {
    tensor = tensor.clone();
    staged_.push_back(tensor);
  });
  Pass();
  return batch;
}

BatchUploader::Rising FakeLift::Begin(Batch batch) {
  const MutexLock lock(&mutex_);
  CheckThread();
  const int number = options_.counts->begun++;
  changed_.SignalAll();
  TORCH_CHECK(number != options_.fail_at, "copy ", number, " has failed");
  if (number > options_.counts->passes) ++options_.counts->ahead;
  options_.counts->max_rising =
      std::max<int>(options_.counts->max_rising, number + 1 - options_.counts->arrived);
  auto copy = std::make_shared<Copy>();
  ForEachTensor(&batch, [&](torch::Tensor& tensor) {
    const bool is_staged =
        std::any_of(staged_.begin(), staged_.end(),
                    [&tensor](const torch::Tensor& staged) { return staged.is_same(tensor); });
    TORCH_CHECK(is_staged, "a batch that was not staged");
    const torch::Tensor from = tensor;
    tensor = Poisoned(from);
    copy->tensors.emplace_back(from, tensor);
  });
  under_way_.push_back(copy);
  Pass();
  return {std::move(batch), copy};
}

Batch FakeLift::Arrive(Rising rising) {
  const MutexLock lock(&mutex_);
  CheckThread();
  TORCH_CHECK(rising.end != nullptr, "a batch that was not begun");
  ++options_.counts->arrived;
  while (!static_cast<const Copy*>(rising.end.get())->ended) EndFirst();
  return std::move(rising.batch);
}

void FakeLift::EndPass() {
  const MutexLock lock(&mutex_);
  CheckThread();
  ++options_.counts->passes;
  Pass();
}

void FakeLift::AwaitBegun(int copies) {
  const MutexLock lock(&mutex_);
  while (options_.counts->begun < copies) changed_.Wait(&mutex_);
}

}  // namespace torchps

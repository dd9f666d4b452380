#include "torchps/worker/stages/pipeline.h"

#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>

#include "torchps/common/check.h"
#include "torchps/worker/precision/precision.h"

namespace torchps {

std::vector<PipelineStep> OneForwardOneBackward(int stage, int stages, int micro_batches) {
  TPS_CHECK(stage >= 0 && stage < stages, "a stage is one of the stages");
  TPS_CHECK(micro_batches >= 1, "a batch has a part");
  std::vector<PipelineStep> steps;
  const int ahead = std::min(stages - 1 - stage, micro_batches);
  int forward = 0;
  while (forward < ahead) steps.push_back({true, forward++});
  for (int backward = 0; backward < micro_batches; ++backward) {
    if (forward < micro_batches) steps.push_back({true, forward++});
    steps.push_back({false, backward});
  }
  return steps;
}

Pipeline::Pipeline(std::vector<ModelStage> stages, std::vector<torch::Device> devices,
                   TrainingSpec::Precision precision)
    : stages_(std::move(stages)), devices_(std::move(devices)), precision_(precision) {
  TPS_CHECK(!stages_.empty() && stages_.size() == devices_.size(), "each stage has a device");
  for (int stage = 0; stage < last(); ++stage)
    threads_.emplace_back([this, stage] { Serve(stage); });
}

Pipeline::~Pipeline() {
  {
    const MutexLock lock(&mutex_);
    ended_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::Status Pipeline::Run(const Work& work) {
  TPS_CHECK(!work.inputs.empty(), "a run has a micro-batch");
  {
    const MutexLock lock(&mutex_);
    work_ = &work;
    ++runs_;
    computing_ = threads_.size();
    failure_ = Failure();
    activations_.assign(stages_.size(), {});
    gradients_.assign(stages_.size(), {});
    changed_.SignalAll();
  }
  RunStage(last(), work);
  Failure failure;
  {
    const MutexLock lock(&mutex_);
    while (computing_ > 0) changed_.Wait(&mutex_);
    work_ = nullptr;
    // Drops items that a failed run left.
    activations_.clear();
    gradients_.clear();
    std::swap(failure, failure_);
  }
  failed_stage_ = failure.stage;
  if (failure.thrown != nullptr) std::rethrow_exception(failure.thrown);
  return failure.status;
}

void Pipeline::Serve(int stage) {
  uint64_t done = 0;
  while (true) {
    const Work* work = nullptr;
    {
      const MutexLock lock(&mutex_);
      while (!ended_ && runs_ == done) changed_.Wait(&mutex_);
      if (ended_) return;
      done = runs_;
      work = work_;
    }
    RunStage(stage, *work);
    const MutexLock lock(&mutex_);
    --computing_;
    changed_.SignalAll();
  }
}

void Pipeline::RunStage(int stage, const Work& work) {
  try {
    const c10::DeviceGuard device(devices_[stage]);
    const auto micro_batches = static_cast<int>(work.inputs.size());
    std::deque<Held> held;
    for (const PipelineStep& step :
         OneForwardOneBackward(stage, static_cast<int>(stages_.size()), micro_batches)) {
      const absl::Status status = step.forward ? Forward(stage, step.micro_batch, work, &held)
                                               : Backward(stage, step.micro_batch, work, &held);
      if (!status.ok()) return Fail({stage, status, nullptr});
    }
  } catch (...) {
    Fail({stage, absl::OkStatus(), std::current_exception()});
  }
}

absl::Status Pipeline::Forward(int stage, int micro_batch, const Work& work,
                               std::deque<Held>* held) {
  Held kept;
  if (stage == 0) {
    kept.input = work.inputs[micro_batch].to(devices_[stage]);
  } else {
    absl::StatusOr<Passed> passed = Take(&activations_, stage);
    if (!passed.ok()) return passed.status();
    kept.input = passed->tensor.to(devices_[stage]);
    kept.input.set_requires_grad(passed->wants_gradient);
  }
  const Autocast autocast(precision_, devices_[stage].type());
  kept.output = stages_[stage].Forward(kept.input);
  if (stage == last()) {
    absl::StatusOr<torch::Tensor> loss = work.loss(micro_batch, kept.output);
    if (!loss.ok()) return loss.status();
    kept.output = *std::move(loss);
  } else {
    // Passes a detached tensor on the same memory, so that this stage's autograd graph ends here.
    Put(&activations_, stage + 1, {kept.output.detach(), kept.output.requires_grad()});
  }
  held->push_back(std::move(kept));
  return absl::OkStatus();
}

absl::Status Pipeline::Backward(int stage, int micro_batch, const Work& work,
                                std::deque<Held>* held) {
  const Held kept = std::move(held->front());
  held->pop_front();
  if (stage == last()) {
    if (micro_batch == 0) {
      if (absl::Status status = work.before_backward(); !status.ok()) return status;
    }
    kept.output.backward();
  } else {
    const absl::StatusOr<Passed> passed = Take(&gradients_, stage);
    if (!passed.ok()) return passed.status();
    // Frozen stages need no gradient. The gradient is undefined if the loss does not depend on the
    // output.
    if (kept.output.requires_grad() && passed->tensor.defined()) {
      torch::autograd::backward({kept.output}, {passed->tensor.to(devices_[stage])});
    }
  }
  if (stage > 0) Put(&gradients_, stage - 1, {kept.input.grad()});
  return absl::OkStatus();
}

void Pipeline::Put(Queues* queues, int stage, Passed passed) {
  const MutexLock lock(&mutex_);
  (*queues)[stage].push_back(std::move(passed));
  changed_.SignalAll();
}

absl::StatusOr<Pipeline::Passed> Pipeline::Take(Queues* queues, int stage) {
  const MutexLock lock(&mutex_);
  std::deque<Passed>& queue = (*queues)[stage];
  while (queue.empty() && failure_.stage < 0) changed_.Wait(&mutex_);
  if (failure_.stage >= 0) return absl::CancelledError("another stage has failed");
  Passed passed = std::move(queue.front());
  queue.pop_front();
  return passed;
}

void Pipeline::Fail(Failure failure) {
  const MutexLock lock(&mutex_);
  if (failure_.stage >= 0) return;
  failure_ = std::move(failure);
  changed_.SignalAll();
}

}  // namespace torchps

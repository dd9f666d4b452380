#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "worker/call_forward.h"
#include "worker/evaluation.h"
#include "worker/objective.h"

namespace torchps {

// What a program may do beside training. All run on the thread that trains; null ones are left
// out. What one throws ends the worker with its message.
struct Callbacks {
  struct Step {
    int64_t step = 0;     // of this worker, from 1
    int64_t samples = 0;  // behind its gradient
    double loss = 0;      // their mean
  };

  // After this worker's gradient of a step was computed.
  std::function<void(const Step& step)> on_step;
  // After this worker has evaluated an epoch, counted from 1; each is evaluated by one worker.
  std::function<void(int epoch, const Evaluation& evaluation)> on_epoch;
  // The job is done and the module holds what was learnt, as in model.safetensors. In every worker.
  std::function<void(torch::nn::Module& module)> on_end;
  // Changes a training batch before the module sees it: random crops, say. On the CPU. The
  // generator is seeded by job.seed, the epoch and the batch's place in it, so that a sample is
  // changed in the same way whichever worker takes it.
  std::function<Batch(Batch batch, torch::Generator generator)> augment;
};

// Everything a worker trains: a module, what it should minimise, and the samples.
//
//   return torchps::TrainMain(argc, argv, [](const torchps::JobSpec& job) {
//     return torchps::Task{std::make_shared<Net>(), torchps::CrossEntropy(),
//                          torchps::OpenData(job)};
//   });
//
// A value that shares its module and its datasets with its copies. As thread-safe as the module,
// that is: one thread at a time.
class Task {
 public:
  // `module` is any subclass of torch::nn::Module; its parameters are float32. Its forward() takes
  // a batch's inputs in their order, and returns a tensor, or a tuple, pair or vector of them.
  // `data` may be the error of having opened it, which status() then repeats: so a program needs no
  // error handling of its own.
  template <typename Net>
  Task(std::shared_ptr<Net> module, Objective objective, absl::StatusOr<DataSource> data,
       Callbacks callbacks = {})
      : objective_(std::move(objective)),
        callbacks_(std::move(callbacks)),
        status_(module == nullptr ? absl::InvalidArgumentError("a Task needs a module")
                                  : data.status()) {
    static_assert(std::is_base_of_v<torch::nn::Module, Net>, "a Task's module is a nn::Module");
    Take(std::move(module));
    if (data.ok()) data_ = *std::move(data);
  }

  // The same for what TORCH_MODULE makes of a module.
  template <typename Net>
  Task(const torch::nn::ModuleHolder<Net>& module, Objective objective,
       absl::StatusOr<DataSource> data, Callbacks callbacks = {})
      : Task(module.ptr(), std::move(objective), std::move(data), std::move(callbacks)) {}

  // OK, or why there is no module or no data. Then the rest is of no use.
  const absl::Status& status() const { return status_; }

  torch::nn::Module& module() const { return *module_; }
  const Objective& objective() const { return objective_; }
  const DataSource& data() const { return data_; }
  const Callbacks& callbacks() const { return callbacks_; }

  // The same with a copy of the module, which shares nothing with it. Throws c10::Error where the
  // module is no torch::nn::Cloneable, and what its clone() throws.
  Task Clone() const {
    Task copy = *this;
    copy_(copy);
    return copy;
  }
  // The same on the datasets of another task.
  Task GetWithData(const Task& other) const {
    Task copy = *this;
    copy.data_ = other.data_;
    return copy;
  }

  // The module on a batch. Throws what the module throws, and c10::Error where its forward() does
  // not take so many inputs.
  Pass Forward(Batch batch, int64_t step = 0) const {
    std::vector<torch::Tensor> outputs = forward_(batch);
    return {module_.get(), std::move(outputs), std::move(batch), step, &data_.preprocessing};
  }

 private:
  template <typename Net>
  void Take(std::shared_ptr<Net> module) {
    forward_ = [net = module.get()](const Batch& batch) { return CallForward(*net, batch); };
    copy_ = [](Task& task) {
      auto copy = std::dynamic_pointer_cast<Net>(task.module_->clone());
      TORCH_CHECK(copy != nullptr, "clone() gave a module of another class");
      task.Take(std::move(copy));
    };
    module_ = std::move(module);
  }

  std::shared_ptr<torch::nn::Module> module_;
  // Borrows *module_.
  std::function<std::vector<torch::Tensor>(const Batch& batch)> forward_;
  // Gives a task a copy of its module.
  void (*copy_)(Task& task) = nullptr;
  Objective objective_;
  Callbacks callbacks_;
  DataSource data_;
  absl::Status status_;
};

}  // namespace torchps

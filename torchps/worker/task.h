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
#include "torchps/data/dataset.h"
#include "torchps/worker/call_forward.h"
#include "torchps/worker/evaluation.h"
#include "torchps/worker/objective.h"

namespace torchps {

// Optional callbacks of a program, called on the training thread. Null callbacks are skipped. If
// one throws, the worker ends with the exception's message.
struct Callbacks {
  // A step of this worker.
  struct Step {
    int64_t step = 0;     // of this worker, from 1
    int64_t samples = 0;  // of the gradient
    double loss = 0;      // mean over the samples
  };

  // Called after this worker computed a step's gradient.
  std::function<void(const Step& step)> on_step;
  // Called after this worker evaluated an epoch, counted from 1. One worker evaluates each epoch.
  std::function<void(int epoch, const Evaluation& evaluation)> on_epoch;
  // Called in each worker when the job is done and the module holds the final values, as in
  // model.safetensors.
  std::function<void(torch::nn::Module& module)> on_end;
  // Changes a training batch before the module uses it, for example by random crops. Runs on the
  // CPU. The generator's seed depends on job.seed, the epoch and the batch's position in the epoch,
  // so the change does not depend on the worker.
  std::function<Batch(Batch batch, torch::Generator generator)> augment;
};

// Combines the module to train, the objective and the data.
//
//   return torchps::TrainMain(argc, argv, [](const torchps::JobSpec& job) {
//     return torchps::Task{std::make_shared<Net>(), torchps::CrossEntropy(),
//                          torchps::OpenData(job)};
//   });
//
// A value type. Copies share the module and the datasets. As thread-safe as the module: one thread
// at a time.
class Task {
 public:
  // `module` may be of any subclass of torch::nn::Module with float32 parameters. Its forward() is
  // called with a batch's inputs, in order, and returns a tensor, or a tuple, pair or vector of
  // tensors. `data` may be an error; status() then returns it, so that programs need not handle it.
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

  // The same for a TORCH_MODULE holder.
  template <typename Net>
  Task(const torch::nn::ModuleHolder<Net>& module, Objective objective,
       absl::StatusOr<DataSource> data, Callbacks callbacks = {})
      : Task(module.ptr(), std::move(objective), std::move(data), std::move(callbacks)) {}

  // Returns OK, or the reason why the module or the data are missing. If it is not OK, do not use
  // the other functions.
  const absl::Status& status() const { return status_; }

  // Returns the module to train.
  torch::nn::Module& module() const { return *module_; }
  // Returns the loss and the metrics.
  const Objective& objective() const { return objective_; }
  // Returns the datasets.
  const DataSource& data() const { return data_; }
  // Returns the program's callbacks.
  const Callbacks& callbacks() const { return callbacks_; }

  // Returns the task with a separate copy of the module. Throws c10::Error if the module is not a
  // torch::nn::Cloneable, and clone()'s exceptions.
  Task Clone() const {
    Task copy = *this;
    copy_(copy);
    return copy;
  }
  // Returns the task with the datasets of another task.
  Task GetWithData(const Task& other) const {
    Task copy = *this;
    copy.data_ = other.data_;
    return copy;
  }

  // Runs the module on a batch. Throws the module's exceptions, and c10::Error if forward() takes
  // another number of inputs.
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
      TORCH_CHECK(copy != nullptr, "clone() returned a module of another class");
      task.Take(std::move(copy));
    };
    module_ = std::move(module);
  }

  std::shared_ptr<torch::nn::Module> module_;
  // Borrows *module_.
  std::function<std::vector<torch::Tensor>(const Batch& batch)> forward_;
  // Replaces a task's module with a copy.
  void (*copy_)(Task& task) = nullptr;
  Objective objective_;
  Callbacks callbacks_;
  DataSource data_;
  absl::Status status_;
};

}  // namespace torchps

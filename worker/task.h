#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/check.h"
#include "data/dataset.h"
#include "worker/objective.h"

namespace torchps {

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
  // `module` is any subclass of torch::nn::Module with `torch::Tensor forward(torch::Tensor)`,
  // whose input is a Batch's; its parameters are float32. `data` may be the error of having opened
  // it, which status() then repeats: so a program needs no error handling of its own.
  template <typename Net>
  Task(std::shared_ptr<Net> module, Objective objective, absl::StatusOr<DataSource> data)
      : objective_(std::move(objective)), status_(data.status()) {
    static_assert(std::is_base_of_v<torch::nn::Module, Net>, "a Task's module is a nn::Module");
    TPS_CHECK(module != nullptr, "a Task needs a module");
    forward_ = [net = module.get()](const torch::Tensor& input) { return net->forward(input); };
    module_ = std::move(module);
    if (data.ok()) data_ = *std::move(data);
  }

  // The same for what TORCH_MODULE makes of a module.
  template <typename Net>
  Task(const torch::nn::ModuleHolder<Net>& module, Objective objective,
       absl::StatusOr<DataSource> data)
      : Task(module.ptr(), std::move(objective), std::move(data)) {}

  // OK, or why there is no data. Without data only module() and objective() are of use.
  const absl::Status& status() const { return status_; }

  torch::nn::Module& module() const { return *module_; }
  const Objective& objective() const { return objective_; }
  const DataSource& data() const { return data_; }

  // The module's output for a batch's input. Throws what the module throws (c10::Error).
  torch::Tensor Forward(const torch::Tensor& input) const { return forward_(input); }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  // Borrows *module_.
  std::function<torch::Tensor(const torch::Tensor&)> forward_;
  Objective objective_;
  DataSource data_;
  absl::Status status_;
};

}  // namespace torchps

// Measures one training step of a model: either alone in this process with torch::optim, or as a
// full worker of the servers in --servers. Both use the same module, random samples, objective, and
// SGD with momentum. A step is the time between requests for two consecutive batches. Prints one
// JSON object. bench/README.md contains the commands.
//
// Some job fields, such as --set=training.precision=BFLOAT16, apply to both; other fields in --set
// apply to the worker only.
//
// A GPU works asynchronously. Without servers on a GPU, use only the mean step time, because the
// time between two batches may be just the time to queue the work.

#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "torch/cuda.h"
#include "torchps/common/clock.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"
#include "torchps/train.h"
#include "torchps/worker/device.h"
#include "torchps/worker/models/model_registry.h"
#include "torchps/worker/precision/precision.h"

ABSL_FLAG(std::string, model, "convnet", "mlp, convnet, resnet18 or transformer");
ABSL_FLAG(int, layers, 2, "of a transformer");
ABSL_FLAG(int, heads, 4, "of a transformer");
ABSL_FLAG(int, width, 128, "of a transformer");
ABSL_FLAG(int, batch, 32, "samples per step");
ABSL_FLAG(int, steps, 20, "measured steps");
ABSL_FLAG(int, warm_up, 5, "steps before the measurement");
ABSL_DECLARE_FLAG(std::vector<std::string>, servers);
ABSL_DECLARE_FLAG(std::string, device);
ABSL_DECLARE_FLAG(int, threads);

namespace torchps {
namespace {

constexpr int64_t kClasses = 10;
constexpr int64_t kSamples = 1 << 16;
constexpr int64_t kContext = 128;

// A dataset with one constant random batch, returned as a copy. Records the time of each request.
class RandomSamples final : public Dataset {
 public:
  RandomSamples(const std::string& model, std::vector<absl::Duration>* asked) : asked_(asked) {
    shape_.classes = kClasses;
    const int64_t batch = absl::GetFlag(FLAGS_batch);
    if (model == "transformer") {
      shape_.context = kContext;
      shape_.classes = 256;
      batch_.input = torch::randint(shape_.classes, {batch, kContext});
      batch_.target = torch::randint(shape_.classes, {batch, kContext});
      return;
    }
    shape_.channels = model == "resnet18" ? 3 : 1;
    shape_.height = shape_.width = model == "resnet18" ? 32 : 28;
    shape_.features = shape_.channels * shape_.height * shape_.width;
    batch_.input = torch::randn({batch, shape_.channels, shape_.height, shape_.width});
    batch_.target = torch::randint(kClasses, {batch});
  }

  int64_t size() const override { return kSamples; }
  DataShape shape() const override { return shape_; }

  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    asked_->push_back(SteadyClock().Now());
    const auto rows = static_cast<int64_t>(indices.size());
    return Batch{batch_.input.narrow(0, 0, rows).clone(), batch_.target.narrow(0, 0, rows).clone()};
  }

 private:
  DataShape shape_;
  Batch batch_;
  // Used by the training thread only.
  std::vector<absl::Duration>* const asked_;
};

absl::StatusOr<Task> MakeBenchTask(const JobSpec& job, std::vector<absl::Duration>* asked) {
  DataSource data;
  data.train = std::make_shared<RandomSamples>(job.model().name(), asked);
  data.description = "random samples";
  return MakeTask(job, std::move(data));
}

// Applies the job fields in --set. Reads argv, because absl keeps only the last --set.
absl::Status ApplySets(int argc, char** argv, JobSpec* spec) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (!absl::ConsumePrefix(&argument, "--set=")) continue;
    const absl::Status status = ApplyOverride(spec, std::string(argument));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<JobSpec> JobOfTheModel(int argc, char** argv) {
  JobSpec spec;
  ModelSpec& model = *spec.mutable_model();
  model.set_name(absl::GetFlag(FLAGS_model));
  model.mutable_transformer()->set_layers(absl::GetFlag(FLAGS_layers));
  model.mutable_transformer()->set_heads(absl::GetFlag(FLAGS_heads));
  model.mutable_transformer()->set_width(absl::GetFlag(FLAGS_width));
  spec.mutable_optimizer()->set_learning_rate(1e-4);
  if (absl::Status status = ApplySets(argc, argv, &spec); !status.ok()) return status;
  return NormalizeJobSpec(std::move(spec));
}

// Divides the gradients by `scale`. Returns true if their norms are finite.
bool Unscale(const torch::nn::Module& module, double scale) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> norms;
  for (const torch::Tensor& parameter : module.parameters()) {
    torch::Tensor gradient = parameter.grad();
    if (gradient.defined()) norms.push_back(gradient.mul_(1 / scale).norm());
  }
  return norms.empty() || std::isfinite(torch::stack(norms).norm().item<double>());
}

// Trains with a plain loop in the precision of --set=training.precision. For FLOAT16, scales the
// loss by LossScaler's rules, as torch's GradScaler does. The gradient is unscaled and checked on
// the device, and the host waits for the result.
absl::Status TrainAlone(int argc, char** argv, std::vector<absl::Duration>* asked) {
  const absl::StatusOr<torch::Device> found = FindDevice(absl::GetFlag(FLAGS_device));
  if (!found.ok()) return found.status();
  const torch::Device device = DeviceOfSlot(*found, /*slot=*/0);
  if (absl::Status status = UseDevice(device); !status.ok()) return status;
  const absl::StatusOr<JobSpec> job = JobOfTheModel(argc, argv);
  if (!job.ok()) return job.status();
  const TrainingSpec::Precision precision = job->training().precision();
  if (absl::Status status = CheckPrecision(precision, device); !status.ok()) return status;
  SetTf32(precision);
  at::set_num_threads(absl::GetFlag(FLAGS_threads));
  torch::manual_seed(1);
  const absl::StatusOr<Task> task = MakeBenchTask(*job, asked);
  if (!task.ok()) return task.status();
  task->module().to(device);
  torch::optim::SGD optimizer(task->module().parameters(),
                              torch::optim::SGDOptions(1e-4).momentum(0.9));
  const std::vector<int64_t> samples(absl::GetFlag(FLAGS_batch));
  task->module().train();
  LossScaler scaler;
  const int warm_up = absl::GetFlag(FLAGS_warm_up);
  const int last = warm_up + absl::GetFlag(FLAGS_steps);
  for (int step = 0; step <= last; ++step) {
    if (device.is_cuda() && (step == warm_up || step == last)) torch::cuda::synchronize();
    const absl::StatusOr<Batch> batch = task->data().train->Get(samples);
    optimizer.zero_grad();
    const Batch moved{batch->input.to(device), batch->target.to(device)};
    torch::Tensor loss;
    {
      const Autocast autocast(precision, device.type());
      loss = task->objective().loss(task->Forward(moved));
    }
    if (precision != TrainingSpec::FLOAT16) {
      loss.backward();
      optimizer.step();
      continue;
    }
    (loss.to(torch::kFloat32) * scaler.scale()).backward();
    if (Unscale(task->module(), scaler.scale())) {
      scaler.OnFinite();
      optimizer.step();
    } else {
      scaler.OnNotFinite();
    }
  }
  return absl::OkStatus();
}

// Returns the command line of a worker that trains the same model, batch size and number of steps.
std::vector<std::string> WorkerArguments() {
  std::vector<std::string> arguments = {"train_step"};
  const auto set = [&arguments](const std::string& field, const auto& value) {
    arguments.push_back(absl::StrCat("--set=", field, "=", value));
  };
  set("model.name", absl::GetFlag(FLAGS_model));
  if (absl::GetFlag(FLAGS_model) == "transformer") {
    set("model.transformer.layers", absl::GetFlag(FLAGS_layers));
    set("model.transformer.heads", absl::GetFlag(FLAGS_heads));
    set("model.transformer.width", absl::GetFlag(FLAGS_width));
  }
  set("data.source", "random");
  set("training.batch_size", absl::GetFlag(FLAGS_batch));
  set("training.max_pushes", absl::GetFlag(FLAGS_warm_up) + absl::GetFlag(FLAGS_steps) + 1);
  set("training.evaluate", "false");
  set("optimizer.sgd.momentum", 0.9);
  set("optimizer.learning_rate", 1e-4);
  set("consistency.mode", "ASYNC");
  set("consistency.staleness_bound", 1);
  return arguments;
}

int TrainAsWorker(int argc, char** argv, std::vector<absl::Duration>* asked) {
  std::vector<std::string> all = WorkerArguments();
  all.insert(all.end(), argv + 1, argv + argc);
  std::vector<char*> pointers;
  for (std::string& argument : all) pointers.push_back(argument.data());
  return TrainMain(static_cast<int>(pointers.size()), pointers.data(),
                   [asked](const JobSpec& job) { return MakeBenchTask(job, asked); });
}

void Print(const std::vector<absl::Duration>& asked) {
  const size_t warm_up = absl::GetFlag(FLAGS_warm_up);
  std::vector<double> steps_us;
  for (size_t i = warm_up + 1; i < asked.size(); ++i) {
    steps_us.push_back(absl::ToDoubleMicroseconds(asked[i] - asked[i - 1]));
  }
  if (steps_us.empty()) return;
  nlohmann::ordered_json json;
  json["model"] = absl::GetFlag(FLAGS_model);
  json["device"] = absl::GetFlag(FLAGS_device);
  json["batch"] = absl::GetFlag(FLAGS_batch);
  json["steps"] = steps_us.size();
  json["mean_us"] = absl::ToDoubleMicroseconds(asked.back() - asked[warm_up]) / steps_us.size();
  std::nth_element(steps_us.begin(), steps_us.begin() + steps_us.size() / 2, steps_us.end());
  json["median_us"] = steps_us[steps_us.size() / 2];
  std::printf("%s\n", json.dump().c_str());
  std::fflush(stdout);
}

}  // namespace
}  // namespace torchps

int main(int argc, char** argv) {
  // TrainMain parses the flags again and reports unknown flags itself.
  absl::ParseCommandLine(argc, argv);
  std::vector<absl::Duration> asked;
  int code = 0;
  if (absl::GetFlag(FLAGS_servers).empty()) {
    const absl::Status status = torchps::TrainAlone(argc, argv, &asked);
    if (!status.ok()) {
      std::fprintf(stderr, "train_step: %s\n", std::string(status.message()).c_str());
      code = 1;
    }
  } else {
    code = torchps::TrainAsWorker(argc, argv, &asked);
  }
  if (code == 0) torchps::Print(asked);
  return code;
}

#include "torchps/worker/models/model_registry.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torchps/job/built_ins.h"
#include "torchps/worker/models/transformer.h"
#include "torchps/worker/models/vision_models.h"
#include "torchps/worker/objective.h"

namespace torchps {
namespace {

absl::Status WrongData(const std::string& model, const std::string& needs, const DataSource& data) {
  return absl::InvalidArgumentError(absl::StrFormat("model.name: \"%s\" expects data of %s, got %s",
                                                    model, needs, data.description));
}

// Makes a model of numeric features, for classification or regression.
Task MakeVectorTask(const ModelSpec& spec, DataSource data) {
  const DataShape shape = data.train->shape();
  const int64_t outputs = shape.targets > 0 ? shape.targets : shape.classes;
  Objective objective = shape.targets > 0 ? MeanSquaredError() : CrossEntropy(shape.classes);
  if (spec.name() == "linear") {
    return Task(std::make_shared<LinearModel>(shape.features, outputs), std::move(objective),
                std::move(data));
  }
  const std::vector<int64_t> hidden(spec.hidden().begin(), spec.hidden().end());
  return Task(std::make_shared<Mlp>(shape.features, hidden, outputs), std::move(objective),
              std::move(data));
}

Task MakeTransformer(const TransformerSpec& spec, DataSource data) {
  Transformer::Options options;
  options.layers = spec.layers();
  options.heads = spec.heads();
  options.width = spec.width();
  options.context = data.train->shape().context;
  options.vocabulary = data.train->shape().classes;
  return Task(std::make_shared<Transformer>(options), NextByteCrossEntropy(), std::move(data));
}

}  // namespace

absl::StatusOr<Task> MakeTask(const JobSpec& job, DataSource data) {
  if (absl::Status known = CheckBuiltInModel(job); !known.ok()) return known;
  const std::string& name = job.model().name();
  const DataShape shape = data.train->shape();
  if (name == "linear" || name == "mlp") {
    if (shape.features < 1) return WrongData(name, "numbers (images or rows)", data);
    return MakeVectorTask(job.model(), std::move(data));
  }
  if (name == "convnet" || name == "resnet18") {
    if (shape.height < 4 || shape.width < 4) {
      return WrongData(name, "images of 4x4 pixels or more", data);
    }
    if (name == "convnet") {
      return Task(
          std::make_shared<ConvNet>(shape.channels, shape.height, shape.width, shape.classes),
          CrossEntropy(shape.classes), std::move(data));
    }
    return Task(
        std::make_shared<ResNet18>(shape.channels, shape.height, shape.width, shape.classes),
        CrossEntropy(shape.classes), std::move(data));
  }
  if (name == "transformer") {
    if (shape.context < 1) return WrongData(name, "text or tokens", data);
    return MakeTransformer(job.model().transformer(), std::move(data));
  }
  return absl::InternalError(
      absl::StrCat("model.name \"", name, "\" is a built-in model that MakeTask does not build"));
}

absl::StatusOr<Stages> CutModule(const JobSpec& job, const torch::nn::Module& module, int stages) {
  const std::string& name = job.model().name();
  const auto cut = [&](const auto& layered, int layers) -> absl::StatusOr<Stages> {
    if (stages <= layers) return layered.InStages(stages);
    return absl::InvalidArgumentError(absl::StrCat("cannot cut the model into ", stages,
                                                   " stages: it has ", layers,
                                                   " layers to cut between; choose fewer stages"));
  };
  if (const auto* const mlp = dynamic_cast<const Mlp*>(&module); mlp != nullptr) {
    return cut(*mlp, mlp->linear_layers());
  }
  if (const auto* const transformer = dynamic_cast<const Transformer*>(&module);
      transformer != nullptr) {
    return cut(*transformer, transformer->layers());
  }
  return absl::InvalidArgumentError(
      absl::StrCat("model.name: \"", name,
                   "\" cannot be cut into stages; expected mlp or transformer, or your own program "
                   "with a torchps::Stages"));
}

}  // namespace torchps

#include "worker/models/model_registry.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/models/convnet.h"
#include "worker/models/linear.h"
#include "worker/models/mlp.h"
#include "worker/models/resnet18.h"
#include "worker/models/transformer.h"
#include "worker/objective.h"

namespace torchps {
namespace {

// A layer wider than this asks for gigabytes by mistake.
constexpr int64_t kMaxWidth = 65536;
constexpr int64_t kMaxLayers = 1024;

absl::Status CheckField(const std::string& field, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: expected 1 to %d, got %d", field, most, value));
}

absl::Status WrongData(const std::string& model, const std::string& needs, const DataSource& data) {
  return absl::InvalidArgumentError(absl::StrFormat("model.name: \"%s\" expects data of %s, got %s",
                                                    model, needs, data.description));
}

absl::StatusOr<Task> MakeMlp(const ModelSpec& spec, DataSource data) {
  std::vector<int64_t> hidden;
  for (int32_t width : spec.hidden()) {
    if (absl::Status status = CheckField("model.hidden", width, kMaxWidth); !status.ok()) {
      return status;
    }
    hidden.push_back(width);
  }
  const DataShape shape = data.train->shape();
  return Task(std::make_shared<Mlp>(shape.features, hidden, shape.classes), CrossEntropy(),
              std::move(data));
}

absl::StatusOr<Task> MakeTransformer(const TransformerSpec& spec, DataSource data) {
  const struct {
    const char* field;
    int64_t value;
    int64_t most;
  } fields[] = {{"model.transformer.layers", spec.layers(), kMaxLayers},
                {"model.transformer.heads", spec.heads(), kMaxWidth},
                {"model.transformer.width", spec.width(), kMaxWidth}};
  for (const auto& [field, value, most] : fields) {
    if (absl::Status status = CheckField(field, value, most); !status.ok()) return status;
  }
  if (spec.width() % spec.heads() != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("model.transformer.heads: expected a divisor of model.transformer.width = "
                        "%d, got %d",
                        spec.width(), spec.heads()));
  }
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
  const std::string& name = job.model().name();
  const DataShape shape = data.train->shape();
  if (name == "linear" || name == "mlp") {
    if (shape.features < 1) return WrongData(name, "numbers (images or rows)", data);
    if (name == "mlp") return MakeMlp(job.model(), std::move(data));
    return Task(std::make_shared<LinearModel>(shape.features, shape.classes), CrossEntropy(),
                std::move(data));
  }
  if (name == "convnet" || name == "resnet18") {
    if (shape.height < 4 || shape.width < 4) {
      return WrongData(name, "images of 4x4 pixels or more", data);
    }
    if (name == "convnet") {
      return Task(
          std::make_shared<ConvNet>(shape.channels, shape.height, shape.width, shape.classes),
          CrossEntropy(), std::move(data));
    }
    return Task(
        std::make_shared<ResNet18>(shape.channels, shape.height, shape.width, shape.classes),
        CrossEntropy(), std::move(data));
  }
  if (name == "transformer") {
    if (shape.context < 1) return WrongData(name, "text", data);
    return MakeTransformer(job.model().transformer(), std::move(data));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "model.name: expected linear, mlp, convnet, resnet18 or transformer, got \"", name, "\""));
}

}  // namespace torchps

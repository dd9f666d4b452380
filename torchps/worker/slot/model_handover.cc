#include "torchps/worker/slot/model_handover.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torchps/data/preprocessing.h"
#include "torchps/transport/evaluation_score.h"
#include "torchps/worker/state_file.h"

namespace torchps {
namespace {

constexpr size_t kPieceBytes = 1 << 20;
// Maximum number of uploads of one file. A server that restarts during an upload forgets the pieces
// it received, so the upload begins again.
constexpr int kTries = 5;

// 17 digits restore the same double.
std::string Exact(double value) { return absl::StrFormat("%.17g", value); }

bool EndsTheWorker(const absl::Status& status) {
  return absl::IsCancelled(status) || absl::IsAborted(status) || absl::IsUnavailable(status);
}

}  // namespace

absl::Status ModelHandover::OnInitialized() {
  std::set<std::string> known;
  for (const Segment& segment : options_.layout->segments()) known.insert(segment.name);
  const std::map<std::string, std::string> tied = TiedNames(*options_.module);
  const absl::StatusOr<StateFile> constants = StateFile::Of(
      *options_.module, {{"job", options_.job.name()}, {"tied", nlohmann::json(tied).dump()}},
      [&](const std::string& name) { return known.count(name) == 0 && tied.count(name) == 0; });
  if (constants.ok() && constants->size() == 0 && tied.empty()) return absl::OkStatus();
  std::string not_kept;
  return Send(MODEL_CONSTANTS, constants, &not_kept);
}

absl::Status ModelHandover::HandOver(const KeepModel& keep, EvaluationResult* result) {
  std::map<std::string, std::string> metadata = GetPreprocessing(options_.job);
  metadata["job"] = options_.job.name();
  metadata["epoch"] = absl::StrCat(result->epoch());
  if (result->samples() > 0) {
    metadata["test_samples"] = absl::StrCat(result->samples());
    metadata["test_loss"] = Exact(result->loss());
    for (const MetricValue& metric : result->metric()) {
      metadata[absl::StrCat("test_", metric.name())] = Exact(metric.value());
    }
  }
  const std::optional<double> score = GetScore(*result, options_.job.training().best_by());
  if (score.has_value()) metadata["score"] = Exact(*score);
  const absl::StatusOr<StateFile> state = StateFile::Of(*options_.module, std::move(metadata));
  if (score.has_value() && (!keep.has_best_score() || *score > keep.best_score())) {
    std::string not_kept;
    if (absl::Status status = Send(MODEL_BEST, state, &not_kept); !status.ok()) return status;
  }
  if (!keep.final()) return absl::OkStatus();
  return Send(MODEL_FINAL, state, result->mutable_model_not_kept());
}

absl::Status ModelHandover::Send(ModelFile file, const absl::StatusOr<StateFile>& state,
                                 std::string* not_kept) {
  absl::Status status = state.status();
  for (int i = 0; state.ok() && i < kTries; ++i) {
    status = state->Read(kPieceBytes, [&](int64_t offset, absl::string_view piece) {
      return options_.coordinator->StoreModel(file, state->bytes(), offset, piece);
    });
    if (!absl::IsOutOfRange(status)) break;
  }
  if (status.ok() || EndsTheWorker(status)) return status;
  // Server 0 runs without a directory and does not keep models.
  if (absl::IsFailedPrecondition(status)) return absl::OkStatus();
  *not_kept = std::string(status.message());
  options_.log(absl::StrCat("cannot store the model, training continues: ", *not_kept));
  return absl::OkStatus();
}

}  // namespace torchps

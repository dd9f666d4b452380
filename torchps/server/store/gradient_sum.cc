#include "torchps/server/store/gradient_sum.h"

#include <algorithm>

#include "torchps/job/local_steps.h"
#include "torchps/server/optimizer/elementwise.h"

namespace torchps {

SampleScale GetSampleScale(const JobSpec& job) {
  SampleScale scale;
  const TrainingSpec& training = job.training();
  if (HasLocalSteps(job)) {
    scale.of = job.optimizer().has_sgd() ? SampleScale::Of::kGradient : SampleScale::Of::kRate;
    scale.whole_step = SamplesOfAllPushes(job);
    scale.is_of_all = true;
  } else if (training.balance() == TrainingSpec::SPEED || training.global_batch()) {
    scale.of = SampleScale::Of::kRate;
    scale.whole_step = SamplesOfPush(job);
    scale.is_of_all = training.global_batch();
  }
  return scale;
}

namespace {

// The sum is kept in units of this many samples, so that a sum of up to this many samples overflows
// a float only if the mean does. Dividing by a power of two changes only exponents. A sum of more
// samples can overflow only if the mean is near the largest float.
constexpr float kSamplesAsOne = 1 << 24;

}  // namespace

bool GradientSum::Has(SlotId slot) const {
  return std::find(contributors_.begin(), contributors_.end(), slot) != contributors_.end();
}

void GradientSum::Add(const Block& block, const PushHeader& header, const FramePayload& payload,
                      const LedgerEntry& entry) {
  if (contributors_.empty()) sum_.assign(block.range.length, 0.0f);
  if (!header.withheld) {
    AddElements(block, header, payload);
    const bool is_first = weight_ == 0;
    absent_ = is_first ? header.absent : RunsInBoth(absent_, header.absent);
    progress_ = is_first ? header.progress : std::min(progress_, header.progress);
    weight_ += header.mean_weight();
  }
  contributors_.push_back(header.slot);
  entries_before_.push_back(entry);
}

void GradientSum::AddElements(const Block& block, const PushHeader& header,
                              const FramePayload& payload) {
  const float weight = static_cast<float>(header.weight) / kSamplesAsOne;
  const auto add = [&](int64_t first, absl::Span<const float> run) {
    AddScaled(run.data(), weight, absl::MakeSpan(sum_).subspan(first, run.size()));
  };
  if (header.absent.empty()) {
    payload.ForEachRun(block.range.length, add);
    return;
  }
  if (CoversAll(header.absent, block.range.length)) return;
  // Values at absent elements are undefined, so skip them.
  payload.ForEachRun(block.range.length, [&](int64_t first, absl::Span<const float> run) {
    const auto end = first + static_cast<int64_t>(run.size());
    int64_t next = first;
    for (const ElementRun& gap : RunsWithin(header.absent, first, end)) {
      const int64_t gap_begin = first + gap.begin;
      if (next < gap_begin) add(next, run.subspan(next - first, gap_begin - next));
      next = first + gap.end;
    }
    if (next < end) add(next, run.subspan(next - first));
  });
}

BlockRecord GradientSum::TakeMean(const Block& block) {
  Scale(static_cast<float>(1.0 / weight_) * kSamplesAsOne, absl::MakeSpan(sum_));
  latest_progress_ = std::max(latest_progress_, progress_);
  BlockRecord update;
  update.kind = BlockRecord::Kind::kGradient;
  update.terms.progress = latest_progress_;
  update.absent = absent_;
  if (!CoversAll(absent_, block.range.length)) update.elements = absl::MakeConstSpan(sum_);
  update.slots = contributors_;
  return update;
}

void GradientSum::Clear() {
  contributors_.clear();
  entries_before_.clear();
  absent_.clear();
  weight_ = 0;
}

std::vector<LedgerEntry> GradientSum::LedgerWithout(const Block& block) const {
  std::vector<LedgerEntry> ledger = block.ledger;
  for (size_t i = 0; i < contributors_.size(); ++i) ledger[contributors_[i]] = entries_before_[i];
  return ledger;
}

}  // namespace torchps

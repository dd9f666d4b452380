#include "tests/fault/nemesis/nemesis_job.h"

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "torchps/common/check.h"
#include "torchps/job/job_spec.h"
#include "torchps/transport/layout_codec.h"

namespace torchps {

constexpr int NemesisJob::kModulus[];

NemesisJob NemesisJob::Create(DurabilitySpec::Level level, Pace pace, Carriage carriage,
                              Rule rule) {
  const bool calm = pace == Pace::kCalm;
  const bool batches = rule == Rule::kWholeBatch;
  static_assert(kBatch == 2 * kPushWeight, "two pushes are a whole batch");
  JobSpec spec;
  const bool parsed = google::protobuf::TextFormat::ParseFromString(
      absl::StrCat("name: 'nemesis' workers: ", kSlots, " model { name: 'counters' } ",
                   "training { epochs: 1000000 batch_size: ", kBatch,
                   " balance: EQUAL global_batch: ", batches ? "true" : "false", " } ",
                   "optimizer { sgd {} learning_rate: ", batches ? 2 : 1,
                   " } consistency { mode: ASYNC ",
                   batches ? "apply: WHOLE_BATCH "
                           : absl::StrCat("staleness_bound: ", calm ? -1 : kStalenessBound),
                   " prefetch: false } ", "wire { block_bytes: ", kBlockElements * sizeof(float),
                   " shared_memory: ", carriage == Carriage::kSharedMemory ? "true" : "false",
                   carriage == Carriage::kInt8 ? " push { kind: INT8 }" : "", " } ",
                   "membership { lease_seconds: ", calm ? 3600 : kLeaseSeconds,
                   " } durability { level: ", DurabilitySpec::Level_Name(level),
                   " checkpoint_seconds: ", calm ? 3600 : 0.5, " keep: 2 }"),
      &spec);
  TPS_CHECK(parsed, "the nemesis' job is not valid");
  const auto normal = NormalizeJobSpec(spec);
  TPS_CHECK(normal.ok(), "the nemesis' job is not valid");
  ModelLayoutProto proto;
  SegmentProto* const counters = proto.add_segment();
  counters->set_name("counters");
  counters->add_shape(kBlocks * kBlockElements);
  counters->set_group(-1);
  const auto layout = DecodeLayout(proto);
  TPS_CHECK(layout.ok(), "the nemesis' layout is not valid");
  const auto map = BlockMap::Create(*layout, normal->wire().block_bytes(), kServers);
  TPS_CHECK(map.ok() && map->blocks().size() == kBlocks, "the nemesis' layout is cut differently");
  return {*normal, *layout, *map};
}

std::vector<float> NemesisJob::Gradient(SlotId slot, Step step) {
  std::vector<float> gradient(kBlockElements);
  for (int modulus = 0; modulus < 2; ++modulus) {
    // Negative, because the optimizer subtracts the gradient.
    gradient[Counter(slot, modulus, static_cast<int>(step % kModulus[modulus]))] = -1;
  }
  return gradient;
}

}  // namespace torchps

#include "torchps/data/dataset.h"

#include <algorithm>

#include "absl/strings/string_view.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

constexpr int64_t kSamples = 7;

void Add(const torch::Tensor& tensor, Fingerprinted numbers, Fnv1a* hash) {
  if (!tensor.defined()) {
    hash->AddInteger(0);
    return;
  }
  hash->AddInteger(static_cast<uint64_t>(tensor.scalar_type()) + 1);
  for (const int64_t size : tensor.sizes()) hash->AddInteger(static_cast<uint64_t>(size));
  const bool is_whole = !tensor.is_floating_point() && !tensor.is_complex();
  if (!is_whole && numbers == Fingerprinted::kWholeNumbers) return;
  const torch::Tensor bytes = tensor.cpu().contiguous();
  hash->AddString({static_cast<const char*>(bytes.data_ptr()), bytes.nbytes()});
}

}  // namespace

uint32_t FingerprintOfSamples(const Dataset& data, Fingerprinted numbers) {
  const int64_t size = data.size();
  const int64_t looked_at = std::min(size, kSamples);
  Fnv1a hash;
  hash.AddInteger(static_cast<uint64_t>(size));
  for (int64_t i = 0; i < looked_at; ++i) {
    const absl::StatusOr<Batch> batch =
        data.Get({size / looked_at * i + size % looked_at * i / looked_at});
    if (!batch.ok()) return 0;
    Add(batch->input, numbers, &hash);
    Add(batch->target, numbers, &hash);
    for (const torch::Tensor& more : batch->more_inputs) Add(more, numbers, &hash);
    for (const torch::Tensor& more : batch->more_targets) Add(more, numbers, &hash);
  }
  return FingerprintOfHash(hash.value());
}

uint32_t FingerprintOfHash(uint64_t hash) {
  return std::max(static_cast<uint32_t>(hash ^ hash >> 32), uint32_t{1});
}

DataFingerprint GetFingerprint(const DataSource& source) {
  const auto of = [](const Dataset* data) { return data == nullptr ? 0 : data->Fingerprint(); };
  return {of(source.train.get()), of(source.test.get())};
}

}  // namespace torchps
